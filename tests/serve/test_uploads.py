"""Files that are uploaded to be asked: by whom, under which names, and what remains of those that can't be read."""

import asyncio
import errno
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from kcard.api.corpus_card import index_corpus
from kcard.config import settings
from kcard.errors import CardError, UsageError
from kcard.integrators.options import AskOptions
from kcard.serve import uploads as uploading
from kcard.serve.app import FILE_NAME, create_app
from kcard.serve.auth import Keys, add_key
from kcard.serve.options import EndpointOptions
from kcard.serve.pipelines import MAX_OPEN_UPLOADS
from kcard.serve.run import is_own_computer, serve
from kcard.serve.schema import ApiError
from kcard.serve.service import Service
from kcard.serve.uploads import MAX_UPLOAD_BYTES, UploadedFiles, safe_name
from tests.serve.conftest import answer, ask, embedded_service, error, running

RENT = b"# The hall\n\nThe rent of the hall is 90 euros a day.\n"
KEYS = b"# The keys\n\nWanda Ruiz keeps the keys of the hall.\n"
QUESTION = "What is the rent of the hall?"


def make_service(home: Path) -> Service:
    return embedded_service(home, cache=10, uploads=UploadedFiles())


def ask_file(url: str, card: str, question: str = QUESTION, **headers: str) -> httpx.Response:
    return ask(url, question, f"embedded:{card}", **headers)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an endpoint without any card that is published."""
    with running(create_app(make_service(tmp_path_factory.mktemp("no-cards")))) as address:
        yield address


def upload(url: str, name: str, content: bytes | Iterator[bytes], **headers: str) -> httpx.Response:
    return httpx.post(
        f"{url}/kcard/files", content=content, headers={FILE_NAME: quote(name), **headers}, timeout=60
    )


def stored() -> list[str]:
    """All files of all holders."""
    folder = settings().home / "uploads"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def drafts() -> list[str]:
    folder = settings().drafts
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_uploaded_and_asked_alone_and_again_after_it_has_changed(url: str) -> None:
    uploaded = {"card": "draft:the-hall", "file": "The hall.md", "passages": 1}
    assert upload(url, "The hall.md", RENT).json() == uploaded
    reply = ask_file(url, "draft:the-hall")
    assert answer(reply) == "90 euros"
    (passage,) = reply.json()["kcard"]["passages"]
    assert (passage["card"], passage["source"]["file"]) == ("the-hall", "The hall.md")
    assert answer(ask_file(url, "draft:the-hall", "Who keeps the keys of the hall?")) == "I don't know."
    uploaded["passages"] = 2
    assert upload(url, "The hall.md", RENT + KEYS).json() == uploaded
    assert answer(ask_file(url, "draft:the-hall", "Who keeps the keys of the hall?")) == "Wanda Ruiz"
    assert httpx.get(f"{url}/kcard").json()["uploads"] == {"max_bytes": MAX_UPLOAD_BYTES, "files": [uploaded]}
    assert stored() == ["anonymous/The hall.md"]
    assert drafts() == [".the-hall.corpus.json", "the-hall"]


def test_the_same_bytes_are_not_indexed_again_and_come_from_the_cache(url: str) -> None:
    upload(url, "hall.md", RENT)
    stamp = (settings().drafts / "hall" / "kcard.json").stat().st_mtime_ns
    answer(ask_file(url, "draft:hall"))
    assert upload(url, "hall.md", RENT).status_code == 200
    assert (settings().drafts / "hall" / "kcard.json").stat().st_mtime_ns == stamp
    assert ask_file(url, "draft:hall").headers["X-Kcard-Cache"] == "hit"


def test_more_files_than_are_held_open_are_all_answered(url: str) -> None:
    for number in range(MAX_OPEN_UPLOADS + 1):
        upload(url, f"hall{number}.md", RENT.replace(b"90", b"9%d" % number))
        assert answer(ask_file(url, f"draft:hall{number}")) == f"9{number} euros"
    assert answer(ask_file(url, "draft:hall0")) == "90 euros"


def test_uploaded_files_are_not_listed_as_models_and_other_drafts_are_not_asked(
    url: str, tmp_path: Path
) -> None:
    upload(url, "hall.md", RENT)
    models = [model["id"] for model in httpx.get(f"{url}/models").json()["data"]]
    assert [name for name in models if "hall" in name] == []
    (tmp_path / "own.md").write_bytes(KEYS)
    assert index_corpus(tmp_path / "own.md") == "draft:own"
    for card in ("draft:own", "own", "hall", "draft:../drafts/hall", "draft:", "draft:Hall"):
        assert error(ask_file(url, card))["code"] == "model_not_found"


def test_a_draft_that_was_made_anew_from_something_else_is_not_asked(url: str) -> None:
    upload(url, "hall.md", RENT)
    record = settings().drafts / ".hall.corpus.json"
    before = record.read_bytes()
    (settings().home / "secret.md").write_bytes(KEYS)
    import kcard

    kcard.train(settings().home / "secret.md", name="hall", kind="retrieval", exam=False)
    record.write_bytes(before)
    assert ask_file(url, "draft:hall").status_code == 404


def test_the_draft_of_another_file_is_left_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "hall.md").write_bytes(KEYS)
    index_corpus(tmp_path / "hall.md")
    card = upload(url, "hall.md", RENT).json()["card"]
    assert card.startswith("draft:hall-")
    assert answer(ask_file(url, card)) == "90 euros"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("hall.exe", RENT, "hall.exe can't be read: choose a text, PDF, office, web or data file"),
        ("hall.md.gz", RENT, "hall.md.gz can't be read"),
        ("hall.txt", b"\x80 is no text", "hall.txt:1 is not UTF-8 text"),
        ("hall.pdf", RENT, "hall.pdf can't be read as PDF"),
        ("hall.txt", b"", "hall.txt"),
        ("../..", RENT, "can't be used: rename it"),
    ],
)
def test_a_file_that_can_not_be_read_is_told_in_one_line_and_leaves_nothing(
    url: str, name: str, content: bytes, reason: str
) -> None:
    reply = upload(url, name, content)
    assert reply.status_code == 400
    assert reason in error(reply)["message"]
    assert "\n" not in error(reply)["message"]
    assert str(settings().home) not in reply.text
    assert (stored(), drafts()) == ([], [])


def test_if_the_next_version_can_not_be_read_the_earlier_one_answers(url: str) -> None:
    upload(url, "hall.txt", RENT)
    assert upload(url, "hall.txt", b"\x80 is no text").status_code == 400
    assert stored() == ["anonymous/hall.txt"]
    assert answer(ask_file(url, "draft:hall")) == "90 euros"


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_file_that_is_too_large_is_cut_off(url: str, is_declared: bool) -> None:
    part = b"a" * (1 << 20)
    count = MAX_UPLOAD_BYTES // len(part) + 1
    content = part * count if is_declared else (part for _ in range(count))
    try:
        reply = upload(url, "hall.txt", content)
    except httpx.WriteError:  # refused before all of it was sent
        pass
    else:
        assert reply.status_code == 413
    assert stored() == []


def test_an_upload_that_ends_in_the_middle_leaves_nothing(url: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield RENT
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload(url, "hall.md", pieces())
    assert upload(url, "other.md", RENT).status_code == 200
    assert stored() == ["anonymous/other.md"]


def test_a_full_disk_is_told_and_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(settings().home / "secret"))

    def fail(_: Path) -> str:
        raise CardError("the card can't be written") from full

    def fail_at_once(_: Path) -> None:
        raise full

    for name, function in (("index_corpus", fail), ("_create", fail_at_once)):
        with monkeypatch.context() as patch:
            patch.setattr(uploading, name, function)
            reply = upload(url, "hall.md", RENT)
        assert (reply.status_code, error(reply)["code"]) == (507, "disk_full")
        assert error(reply)["message"] == "the disk of the endpoint has no room for this file"
        assert stored() == []


def test_a_holder_has_so_many_files_and_may_replace_them(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "MAX_FILES", 1)
    upload(url, "hall.md", RENT)
    assert (
        error(upload(url, "other.md", RENT))["message"]
        == "1 files are here already: the operator can delete some"
    )
    assert upload(url, "hall.md", KEYS).status_code == 200


def test_one_file_is_indexed_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def wait(corpus: Path) -> str:
        begun.set()
        assert goes_on.wait(30)
        return index_corpus(corpus)

    monkeypatch.setattr(uploading, "index_corpus", wait)
    replies: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: replies.append(upload(url, "hall.md", RENT)))
    thread.start()
    assert begun.wait(30)
    reply = upload(url, "other.md", RENT)
    goes_on.set()
    thread.join(60)
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
    assert replies[0].status_code == 200
    assert stored() == ["anonymous/hall.md"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        (r"C:\Users\ada\report.pdf", "report.pdf"),
        (".bashrc", "bashrc"),
        ("a\x00b\n\x1b[2Jc\u202e.txt", "ab[2Jc.txt"),
        ("what? <now>: \"a|b*\".md", "what now ab.md"),
        ("CON.txt", "_CON.txt"),
        ("nul", "_nul"),
        ("report.pdf. ", "report.pdf"),
        ("отчёт.pdf", "отчёт.pdf"),
        ("é" * 300 + ".md", "é" * 98 + ".md"),
        ("templates.tsv", "templates.tsv"),
        *((name, None) for name in ("", "..", "a/..", "\x00", "/", " . ", "a." + "b" * 300)),
    ],
)  # fmt: skip
def test_a_name_is_reduced_to_that_of_a_visible_file_in_its_folder(name: str, safe: str | None) -> None:
    if safe is None:
        with pytest.raises(ApiError, match="rename it"):
            safe_name(name)
    else:
        assert safe_name(name) == safe


def test_a_hostile_name_of_a_file_or_holder_is_stored_in_the_folder_of_its_holder(url: str) -> None:
    async def content() -> Any:
        yield RENT

    assert upload(url, "../../../drafts/x\x00.md", RENT).json()["file"] == "x.md"
    asyncio.run(UploadedFiles().add("../..", "hall.md", content()))
    assert stored() == ["%2E%2E%2F%2E%2E/hall.md", "anonymous/x.md"]


def test_a_page_elsewhere_can_not_upload(tmp_path: Path) -> None:
    """Its browser sends the header only if CORS allows it, which it doesn't even for the pages that may ask."""
    origin = "https://pages.example"
    with running(create_app(make_service(tmp_path), origins=[origin])) as url:
        path = f"{url}/kcard/files"
        asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        asking["Access-Control-Request-Headers"] = FILE_NAME.lower()
        assert httpx.options(path, headers=asking).status_code == 400
        for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
            reply = httpx.post(path, content=RENT, headers={"Origin": origin, "Content-Type": kind})
            assert reply.status_code == 400
            assert FILE_NAME in error(reply)["message"]
        reply = upload(url, "hall.md", RENT, Host="attacker.example")
        assert error(reply)["code"] == "unknown_host"
    assert stored() == []


def test_without_keys_other_machines_neither_upload_nor_ask(url: str) -> None:
    upload(url, "hall.md", RENT)
    elsewhere = {"X-Forwarded-For": "192.0.2.1"}
    reply = upload(url, "other.md", RENT, **elsewhere)
    assert (reply.status_code, error(reply)["code"]) == (403, "upload_refused")
    assert ask_file(url, "draft:hall", **elsewhere).status_code == 404
    assert httpx.get(f"{url}/kcard", headers=elsewhere).json()["uploads"] is None


def test_where_uploads_are_off_nobody_uploads_or_asks(tmp_path: Path, url: str) -> None:
    upload(url, "hall.md", RENT)
    with running(create_app(embedded_service(tmp_path))) as off:
        assert upload(off, "other.md", RENT).status_code == 403
        assert ask_file(off, "draft:hall").status_code == 404
        assert httpx.get(f"{off}/kcard").json()["uploads"] is None
    assert stored() == ["anonymous/hall.md"]


def test_each_key_asks_its_own_files(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    bearers: dict[str, dict[str, str]] = {}
    for name in ("ada", "bob"):
        bearers[name] = {"Authorization": f"Bearer {add_key(file, name)}"}
    with running(create_app(make_service(tmp_path), Keys(file))) as url:
        assert upload(url, "hall.md", RENT).status_code == 401
        of_ada = upload(url, "hall.md", RENT, **bearers["ada"]).json()["card"]
        of_bob = upload(url, "hall.md", KEYS, **bearers["bob"]).json()["card"]
        assert answer(ask_file(url, of_ada, **bearers["ada"])) == "90 euros"
        assert ask_file(url, of_ada, **bearers["bob"]).status_code == 404
        assert ask_file(url, of_bob, **bearers["ada"]).status_code == 404
        seen: Any = httpx.get(f"{url}/kcard", headers=bearers["bob"]).json()["uploads"]["files"]
        assert [uploaded["card"] for uploaded in seen] == [of_bob]
    assert stored() == ["ada/hall.md", "bob/hall.md"]


@pytest.mark.parametrize(
    ("changes", "is_own"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"allowed_hosts": "ask.example.org"}, False),
        ({"allowed_origins": "https://a.example"}, False),
    ],
)
def test_without_keys_files_are_taken_by_ones_own_computer(changes: dict[str, Any], is_own: bool) -> None:
    assert is_own_computer(replace(EndpointOptions(), **changes)) is is_own
    with pytest.raises(UsageError, match="--uploads needs --keys FILE"):
        serve(AskOptions(), EndpointOptions(uploads=True))
