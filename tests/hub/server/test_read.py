"""Lists, descriptions, trees, refs and history, as the real client reads them; who sees what."""

import base64
import struct
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

import pytest
from huggingface_hub import RepoFile
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
)

from kcard.hub.db.models import Repository
from tests.hub.shared_hub import Shared, shared_hub

README = b"""---
license: mit
library_name: transformers
pipeline_tag: text-generation
tags: [oncology]
base_model: lab/base
---
# A card
"""
WEIGHTS = struct.pack("<Q", 2) + b"{}"
FILES = {
    "README.md": README,
    "config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8}',
    "model.safetensors": WEIGHTS,
    "onnx/deep/notes.txt": b"deep\n",
    "onnx/notes.txt": b"one\n",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/oncology")
        shared.put("bob/oncology", FILES, title="The card")
        small = {"config.json": b"{}"}
        shared.create("lab/secret", private=True, files=small)
        for gate in ("manual", "auto"):
            shared.create(f"lab/{gate}", gated=gate, files=small)
        yield shared


def repository(shared: Shared) -> Repository:
    return shared.hub.repositories.get("model", "bob/oncology")


def test_a_model_is_described_with_its_files_tags_and_metadata(shared: Shared) -> None:
    info = shared.api().model_info("bob/oncology", files_metadata=True, securityStatus=True)
    assert (info.id, info.author, info.private, info.gated, info.disabled) == (
        *("bob/oncology", "bob", False, False, False),
    )
    assert info.sha == repository(shared).head
    assert info.last_modified is not None
    assert abs(info.last_modified - repository(shared).modified) < timedelta(milliseconds=1)
    assert info.card_data is not None
    assert info.card_data.license == "mit"
    assert {"oncology", "license:mit", "transformers"} <= set(info.tags or [])
    assert (info.pipeline_tag, info.library_name) == ("text-generation", "transformers")
    assert info.config == {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert info.used_storage == repository(shared).size
    assert info.security_repo_status == {"scansDone": True, "filesWithIssues": []}
    files = {sibling.rfilename: sibling for sibling in info.siblings or []}
    assert set(files) == {*FILES, ".gitattributes"}
    weights = files["model.safetensors"]
    assert weights.lfs is not None
    assert (weights.size, weights.lfs.size) == (len(WEIGHTS), len(WEIGHTS))
    assert files["README.md"].lfs is None


def test_a_revision_is_described_as_it_shows_itself(shared: Shared) -> None:
    before = repository(shared).head
    assert before is not None
    shared.hub.refs.create_branch(repository(shared), "drafts/new", before)
    shared.put(
        "bob/oncology", {"README.md": b"---\nlicense: apache-2.0\n---\n"}, branch="drafts/new", title="New"
    )
    info = shared.api().model_info("bob/oncology", revision="drafts/new")
    assert info.card_data is not None
    assert info.card_data.license == "apache-2.0"
    assert "license:apache-2.0" in (info.tags or [])
    assert info.sha != before
    assert shared.api().model_info("bob/oncology", revision=before[:8]).sha == before


def test_a_list_tells_files_and_metadata_where_it_is_asked_to(shared: Shared) -> None:
    api = shared.api()
    plain = next(iter(api.list_models(search="oncology")))
    assert (plain.siblings, plain.card_data) == (None, None)
    full = next(iter(api.list_models(search="oncology", full=True)))
    assert {sibling.rfilename for sibling in full.siblings or []} == {*FILES, ".gitattributes"}
    card = next(iter(api.list_models(search="oncology", cardData=True)))
    assert card.card_data is not None
    assert card.card_data.license == "mit"
    some = next(iter(api.list_models(search="oncology", expand=["config", "likes"])))
    assert some.config is not None
    assert some.config["model_type"] == "llama"
    assert some.tags is None


@pytest.mark.parametrize(
    "content",
    [
        '["lastModified", -1, "2020-01-01T00:00:00", 1e400]',
        f'["lastModified", -1, "2020-01-01T00:00:00", {10**30}]',
        '["lastModified", -1, "0001-01-01T00:00:00+23:00", 1]',
        f'["lastModified", -1, {"[" * 9000}',
        '["likes", -1, 1, 1]',
        '["lastModified", 1, "2020-01-01T00:00:00", 1]',
        '["lastModified", -1, "x", 1]',
        '["lastModified", -1, 1, 1]',
        '["lastModified", -1, true, true]',
        '["lastModified", -1, "2020-01-01T00:00:00", true]',
        '["lastModified", "a\\u0000b", 1]',
        '["lastModified", "\\ud800", 1]',
        "[1, 2, 3, 4]",
        "null",
        "{}",
    ],
)
def test_a_cursor_that_nobody_gave_out_is_refused(shared: Shared, content: str) -> None:
    cursor = base64.urlsafe_b64encode(content.encode()).decode()
    assert shared.http().get("/api/models", params={"cursor": cursor}).status_code == 400


@pytest.mark.parametrize("sort", ["likes", "downloads", "trendingScore"])
@pytest.mark.parametrize("place", ["true", "1.5", '"2020-01-01T00:00:00"', "null", f"{10**20}"])
def test_a_cursor_of_another_kind_of_value_is_refused(shared: Shared, sort: str, place: str) -> None:
    cursor = base64.urlsafe_b64encode(f'["{sort}", -1, {place}, 1]'.encode()).decode()
    answer = shared.http().get("/api/models", params={"sort": sort, "cursor": cursor})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "sort=colour",
        "limit=0",
        "limit=many",
        "cursor=nonsense",
        "direction=3",
        "search=" + "+".join(map(str, range(30))),
    ],
)
def test_a_list_refuses_what_it_does_not_know(shared: Shared, query: str) -> None:
    answer = shared.http().get(f"/api/models?{query}")
    assert answer.status_code == 400
    assert answer.headers["x-error-message"].isprintable()


def test_folders_have_the_ids_that_git_gives_them(shared: Shared) -> None:
    # git write-tree says so of the same file
    deep = next(
        item for item in shared.api().list_repo_tree("bob/oncology", "onnx") if item.path == "onnx/deep"
    )
    assert getattr(deep, "tree_id", None) == "fb8696a07b95bb858244288072925b43876a5c50"


def test_expand_tells_which_commit_last_changed_a_file(shared: Shared) -> None:
    shared.create("bob/history")
    first = shared.put("bob/history", {"a.txt": b"1", "in/b.txt": b"1"}, title="First")
    second = shared.put("bob/history", {"a.txt": b"2"}, title="Second")
    items = {item.path: item for item in shared.api().list_repo_tree("bob/history", expand=True)}
    for path, commit in {"a.txt": second, "in": first}.items():
        last = items[path].last_commit
        assert last is not None
        assert (last.oid, last.title) == (commit.sha, commit.title)
    file = items["a.txt"]
    assert isinstance(file, RepoFile)
    assert file.security is not None
    assert file.security.safe


def test_a_large_tree_comes_in_pages_of_one_commit(shared: Shared) -> None:
    shared.create("bob/large", files={f"files/{number:04d}.txt": b"x" for number in range(1500)})
    pages = shared.http().get("/api/models/bob/large/tree/main?recursive=true")
    assert len(pages.json()) == 1000
    shared.put("bob/large", {"files/0000a.txt": b"x"})
    rest = shared.http().get(pages.links["next"]["url"])
    paths = [item["path"] for item in pages.json() + rest.json()]
    assert len(paths) == len(set(paths)) == 1500 + 2  # .gitattributes, and the folder
    assert "files/0000a.txt" not in paths
    expanded = shared.api().list_repo_tree("bob/large", "files", expand=True)
    assert len(list(islice(expanded, 150))) == 150  # its pages are shorter


def test_paths_that_are_no_paths_are_refused(shared: Shared) -> None:
    answer = shared.http().post("/api/models/bob/oncology/paths-info/main", content=b"paths=\xff")
    assert answer.status_code == 400


def test_history_comes_newest_first_and_in_pages(shared: Shared) -> None:
    shared.create("bob/long")
    shas = [shared.put("bob/long", {"a.txt": b"%d" % n}, title=f"<{n}>").sha for n in range(52)]
    commits = shared.api().list_repo_commits("bob/long", formatted=True)
    assert [commit.commit_id for commit in commits[:-1]] == shas[::-1]
    assert (commits[0].title, commits[0].formatted_title) == ("<51>", "&lt;51&gt;")
    assert commits[0].authors == ["ada"]
    older = shared.api().list_repo_commits("bob/long", revision=shas[1])
    assert [commit.commit_id for commit in older[:2]] == [shas[1], shas[0]]


def test_likes_count_once_and_can_be_taken_back(shared: Shared) -> None:
    http = shared.http("dan")
    for _ in range(2):
        assert http.post("/api/models/bob/oncology/like").status_code == 200
    assert shared.api().model_info("bob/oncology").likes == 1
    shared.api("dan").unlike("bob/oncology")
    assert shared.api().model_info("bob/oncology").likes == 0
    assert shared.http("dan:read").post("/api/models/bob/oncology/like").status_code == 403
    assert shared.http().post("/api/models/bob/oncology/like").status_code == 401


def test_whoami_tells_the_user_the_organisations_and_the_token(shared: Shared) -> None:
    me = shared.api("cleo:read").whoami()
    assert (me["type"], me["name"], me["fullname"], me["email"]) == (
        "user",
        "cleo",
        "Cleo",
        "cleo@example.org",
    )
    assert [(org["name"], org["roleInOrg"]) for org in me["orgs"]] == [("lab", "write")]
    token = me["auth"]["accessToken"]
    assert (token["displayName"], token["role"]) == ("read", "read")


@pytest.mark.parametrize(("kind", "name"), [("model", "gpt2"), ("space", "bob/oncology")])
def test_what_is_no_repository_is_not_there(shared: Shared, kind: str, name: str) -> None:
    with pytest.raises(RepositoryNotFoundError):
        shared.api("bob").repo_info(name, repo_type=kind)


# Who sees what: private and gated repositories, and requests for access.


READS = [
    *("/api/models/{}", "/api/models/{}/revision/main", "/api/models/{}/tree/main", "/api/models/{}/refs"),
    *("/api/models/{}/commits/main", "/api/models/{}/auth-check", "/api/models/{}/discussions"),
    *("/{}/resolve/main/config.json", "/{}/raw/main/config.json"),
]


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
    plain = {each.id for each in shared.api().list_models(gated=False)}
    assert plain & {"bob/oncology", "lab/manual", "lab/auto"} == {"bob/oncology"}


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
