"""Repositories, commits and versions as the real client makes them, and what a commit promises."""

import io
import json
from collections.abc import Mapping

import pytest
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RepositoryNotFoundError
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.errors import Invalid, Refused, TooLarge
from kcard.hub.server.routes import commit_lines
from kcard.hub.server.routes.commit_lines import Header, Inline, Large, Line, read_lines
from kcard.hub.values import Delete, DeleteFolder
from tests.hub.server.attacks import preupload
from tests.hub.shared_hub import Shared, status
from tests.hub.stand import sealed


@pytest.mark.parametrize(
    ("who", "name", "more", "status"),
    [
        ("dan", "mine", {}, 200),
        ("cleo", "by-cleo", {"organization": "LAB"}, 200),
        ("dan", "x", {"organization": "lab"}, 403),
        ("bob:read", "x", {"organization": "lab"}, 403),
        ("dan", "x", {"organization": "bob"}, 403),
        ("dan", "x", {"organization": "nobody-of-that-name"}, 403),
        (None, "x", {}, 401),
        ("bob", "x", {"type": "space", "sdk": "gradio"}, 501),
    ],
)
def test_repositories_are_made_in_namespaces_where_one_may_write(
    shared: Shared, who: str | None, name: str, more: dict[str, str], status: int
) -> None:
    answer = shared.http(who).post("/api/repos/create", json={"name": name, **more})
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["name"] == f"{more.get('organization', str(who)).lower()}/{name}"


@pytest.mark.parametrize("wish", [{"visibility": "private"}, {"private": True}])
def test_a_private_repository_is_seen_by_its_owner_only(shared: Shared, wish: dict[str, object]) -> None:
    name = f"hidden-{next(iter(wish))}"
    answer = shared.http("bob").post("/api/repos/create", json={"name": name, "organization": None, **wish})
    assert answer.status_code == 200
    assert shared.api("bob").model_info(f"bob/{name}").private
    with pytest.raises(RepositoryNotFoundError):
        shared.api("dan").model_info(f"bob/{name}")


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


def test_a_repository_does_not_move_to_a_foreign_namespace(shared: Shared) -> None:
    api = shared.api("bob")
    shared.create("bob/stays")
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
    older = shared.http("bob").put("/api/models/bob/set/settings", json={"private": True})
    assert older.json()["private"] is True
    assert shared.http("cleo").put("/api/models/bob/set/settings", json={"private": False}).status_code == 404


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


# The lines of a commit: whatever comes, they are values or a refusal.


HEADER = {"key": "header", "value": {"summary": "Title", "description": "More", "parentCommit": "a" * 40}}
FILE = {"key": "file", "value": {"path": "a", "content": "AQI=", "encoding": "base64"}}


def read(text: bytes, max_bytes: int = 1_000) -> list[Header | Line]:
    header, lines = read_lines(io.BytesIO(text), max_bytes)
    return [header, *lines]


def parsed(*values: object) -> list[Header | Line]:
    return read(b"\n".join(json.dumps(value).encode() for value in values))


def test_every_kind_of_line_becomes_a_value() -> None:
    sha256 = "0" * 64
    values = parsed(
        HEADER,
        FILE,
        {"key": "file", "value": {"path": "b", "content": "ä"}},
        {"key": "lfsFile", "value": {"path": "c", "algo": "sha256", "oid": sha256, "size": 5}},
        {"key": "lfsFile", "value": {"path": "d", "oid": sha256}},
        {"key": "deletedFile", "value": {"path": "e"}},
        {"key": "deletedFolder", "value": {"path": "f/"}},
    )
    assert values == [
        Header(summary="Title", description="More", parentCommit="a" * 40),
        Inline("a", b"\1\2"),
        Inline("b", "ä".encode()),
        Large(path="c", oid=sha256, size=5),
        Large(path="d", oid=sha256),
        Delete("e"),
        DeleteFolder("f"),
    ]


def test_lines_are_read_one_at_a_time_and_no_longer_than_allowed() -> None:
    class Endless(io.BytesIO):
        taken = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert size > 0
            self.taken += size
            return b" " * size

    stream = Endless()
    with pytest.raises(TooLarge):
        read_lines(stream, 1_000)
    assert stream.taken < 20_000


def test_a_file_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    def file(size: int) -> dict[str, object]:
        return {"key": "file", "value": {"path": "a", "content": "a" * size}}

    assert len(parsed(HEADER, file(1_000))) == 2
    with pytest.raises(TooLarge, match="1000 bytes"):
        parsed(HEADER, file(1_001))


def test_there_are_not_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_lines, "MAX_OPERATIONS", 3)
    assert len(parsed(HEADER, FILE, FILE, FILE)) == 4
    with pytest.raises(TooLarge):
        parsed(HEADER, FILE, FILE, FILE, FILE)


@pytest.mark.parametrize(
    "value",
    [
        *[{"size": -1}, {"size": 1.5}, {"size": "5"}, {"size": True}, {"size": []}, {"size": {}}],
        *[{"oid": ""}, {"oid": "0" * 63}, {"oid": "0" * 65}, {"oid": "G" * 64}, {"oid": "A" * 64}],
        *[{"oid": "0" * 64 + "\n"}, {"oid": 7}, {"oid": None}, {"path": None}, {"path": 1}, {"path": []}],
        {"algo": "md5"},
    ],
)
def test_a_large_file_has_a_path_a_sha256_and_a_number_of_bytes(value: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        parsed(HEADER, {"key": "lfsFile", "value": {"path": "c", "oid": "0" * 64, "size": 1, **value}})


@given(st.binary(max_size=300))
def test_noise_is_refused_and_breaks_nothing(noise: bytes) -> None:
    with pytest.raises(Refused):
        read(noise)


# Files added, copied and deleted by the real client, and what a commit promises.


@pytest.fixture
def name(shared: Shared, request: pytest.FixtureRequest) -> str:
    """An empty repository of the test's own."""
    name = f"bob/{request.node.name[5:60].strip('_')}"
    shared.create(name)
    return name


def test_the_commits_author_is_who_asked(shared: Shared) -> None:
    shared.create("lab/authored")
    shared.api("cleo").upload_file(path_or_fileobj=b"1", path_in_repo="a.json", repo_id="lab/authored")
    assert shared.api().list_repo_commits("lab/authored")[0].authors == ["cleo"]


def test_small_texts_are_sent_in_the_commit_as_far_as_there_is_room(shared: Shared, name: str) -> None:
    def regular(sizes: Mapping[str, int]) -> list[str]:
        files = preupload(shared, "bob", name, sizes.items()).json()["files"]
        return [item["path"] for item in files if item["uploadMode"] == "regular"]

    sizes = {"small.json": 1_000, "large.json": 5_000_000, "model.safetensors": 100, "none.txt": 0}
    assert regular(sizes) == ["small.json", "none.txt"]
    assert 1 <= len(regular({f"{number}.txt": 3_000_000 + number for number in range(100)})) <= 5
    too_many = preupload(shared, "bob", name, [(f"{number}.txt", 1) for number in range(257)])
    assert too_many.status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b'{"key": "header"}',
        b'{"key": "header", "value": {}}',
        b'{"key": "header", "value": {"summary": ""}}',
        b'{"key": "header", "value": {"summary": "x"}}',
        b'{"key": "file", "value": {"path": "a.json", "content": "1"}}',
        b'{"key": "header", "value": {"summary": "x"}}\n{"key": "header", "value": {"summary": "x"}}',
        b'{"key": "header", "value": {"summary": "x"}}\n{"key": "else", "value": {}}',
        b'{"key": "header", "value": {"summary": "x"}}\n{"key": "file", "value": {"path": 1, "content": "1"}}',
        b'{"key": "header", "value": {"summary": "x"}}\n'
        b'{"key": "file", "value": {"path": "a.json", "content": "?", "encoding": "base64"}}',
        b'{"key": "header", "value": {"summary": "x", "parentCommit": "main"}}',
        b'{"key": "header", "value": {"summary": "\\ud800"}}',
        b'{"key": "header", "value": {"summary": "a\\u0000b"}}\n'
        b'{"key": "file", "value": {"path": "a.json", "content": "1"}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_commit_is_refused(shared: Shared, body: bytes) -> None:
    if not shared.api("bob").repo_exists("bob/odd"):
        shared.create("bob/odd")
    answer = shared.http("bob").post("/api/models/bob/odd/commit/main", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]


# A tag on a card publishes a version of it, wholly or not at all.


def put_card(shared: Shared, name: str, config: bytes, **more: bytes) -> None:
    """Commit a card; another config is another card."""
    shared.put(name, sealed({"config.json": config} | more, kind="retrieval"))


def test_a_published_tag_neither_moves_nor_goes(shared: Shared, name: str) -> None:
    api = shared.api("bob")
    put_card(shared, name, b"{}")
    api.create_tag(name, tag="v1")
    first = shared.hub.registry.get(name)
    put_card(shared, name, b"[2]")
    with pytest.raises(HfHubHTTPError) as error:
        api.create_tag(name, tag="v1")
    assert status(error) == 409
    for who in ("bob", "bob:admin"):
        with pytest.raises(HfHubHTTPError) as error:
            shared.api(who).delete_tag(name, tag="v1")
        assert status(error) == 403
    api.create_tag(name, tag="v2")
    assert [version.number for version in shared.hub.registry.versions(name)] == [1, 2]
    assert shared.hub.registry.versions(name)[0] == first
    shared.api("ada:admin").delete_tag(name, tag="v1")  # an administrator of the hub
    assert [version.number for version in shared.hub.registry.versions(name)] == [2]


def test_an_index_of_more_rows_than_there_are_passages_is_not_published(shared: Shared, name: str) -> None:
    api = shared.api("bob")
    more = {"passages.jsonl": b'{"text": "A."}\n', "index/params.index.json": b'{"num_docs": 99999999999}'}
    put_card(shared, name, b"{}", **more)
    with pytest.raises(
        BadRequestError, match=r"params\.index\.json claims 99999999999 rows, but the card has 1"
    ):
        api.create_tag(name, tag="v1")
    assert api.list_repo_refs(name).tags == []


@pytest.mark.parametrize("leave", ["delete", "rename"])
def test_a_published_tag_is_not_replaced_by_another_card(shared: Shared, leave: str) -> None:
    api, name = shared.api("bob"), f"bob/after-{leave}"
    shared.create(name)
    put_card(shared, name, b"{}")
    api.create_tag(name, tag="v1")
    if leave == "delete":
        api.delete_repo(name)
    else:
        api.move_repo(name, "bob/renamed")
    api.create_repo(name)
    put_card(shared, name, b"[1]")
    message = rf"{name}@v1 was the card [0-9a-f]{{12}}…, and published tags are permanent"
    for create in (api.create_tag, lambda repo, tag: api.create_branch(repo, branch=tag)):
        with pytest.raises(HfHubHTTPError, match=message) as error:
            create(name, tag="v1")
        assert status(error) == 409
    api.create_tag(name, tag="v2")
    assert [version.number for version in shared.hub.registry.versions(name)] == [2]
    if leave == "rename":  # nor may it come back to a name that has another card under the same tag
        api.create_tag(name, tag="v3")
        api.move_repo(name, "bob/away")
        put_card(shared, "bob/renamed", b"[3]")
        api.create_tag("bob/renamed", tag="v3")
        with pytest.raises(HfHubHTTPError, match=rf"{name}@v3 was the card"):
            api.move_repo("bob/renamed", name)


def test_the_same_card_is_published_again_under_the_tag_that_it_had(shared: Shared, name: str) -> None:
    api = shared.api("bob")
    for _ in range(2):
        api.create_repo(name, exist_ok=True)
        put_card(shared, name, b"{}")
        api.create_tag(name, tag="v1")
        assert [version.number for version in shared.hub.registry.versions(name)] == [1]
        api.delete_repo(name)
