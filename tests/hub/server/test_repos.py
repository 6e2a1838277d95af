"""Repositories made, deleted, moved and changed by the real client."""

import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from tests.hub.shared_hub import Shared, status


def test_without_a_namespace_a_repository_is_the_askers_own(shared: Shared) -> None:
    assert shared.api("dan").create_repo("mine").repo_id == "dan/mine"


@pytest.mark.parametrize("wish", [{"visibility": "private"}, {"private": True}])
def test_a_private_repository_is_seen_by_its_owner_only(shared: Shared, wish: dict[str, object]) -> None:
    name = f"hidden-{next(iter(wish))}"
    answer = shared.http("bob").post("/api/repos/create", json={"name": name, "organization": None, **wish})
    assert answer.status_code == 200
    assert shared.api("bob").model_info(f"bob/{name}").private
    with pytest.raises(RepositoryNotFoundError):
        shared.api("dan").model_info(f"bob/{name}")


def test_members_who_may_write_make_repositories_of_their_organisation(shared: Shared) -> None:
    assert shared.api("cleo").create_repo("LAB/by-cleo").repo_id == "lab/by-cleo"
    for who in ("dan", "bob:read"):
        with pytest.raises(HfHubHTTPError) as error:
            shared.api(who).create_repo("lab/by-others")
        assert status(error) == 403


@pytest.mark.parametrize("namespace", ["bob", "nobody-of-that-name"])
def test_a_foreign_namespace_and_one_that_is_not_there_are_refused_alike(
    shared: Shared, namespace: str
) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        shared.api("dan").create_repo(f"{namespace}/x")
    assert status(error) == 403


def test_nobody_makes_nothing(shared: Shared) -> None:
    assert shared.http().post("/api/repos/create", json={"name": "x"}).status_code == 401


def test_spaces_are_not_offered(shared: Shared) -> None:
    answer = shared.http("bob").post(
        "/api/repos/create", json={"name": "s", "type": "space", "sdk": "gradio"}
    )
    assert answer.status_code == 501


def test_only_who_administers_a_repository_deletes_it(shared: Shared) -> None:
    shared.create("lab/kept")
    for who in ("cleo", "dan"):
        with pytest.raises(HfHubHTTPError) as error:
            shared.api(who).delete_repo("lab/kept")
        assert status(error) == 403
    shared.create("lab/hidden", private=True)
    with pytest.raises(RepositoryNotFoundError):
        shared.api("dan").delete_repo("lab/hidden")
    shared.api("bob").delete_repo("lab/kept")


def test_a_repository_moves_neither_onto_another_nor_to_a_foreign_namespace(shared: Shared) -> None:
    api = shared.api("bob")
    shared.create("bob/stays")
    shared.create("bob/in-the-way")
    with pytest.raises(HfHubHTTPError) as error:
        api.move_repo("bob/stays", "bob/IN-the-way")
    assert status(error) == 409
    with pytest.raises(HfHubHTTPError) as error:
        api.move_repo("bob/stays", "dan/taken")
    assert status(error) == 403
    assert api.repo_exists("bob/stays")


def test_settings_that_are_not_named_stay(shared: Shared) -> None:
    api = shared.api("bob")
    shared.create("bob/set")
    api.update_repo_settings("bob/set", visibility="private", gated="manual")
    api.update_repo_settings("bob/set", visibility="public")
    info = api.model_info("bob/set")
    assert not info.private
    assert info.gated == "manual"
    api.update_repo_settings("bob/set", gated=False)
    assert api.model_info("bob/set").gated is False


def test_older_clients_set_private(shared: Shared) -> None:
    shared.create("bob/older")
    answer = shared.http("bob").put("/api/models/bob/older/settings", json={"private": True})
    assert answer.json()["private"] is True
    assert shared.api("bob").model_info("bob/older").private


def test_settings_are_for_who_administers(shared: Shared) -> None:
    shared.create("lab/settled")
    with pytest.raises(HfHubHTTPError) as error:
        shared.api("cleo").update_repo_settings("lab/settled", visibility="private")
    assert status(error) == 403


def test_the_metadata_of_a_readme_is_checked_before_it_is_uploaded(shared: Shared) -> None:
    http = shared.http()
    good = http.post(
        "/api/validate-yaml", json={"content": "---\nlicense: mit\n---\n# Card", "repoType": "model"}
    )
    assert (good.status_code, good.json()) == (200, {"errors": [], "warnings": []})
    none = http.post("/api/validate-yaml", json={"content": "# Card"})
    assert none.status_code == 200
    assert none.json()["warnings"]
    bad = http.post("/api/validate-yaml", json={"content": "---\na: [\n---\n"})
    assert bad.status_code == 400
    assert bad.json()["errors"][0]["message"]
