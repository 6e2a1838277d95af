"""The lines of a commit: whatever comes, they are values or a refusal."""

import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from kcard.hub.errors import Invalid, Refused, TooLarge
from kcard.hub.server.routes import commit
from kcard.hub.server.routes.commit import Header, Inline, Large, Line, read_lines
from kcard.hub.values import Delete, DeleteFolder
from tests.hub.shared_hub import Shared

HEADER = {"key": "header", "value": {"summary": "Title", "description": "More", "parentCommit": "a" * 40}}
FILE = {"key": "file", "value": {"path": "a", "content": "AQI=", "encoding": "base64"}}


def parsed(*values: object, largest: int = 1_000) -> list[Line]:
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    return list(read_lines(io.BytesIO(text), largest))


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
        Header("Title", "More", "a" * 40),
        Inline("a", b"\1\2"),
        Inline("b", "ä".encode()),
        Large("c", sha256, 5),
        Large("d", sha256, None),
        Delete("e"),
        DeleteFolder("f"),
    ]


def test_the_last_line_needs_no_end() -> None:
    assert len(list(read_lines(io.BytesIO(json.dumps(HEADER).encode()), 10))) == 1


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
        list(read_lines(stream, 1_000))
    assert stream.taken < 20_000


def test_a_file_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    def file(size: int) -> dict[str, object]:
        return {"key": "file", "value": {"path": "a", "content": "a" * size}}

    assert len(parsed(HEADER, file(1_000))) == 2
    with pytest.raises(TooLarge, match="1000 bytes"):
        parsed(HEADER, file(1_001))


def test_there_are_not_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "MOST_LINES", 3)
    assert len(parsed(HEADER, FILE, FILE, FILE)) == 4
    with pytest.raises(TooLarge):
        parsed(HEADER, FILE, FILE, FILE, FILE)


@pytest.mark.parametrize("size", [-1, 1.5, "5", True, [], {}])
def test_a_size_is_a_number_of_bytes(size: object) -> None:
    with pytest.raises(Invalid):
        parsed(HEADER, {"key": "lfsFile", "value": {"path": "c", "oid": "0" * 64, "size": size}})


@pytest.mark.parametrize("oid", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", 7, None])
def test_an_oid_is_a_sha256(oid: object) -> None:
    with pytest.raises(Invalid):
        parsed(HEADER, {"key": "lfsFile", "value": {"path": "c", "oid": oid, "size": 1}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["header", "file", "lfsFile", "deletedFile", "deletedFolder", "other"])
FIELDS = st.sampled_from(["path", "content", "encoding", "oid", "algo", "size", "summary", "parentCommit"])
ODD = st.fixed_dictionaries({"key": KEYS | JSON, "value": st.dictionaries(FIELDS, JSON) | JSON})


@given(st.lists(ODD, max_size=4))
def test_odd_lines_are_refused_and_break_nothing(lines: list[object]) -> None:
    try:
        parsed(HEADER, *lines)
    except Refused:
        return


@given(st.binary(max_size=300))
def test_noise_is_refused_and_breaks_nothing(noise: bytes) -> None:
    with pytest.raises(Refused):
        list(read_lines(io.BytesIO(noise), 100))


# Files added, copied and deleted by the real client, and what a commit promises.


@pytest.fixture
def name(shared: Shared, request: pytest.FixtureRequest) -> str:
    """An empty repository of the test's own."""
    name = f"bob/{request.node.name[5:60].strip('_')}"
    shared.create(name)
    return name


def tensors(value: float = 1.0) -> bytes:
    return save({"weight": np.full((64, 64), value, dtype=np.float32)})


def files(shared: Shared, name: str) -> set[str]:
    return set(shared.api("bob").list_repo_files(name)) - {".gitattributes"}


def test_a_folder_is_uploaded_in_one_commit(shared: Shared, name: str, tmp_path: Path) -> None:
    for path, content in {
        "README.md": b"---\nlicense: mit\n---\n",
        "config.json": b"{}",
        "model.safetensors": tensors(),
        "logs/run.txt": b"noise",
        ".gitignore": b"logs/*\n",
        "empty.txt": b"",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    before = len(shared.api().list_repo_commits(name))
    shared.api("bob").upload_folder(repo_id=name, folder_path=tmp_path)
    expected = {"README.md", "config.json", "model.safetensors", "logs/run.txt", ".gitignore", "empty.txt"}
    assert files(shared, name) == expected
    assert len(shared.api().list_repo_commits(name)) == before + 1
    assert "license:mit" in (shared.api().model_info(name).tags or [])


def test_a_commit_with_one_bad_line_does_nothing(shared: Shared, name: str) -> None:
    before = shared.api().model_info(name).sha
    answer = send(shared, name, file("good.json", "{}"), file("bad.pkl", "x"))
    assert answer.status_code == 400
    assert shared.api().model_info(name).sha == before


def test_a_title_is_one_line(shared: Shared, name: str) -> None:
    lines: list[dict[str, object]] = [
        {"key": "header", "value": {"summary": "two\r\nlines", "description": "a\nb"}},
        file("a.json", "1"),
    ]
    assert post(shared, name, lines).status_code == 200
    commit = shared.api().list_repo_commits(name)[0]
    assert (commit.title, commit.message) == ("two lines", "a\nb")


def test_the_commits_author_is_who_asked(shared: Shared) -> None:
    shared.create("lab/authored")
    shared.api("cleo").upload_file(path_or_fileobj=b"1", path_in_repo="a.json", repo_id="lab/authored")
    assert shared.api().list_repo_commits("lab/authored")[0].authors == ["cleo"]


def test_large_texts_are_asked_for_as_large_files(shared: Shared, name: str) -> None:
    sizes = {"small.json": 1_000, "large.json": 5_000_000, "model.safetensors": 100, "none.txt": 0}
    coming = [{"path": path, "size": size, "sample": ""} for path, size in sizes.items()]
    answer = shared.http("bob").post(f"/api/models/{name}/preupload/main", json={"files": coming})
    modes = {item["path"]: item["uploadMode"] for item in answer.json()["files"]}
    assert modes == {
        "small.json": "regular",
        "large.json": "lfs",
        "model.safetensors": "lfs",
        "none.txt": "regular",
    }


def test_many_small_texts_are_never_more_than_a_commit_may_be(shared: Shared, name: str) -> None:
    coming = [{"path": f"{number}.txt", "size": 3_000_000 + number} for number in range(100)]
    answer = shared.http("bob").post(f"/api/models/{name}/preupload/main", json={"files": coming})
    regular = [item for item in answer.json()["files"] if item["uploadMode"] == "regular"]
    assert 1 <= len(regular) <= 5


def test_257_files_are_too_many_for_one_preupload(shared: Shared, name: str) -> None:
    coming = [{"path": f"{number}.txt", "size": 1} for number in range(257)]
    answer = shared.http("bob").post(f"/api/models/{name}/preupload/main", json={"files": coming})
    assert answer.status_code == 400


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


def file(path: str, content: str) -> dict[str, object]:
    return {"key": "file", "value": {"path": path, "content": content}}


def send(shared: Shared, name: str, *lines: dict[str, object], query: str = "") -> httpx.Response:
    header: dict[str, object] = {"key": "header", "value": {"summary": "raw", "description": ""}}
    return post(shared, name, [header, *lines], query)


def post(shared: Shared, name: str, lines: list[dict[str, object]], query: str = "") -> httpx.Response:
    body = "\n".join(map(json.dumps, lines)).encode()
    return shared.http("bob").post(f"/api/models/{name}/commit/main{query}", content=body)
