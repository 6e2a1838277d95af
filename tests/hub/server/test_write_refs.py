"""Branches and tags by the real client; a tag on a card publishes it."""

from collections.abc import Iterator

import pytest
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError

from tests.hub.shared_hub import Shared, shared_hub, status


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/refs")
        shared.put("bob/refs", {"config.json": b"{}"})
        yield shared


def test_a_branch_begins_where_it_is_told(shared: Shared) -> None:
    api = shared.api("bob")
    first = api.list_repo_commits("bob/refs")[-1].commit_id
    api.create_branch("bob/refs", branch="v/next", revision=first)
    api.create_branch("bob/refs", branch="tip")
    branches = {ref.name: ref.target_commit for ref in api.list_repo_refs("bob/refs").branches}
    assert branches["v/next"] == first
    assert branches["tip"] == branches["main"] != first


def test_a_branch_that_is_there_is_a_conflict_unless_it_may_be(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_branch("bob/refs", branch="again")
    with pytest.raises(HfHubHTTPError) as error:
        api.create_branch("bob/refs", branch="again")
    assert status(error) == 409
    api.create_branch("bob/refs", branch="again", exist_ok=True)


def test_a_branch_from_nowhere_and_one_of_an_odd_name_are_refused(shared: Shared) -> None:
    with pytest.raises(RevisionNotFoundError):
        shared.api("bob").create_branch("bob/refs", branch="lost", revision="nowhere")
    for name in ("a..b", "refs/heads/x", "01234567" * 5, "a b", "-x", "a\nb", "x.lock"):
        with pytest.raises(HfHubHTTPError) as error:
            shared.api("bob").create_branch("bob/refs", branch=name)
        assert status(error) == 400


def test_files_are_committed_to_a_branch_and_not_to_main(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_branch("bob/refs", branch="side")
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="side.json", repo_id="bob/refs", revision="side")
    assert api.file_exists("bob/refs", "side.json", revision="side")
    assert not api.file_exists("bob/refs", "side.json")


def test_a_deleted_branch_is_gone_and_main_stays(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_branch("bob/refs", branch="passing")
    api.delete_branch("bob/refs", branch="passing")
    assert "passing" not in {ref.name for ref in api.list_repo_refs("bob/refs").branches}
    with pytest.raises(HfHubHTTPError) as error:
        api.delete_branch("bob/refs", branch="main")
    assert status(error) == 400


def test_a_tag_names_a_commit_for_good(shared: Shared) -> None:
    api = shared.api("bob")
    first = api.list_repo_commits("bob/refs")[-1].commit_id
    api.create_tag("bob/refs", tag="v1.0", revision=first, tag_message="the first")
    with pytest.raises(HfHubHTTPError) as error:
        api.create_tag("bob/refs", tag="v1.0")
    assert status(error) == 409
    api.create_tag("bob/refs", tag="v1.0", exist_ok=True)
    tags = {ref.name: ref.target_commit for ref in api.list_repo_refs("bob/refs").tags}
    assert tags["v1.0"] == first


def test_nothing_is_committed_to_a_tag(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_tag("bob/refs", tag="fixed")
    with pytest.raises(RevisionNotFoundError):
        api.upload_file(path_or_fileobj=b"[]", path_in_repo="a.json", repo_id="bob/refs", revision="fixed")


def test_a_tag_that_published_nothing_can_be_deleted(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_tag("bob/refs", tag="draft")
    api.delete_tag("bob/refs", tag="draft")
    assert "draft" not in {ref.name for ref in api.list_repo_refs("bob/refs").tags}
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag("bob/refs", tag="draft")


def test_refs_are_for_who_may_write(shared: Shared) -> None:
    for who, expected in (("dan", 403), ("bob:read", 403), (None, 401)):
        for path, body in (("branch/x", {}), ("tag/main", {"tag": "x"})):
            answer = shared.http(who).post(f"/api/models/bob/refs/{path}", json=body)
            assert answer.status_code == expected
