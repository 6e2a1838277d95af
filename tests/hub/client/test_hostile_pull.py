"""Pulling from a hub that attacks: nothing of a refused card reaches the folder or the local hub."""

import pickle
import re
from pathlib import Path

import pytest

from kcard.api.hub import pull
from kcard.errors import CardError, HubError, KcardError, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST, Manifest
from tests.hub.client.cards import rivers
from tests.hub.client.hostile import COMMIT, NAME, Endless, card, file_headers, hostile_hub, send, send_json
from tests.hub.server.attacks import Code


def written(folder: Path) -> list[str]:
    """What lies there, but for the empty folders and the lock of downloads."""
    paths = (path for path in folder.rglob("*") if not path.is_dir() and path.suffix != ".lock")
    return sorted(path.relative_to(folder).as_posix() for path in paths)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".git/config", b"[core]\n\tfsmonitor = touch owned\n"),
        ("sub/.git/hooks/pre-commit", b"#!/bin/sh\ntouch owned\n"),
        ("GIT~1/config", b"[core]"),
        (".bashrc", b"touch owned\n"),
        (".vscode/tasks.json", b"{}"),
        (".gitattributes", b"* filter=owned"),
        ("model.pkl", pickle.dumps(Code())),
        ("weights.safetensors", pickle.dumps(Code())),
        ("notes.txt", pickle.dumps(Code(), 0)),
        ("modeling.py", b"import os"),
        ("setup.sh", b"touch owned"),
        ("page.html", b"<script>"),
        ("config.json", b'{"auto_map": {"AutoModel": "modeling.Evil"}}'),
        ("tokenizer_config.json", b'{"a": {"auto\\u005fmap": {"AutoTokenizer": ["evil--t.T", null]}}}'),
        ("con.txt", b"x"),
        ("NUL.json", b"{}"),
        ("a/aux.txt", b"x"),
        ("a /b.txt", b"x"),
        ("a./b.txt", b"x"),
        ("a\u202etxt.md", b"x"),
        ("a" * 256 + ".txt", b"x"),
        ("KCARD.json", b"{}"),
        ("../escaped.txt", b"x"),
        ("a/../../escaped.txt", b"x"),
        ("/tmp/escaped.txt", b"x"),
        ("C:/escaped.txt", b"x"),
        ("a\\escaped.txt", b"x"),
        ("a//b.txt", b"x"),
    ],
)
def test_a_card_with_a_file_that_a_hub_must_not_send_is_refused_by_name(
    home: Path, tmp_path: Path, path: str, content: bytes
) -> None:
    files = card({"passages.jsonl": b'{"text": "A."}\n', path: content})
    with hostile_hub(files=files) as hub, pytest.raises(KcardError) as refused:
        pull(NAME, tmp_path / "card", hub=hub.url)
    assert path[:40] in str(refused.value).encode().decode("unicode_escape")
    assert not written(tmp_path / "card")
    assert not written(home / "downloads")
    assert not list(tmp_path.rglob("escaped*"))


def test_a_card_whose_index_claims_more_rows_than_it_has_passages_is_refused(
    home: Path, tmp_path: Path
) -> None:
    index = {"index/params.index.json": b'{"num_docs": 99999999999}'}
    files = card({"passages.jsonl": b'{"text": "A."}\n', **index})
    with hostile_hub(files=files) as hub, pytest.raises(CardError, match="of 99999999999 rows"):
        pull(NAME, tmp_path / "card", hub=hub.url)
    assert not written(tmp_path / "card")
    assert not written(home / "downloads")


@pytest.mark.parametrize(
    ("path", "content"), [(".git/config", b"[core]"), ("run.py", b"1"), ("config.json", b'{"auto_map": {}}')]
)
def test_nor_does_such_a_card_reach_the_local_hub(home: Path, path: str, content: bytes) -> None:
    with hostile_hub(files=card({path: content})) as hub, pytest.raises(CardError, match=re.escape(path)):
        pull(NAME, hub=hub.url)
    assert not written(home / "downloads")
    assert Hub().list() == []


@pytest.mark.parametrize(
    "paths",
    [("a.txt", "A.txt"), ("a/x.txt", "A/y.txt"), ("\u00e9.txt", "e\u0301.txt"), ("x.txt", "x.txt/y.txt")],
)
def test_paths_that_a_disk_takes_for_one_are_refused(tmp_path: Path, paths: tuple[str, str]) -> None:
    with (
        hostile_hub(files=card(dict.fromkeys(paths, b"x"))) as hub,
        pytest.raises(CardError, match="rename one"),
    ):
        pull(NAME, tmp_path / "card", hub=hub.url)
    assert not (tmp_path / "card").exists()


def test_a_symlink_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "card").symlink_to(tmp_path / "elsewhere")
    with hostile_hub(files=honest(tmp_path)) as hub, pytest.raises(UsageError, match="symbolic link"):
        pull(NAME, tmp_path / "card", hub=hub.url)
    assert not written(tmp_path / "elsewhere")
    assert (tmp_path / "card").is_symlink()


def test_a_name_that_is_refused_is_never_requested(tmp_path: Path) -> None:
    with hostile_hub(files=card({".git/config": b"[core]"})) as hub, pytest.raises(CardError, match=r"\.git"):
        pull(NAME, tmp_path / "card", hub=hub.url)
    assert not [url for _, url, _ in hub.requests if "git" in url]


def test_an_honest_card_is_pulled_within_the_limits(tmp_path: Path) -> None:
    with hostile_hub(files=honest(tmp_path)) as hub:
        folder = pull(NAME, tmp_path / "card", hub=hub.url)
    assert Manifest.read(folder).name == "rivers"


def test_a_description_without_end_and_too_many_files_are_refused(tmp_path: Path) -> None:
    long, many = card({}, description="x" * 20_000), card({f"{i}.txt": b"" for i in range(10_001)})
    for files, words in ((long, "description"), (many, "too many files")):
        with hostile_hub(files=files) as hub, pytest.raises(CardError, match=words):
            pull(NAME, tmp_path / "card", hub=hub.url)


@pytest.mark.parametrize("path", [MANIFEST, "notes.txt"])
def test_a_file_larger_than_it_may_be_is_not_read_to_its_end(tmp_path: Path, home: Path, path: str) -> None:
    with hostile_hub(files=card({"notes.txt": b"short"})) as hub:
        hub.answers[f"/{NAME}/resolve/{COMMIT}/{path}"] = endless = Endless()
        with pytest.raises(HubError, match="more than"):
            pull(NAME, tmp_path / "card", hub=hub.url)
    assert endless.sent < 32
    assert not written(home / "downloads")


@pytest.mark.parametrize(
    ("size", "words"), [(1 << 60, "free"), (-1, "missing"), ("5", "missing"), (None, "missing")]
)
def test_a_size_that_can_not_be_is_refused_before_the_download(
    tmp_path: Path, size: object, words: str
) -> None:
    listed = [{"type": "file", "path": "notes.txt", "size": size, "oid": "0" * 40}]
    with hostile_hub(files=card({"notes.txt": b"short"})) as hub:
        hub.answers[f"/api/models/{NAME}/tree/{COMMIT}"] = lambda handler: send_json(handler, listed)
        with pytest.raises(KcardError, match=words):
            pull(NAME, tmp_path / "card", hub=hub.url)
        assert not [url for _, url, _ in hub.requests if "notes" in url]


@pytest.mark.parametrize("name", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize("value", ["../../../../escaped", "/tmp/escaped", "..\\..\\escaped", "C:escaped"])
def test_headers_that_would_name_a_file_elsewhere_are_refused(
    tmp_path: Path, home: Path, name: str, value: str
) -> None:
    headers = file_headers(b"short") | {name: value}
    with hostile_hub(files=card({"notes.txt": b"short"})) as hub:
        path = f"/{NAME}/resolve/{COMMIT}/notes.txt"
        hub.answers[path] = lambda handler: send(handler, b"short", headers=headers)
        with pytest.raises(HubError):
            pull(NAME, tmp_path / "card", hub=hub.url)
    assert not written(home / "downloads")
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_commit_that_is_none_is_refused(tmp_path: Path) -> None:
    main = {"name": "v1", "ref": "refs/tags/v1", "targetCommit": "../../escaped"}
    with hostile_hub(files=card({})) as hub:
        refs = {"branches": [], "converts": [], "tags": [main]}
        hub.answers[f"/api/models/{NAME}/refs"] = lambda handler: send_json(handler, refs)
        with pytest.raises(HubError, match="no commit"):
            pull(NAME, tmp_path / "card", hub=hub.url)
    assert len(hub.requests) == 1


def honest(folder: Path) -> dict[str, bytes]:
    folder_of_card = rivers(folder / "made")
    return {
        path: (folder_of_card.folder / path).read_bytes()
        for path in (*folder_of_card.manifest.files, MANIFEST)
    }
