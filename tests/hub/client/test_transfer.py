"""Fetching cards from a hub elsewhere: whole and verified, or not at all."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

import kcard
from kcard.api.hub import listed, login, pull
from kcard.errors import CardError, DamagedCard, HubError, KcardError, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST, Manifest
from tests.command import Kcard
from tests.hub.client.cards import rivers
from tests.hub.client.hostile import COMMIT, NAME, Endless, card, file_headers, hostile_hub, send, send_json
from tests.hub.server.attacks import Code
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """bob has published two versions of a card; stable is the first."""
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder) as shared, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(folder / "bob"))
        login(shared.url, shared.tokens["bob"])
        kcard.publish(rivers(folder / "one"), hub=shared.url, aliases=["stable"])
        kcard.publish(rivers(folder / "two", "The Rhine is long."), hub=shared.url)
        kcard.publish(rivers(folder / "one"), hub=shared.url, repository="bob/hidden", private=True)
        yield shared


def passages(folder: Path) -> str:
    return (folder / "passages.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [("", "long"), ("@v1", "Alps"), ("@v2", "long"), ("@stable", "Alps"), ("@main", "long")],
)
def test_a_version_a_branch_or_the_newest_is_fetched(
    shared: Shared, tmp_path: Path, revision: str, sentence: str
) -> None:
    folder = pull(f"bob/rivers{revision}", tmp_path / "card", hub=shared.url)
    assert sentence in passages(folder)
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    manifest = json.loads((folder / MANIFEST).read_text())
    assert files == {*manifest["files"], MANIFEST}


def test_without_a_folder_the_local_hub_gets_it(shared: Shared, home: Path) -> None:
    version = pull("bob/rivers@v1", hub=shared.url)
    assert version.reference == "rivers@v1"
    assert pull("bob/rivers@v1", hub=shared.url) == version
    assert pull("bob/rivers", hub=shared.url).number == 2
    assert Hub().get("rivers").number == 2
    assert not Hub().verify()
    assert not [path for path in (home / "downloads").iterdir() if path.is_dir()]


def test_somebody_elses_card_does_not_become_the_newest_of_ours(shared: Shared, tmp_path: Path) -> None:
    kcard.publish(rivers(tmp_path / "ours", "Our river is the Elbe."))
    with pytest.raises(HubError, match="another card named rivers"):
        pull("bob/rivers", hub=shared.url)
    assert Hub().get("rivers").number == 1
    assert "long" in passages(pull("bob/rivers", tmp_path / "theirs", hub=shared.url))


def test_a_folder_that_is_there_is_left_alone(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        pull("bob/rivers", tmp_path, hub=shared.url)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("reference", ["bob/nothing", "bob/rivers@v9", "bob/rivers@" + "0" * 40])
def test_what_is_not_there_is_an_unknown_card(shared: Shared, tmp_path: Path, reference: str) -> None:
    login(shared.url, shared.tokens["dan"])
    with pytest.raises(UnknownCard):
        pull(reference, tmp_path / "card", hub=shared.url)
    assert not (tmp_path / "card").exists()


@pytest.mark.parametrize("reference", ["rivers", "bob/rivers@", "a/b/c", "../x", ""])
def test_what_can_be_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(UsageError, match="namespace/name"):
        pull(reference, hub="http://127.0.0.1:9")


def test_a_private_card_is_fetched_by_its_owner_alone(shared: Shared, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="kcard login"):
        pull("bob/hidden", tmp_path / "card", hub=shared.url)
    login(shared.url, shared.tokens["dan"])
    with pytest.raises(UnknownCard):
        pull("bob/hidden", tmp_path / "card", hub=shared.url)
    login(shared.url, shared.tokens["bob"])
    assert pull("bob/hidden", tmp_path / "card", hub=shared.url).is_dir()


def test_a_repository_without_a_card_is_said_to_be_none(shared: Shared, home: Path, tmp_path: Path) -> None:
    shared.create("bob/plain")
    with pytest.raises(UnknownCard, match=r"kcard\.json is missing"):
        pull("bob/plain", tmp_path / "card", hub=shared.url)
    assert not [path for path in (home / "downloads").iterdir() if path.is_dir()]


def test_a_file_that_is_not_as_the_manifest_says_is_not_taken(
    shared: Shared, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    manifest = rivers(folder).manifest
    shared.create("bob/altered")
    files = {path: (folder / path).read_bytes() for path in (*manifest.files, MANIFEST)}
    shared.put("bob/altered", files | {"passages.jsonl": b'{"text": "The Rhine is in Peru."}\n'})
    with pytest.raises(DamagedCard, match=r"passages\.jsonl"):
        pull("bob/altered", tmp_path / "card", hub=shared.url)
    with pytest.raises(DamagedCard):
        pull("bob/altered", hub=shared.url)
    assert not (tmp_path / "card").exists()
    assert not [path for path in (home / "downloads").iterdir() if path.is_dir()]


def test_an_interrupted_pull_leaves_nothing_and_one_that_breaks_off_goes_on_with_what_it_lacks(
    shared: Shared, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Any = HfApi.hf_hub_download
    again: list[bool] = []

    def pull_until(cause: BaseException) -> None:
        def broken(self: HfApi, repo_id: str, filename: str, **options: Any) -> Any:
            path = whole(self, repo_id, filename, **options)
            if filename == "passages.jsonl":
                raise cause
            return path

        with monkeypatch.context() as cut:
            cut.setattr(HfApi, "hf_hub_download", broken)
            pull("bob/rivers", tmp_path / "card", hub=shared.url)

    with pytest.raises(KeyboardInterrupt):  # leaves nothing
        pull_until(KeyboardInterrupt())
    assert not [path for path in (home / "downloads").iterdir() if path.is_dir()]
    with pytest.raises(HubError, match=r"does not answer \(the network has gone\)"):
        pull_until(ConnectionResetError("the network has gone"))
    assert list(tmp_path.iterdir()) == [home]
    passages = next((home / "downloads").rglob("passages.jsonl"))
    stamp = passages.stat().st_mtime_ns

    def watched(self: HfApi, repo_id: str, filename: str, **options: Any) -> Any:
        path = whole(self, repo_id, filename, **options)
        again.append(passages.stat().st_mtime_ns != stamp)
        return path

    monkeypatch.setattr(HfApi, "hf_hub_download", watched)
    pull("bob/rivers", tmp_path / "card", hub=shared.url)
    assert not any(again)
    assert not passages.exists()


def test_cards_are_listed_and_plain_models_are_not(shared: Shared) -> None:
    api = shared.api("bob")
    api.create_repo("bob/model", exist_ok=True)
    api.create_commit("bob/model", [CommitOperationAdd("config.json", b"{}")], commit_message="A model")
    names = [card.repository for card in listed(shared.url)]
    assert "bob/rivers" in names
    assert {"bob/model", "bob/hidden"}.isdisjoint(names)
    assert [card.repository for card in listed(shared.url, "riv")] == ["bob/rivers"]


def test_the_command_fetches_what_kcard_ask_finds(
    shared: Shared, kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = kcard("pull", "bob/rivers", "--hub", shared.url, "--json").out
    assert json.loads(output)["name"] == "rivers"
    assert "rivers" in kcard("cards", "list").out
    assert "New folder" not in kcard("pull", "rivers").error
    assert "bob/rivers" in kcard("cards", "search", "riv", "--hub", shared.url).out
    monkeypatch.setenv("KCARD_HUB_URL", shared.url)
    assert kcard("pull", "rivers", tmp_path / "copy").out.endswith("copy\n")


# Pulling from a hub that attacks: nothing of a refused card reaches the folder or the local hub.


def pull_hostile(files: dict[str, bytes], folder: Path) -> Path:
    """Pull a card of these files into a folder of this one."""
    with hostile_hub(files=files) as hub:
        return pull(NAME, folder / "card", hub=hub.url)


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
    with pytest.raises(KcardError) as refused:
        pull_hostile(card({"passages.jsonl": b'{"text": "A."}\n', path: content}), tmp_path)
    assert path[:40] in str(refused.value).encode().decode("unicode_escape")
    assert not written(tmp_path / "card")
    assert not written(home / "downloads")
    assert not list(tmp_path.rglob("escaped*"))


def test_a_card_whose_index_claims_more_rows_than_it_has_passages_is_refused(
    home: Path, tmp_path: Path
) -> None:
    index = {"index/params.index.json": b'{"num_docs": 99999999999}'}
    with pytest.raises(CardError, match="claims 99999999999 rows, but the card has 1"):
        pull_hostile(card({"passages.jsonl": b'{"text": "A."}\n', **index}), tmp_path)
    assert not written(tmp_path / "card")
    assert not written(home / "downloads")


def test_nor_does_such_a_card_reach_the_local_hub_and_a_refused_name_is_never_requested(home: Path) -> None:
    with hostile_hub(files=card({".git/config": b"[core]"})) as hub, pytest.raises(CardError, match=r"\.git"):
        pull(NAME, hub=hub.url)
    assert not [url for _, url, _ in hub.requests if "git" in url]
    assert not written(home / "downloads")
    assert Hub().list() == []


@pytest.mark.parametrize(
    "paths",
    [("a.txt", "A.txt"), ("a/x.txt", "A/y.txt"), ("\u00e9.txt", "e\u0301.txt"), ("x.txt", "x.txt/y.txt")],
)
def test_paths_that_a_disk_takes_for_one_are_refused(tmp_path: Path, paths: tuple[str, str]) -> None:
    with pytest.raises(CardError, match="rename one"):
        pull_hostile(card(dict.fromkeys(paths, b"x")), tmp_path)
    assert not (tmp_path / "card").exists()


def test_a_symlink_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "card").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        pull_hostile(honest(tmp_path), tmp_path)
    assert not written(tmp_path / "elsewhere")
    assert (tmp_path / "card").is_symlink()


def test_an_honest_card_is_pulled_within_the_limits(tmp_path: Path) -> None:
    assert Manifest.read(pull_hostile(honest(tmp_path), tmp_path)).name == "rivers"


def test_a_description_without_end_and_too_many_files_are_refused(tmp_path: Path) -> None:
    long, many = card({}, description="x" * 20_000), card({f"{i}.txt": b"" for i in range(10_001)})
    for files, words in ((long, "description"), (many, "too many files")):
        with pytest.raises(CardError, match=words):
            pull_hostile(files, tmp_path)


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
