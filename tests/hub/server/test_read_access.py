"""Who sees what: private and gated repositories, and requests for access."""

from collections.abc import Iterator

import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from tests.hub.shared_hub import Shared, shared_hub

FILES = {"config.json": b"{}"}
READS = [
    "/api/models/{}",
    "/api/models/{}/revision/main",
    "/api/models/{}/tree/main",
    "/api/models/{}/refs",
    "/api/models/{}/commits/main",
    "/api/models/{}/auth-check",
    "/api/models/{}/discussions",
    "/{}/resolve/main/config.json",
    "/{}/raw/main/config.json",
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("lab/secret", private=True)
        shared.put("lab/secret", FILES)
        for gate in ("manual", "auto"):
            shared.create(f"lab/{gate}", gated=gate)
            shared.put(f"lab/{gate}", FILES)
        yield shared


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("who", [None, "dan", "dan:admin", "ada"])
def test_a_private_repository_looks_like_none_at_all(shared: Shared, path: str, who: str | None) -> None:
    http = shared.http(who)
    secret, nothing = (http.get(path.format(name)) for name in ("lab/secret", "lab/sacred"))
    assert secret.status_code == nothing.status_code == (401 if who is None else 404)
    assert secret.headers["x-error-code"] == nothing.headers["x-error-code"] == "RepoNotFound"
    assert secret.text.replace("secret", "sacred") == nothing.text


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("who", ["bob", "cleo:read", "ada:admin"])
def test_members_and_administrators_of_the_hub_see_it(shared: Shared, path: str, who: str) -> None:
    assert shared.http(who).get(path.format("lab/secret")).status_code == 200


def test_lists_leave_out_what_may_not_be_seen(shared: Shared) -> None:
    def seen(who: str | None) -> set[str]:
        return {each.id for each in shared.api(who).list_models(author="lab")}

    assert seen(None) == seen("dan") == {"lab/manual", "lab/auto"}
    assert seen("cleo") == seen("ada:admin") == {"lab/manual", "lab/auto", "lab/secret"}


def test_a_token_of_one_repository_opens_no_other(shared: Shared) -> None:
    token = shared.hub.tokens.create("bob", name="bound", scope="read", repository="lab/manual")
    api = shared.api()
    assert api.model_info("lab/manual", token=token).id == "lab/manual"
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("lab/secret", token=token)


def test_what_is_gated_is_described_to_everyone(shared: Shared) -> None:
    info = shared.api().model_info("lab/manual")
    assert info.gated == "manual"
    assert [sibling.rfilename for sibling in info.siblings or []] == [".gitattributes", "config.json"]
    assert {each.id for each in shared.api().list_models(gated=True)} == {"lab/manual", "lab/auto"}


@pytest.mark.parametrize(("who", "status"), [(None, 401), ("dan", 403)])
def test_what_is_gated_is_given_out_to_members_only(shared: Shared, who: str | None, status: int) -> None:
    http = shared.http(who)
    for path in READS[-2:]:
        answer = http.get(path.format("lab/manual"))
        assert (answer.status_code, answer.headers["x-error-code"]) == (status, "GatedRepo")
    with pytest.raises(GatedRepoError):
        shared.api(who).auth_check("lab/manual")
    assert shared.http("cleo:read").get("/lab/manual/resolve/main/config.json").content == b"{}"


def test_access_is_asked_for_and_answered(shared: Shared) -> None:
    dan, bob = shared.api("dan"), shared.api("bob")
    url = "/lab/manual/resolve/main/config.json"
    answer = shared.http("dan").post("/lab/manual/ask-access")
    assert answer.json() == {"status": "pending"}
    assert shared.http("dan").get(url).status_code == 403
    assert [each.username for each in bob.list_pending_access_requests("lab/manual")] == ["dan"]
    bob.accept_access_request("lab/manual", "dan")
    assert shared.http("dan").get(url).status_code == 200
    dan.auth_check("lab/manual")
    [accepted] = bob.list_accepted_access_requests("lab/manual")
    assert (accepted.username, accepted.status) == ("dan", "accepted")
    bob.reject_access_request("lab/manual", "dan", rejection_reason=None)
    assert shared.http("dan").get(url).status_code == 403
    assert shared.http("dan").post("/lab/manual/ask-access").json() == {"status": "rejected"}
    bob.cancel_access_request("lab/manual", request_id=accepted.request_id)
    assert [each.status for each in bob.list_pending_access_requests("lab/manual")] == ["pending"]
    answers = [event.detail["answer"] for event in shared.hub.events.list(action="access.answered")]
    assert answers == ["pending", "rejected", "accepted"]


def test_an_automatic_gate_opens_for_whoever_asks(shared: Shared) -> None:
    http = shared.http("dan")
    assert http.get("/lab/auto/resolve/main/config.json").status_code == 403
    assert http.post("/lab/auto/ask-access").json() == {"status": "accepted"}
    assert http.get("/lab/auto/resolve/main/config.json").status_code == 200


@pytest.mark.parametrize("who", ["dan", "cleo", "bob:read", "ada"])
def test_only_those_who_administer_a_repository_answer(shared: Shared, who: str) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        shared.api(who).grant_access("lab/manual", who.partition(":")[0])
    assert error.value.response.status_code == 403
    with pytest.raises(HfHubHTTPError):
        shared.api(who).list_pending_access_requests("lab/manual").__next__()  # type: ignore[attr-defined]


def test_answers_are_for_users_who_asked_and_gates_that_are_there(shared: Shared) -> None:
    bob = shared.http("bob")
    shared.create("lab/open")
    granted = "/api/models/{}/user-access-request/grant"
    assert bob.post(granted.format("lab/open"), json={"user": "dan"}).status_code == 400
    assert bob.post(granted.format("lab/manual"), json={"user": "nobody"}).status_code == 404
    assert bob.post(granted.format("lab/manual"), json={"user": "lab"}).status_code == 400
    assert bob.post(granted.format("lab/manual"), json={"user": "dan"}).status_code == 200
    assert shared.http("dan").get("/lab/manual/resolve/main/config.json").status_code == 200
    handled = "/api/models/lab/manual/user-access-request/handle"
    assert bob.post(handled, json={"user": "cleo", "status": "accepted"}).status_code == 404
    assert bob.post(handled, json={"user": "cleo", "status": "maybe"}).status_code == 400
    assert shared.http("dan").post("/lab/open/ask-access").status_code == 400


def test_auth_check_tells_who_may_write(shared: Shared) -> None:
    shared.api("cleo").auth_check("lab/manual", write=True)
    for who in ("dan", "cleo:read"):
        with pytest.raises(HfHubHTTPError):
            shared.api(who).auth_check("lab/manual", write=True)
