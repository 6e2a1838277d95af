"""Logging in to a hub: which token is sent where, and how it is kept."""

import gzip
import io
import json
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from kcard.api.hub import credentials, listed, login, logout, pull, push, whoami
from kcard.errors import HubError, KcardError, UsageError
from kcard.hub.client import connection
from kcard.hub.client.connection import Credentials, Guard, fetch_user, normalise_url
from kcard.manifest import MANIFEST
from tests.command import Kcard
from tests.hub.client.cards import rivers
from tests.hub.client.hostile import (
    COMMIT,
    NAME,
    Answer,
    Endless,
    Hostile,
    card,
    file_headers,
    hostile_hub,
    send,
    send_json,
)
from tests.hub.shared_hub import Shared


def test_a_token_is_kept_once_the_hub_has_accepted_it(shared: Shared, home: Path) -> None:
    who = login(shared.url, shared.tokens["bob"])
    assert (who.name, who.role, who.organisations) == ("bob", "write", ("lab",))
    assert whoami(shared.url + "/") == who
    assert json.loads((home / "tokens.json").read_text()) == {shared.url: shared.tokens["bob"]}
    assert stat.S_IMODE((home / "tokens.json").stat().st_mode) == 0o600


def test_a_token_that_the_hub_does_not_accept_is_not_kept(shared: Shared, home: Path) -> None:
    with pytest.raises(HubError, match="rejected your token"):
        login(shared.url, "kc_" + "x" * 40)
    assert not (home / "tokens.json").exists()


def test_a_hugging_face_token_is_not_sent_to_another_hub(shared: Shared) -> None:
    with pytest.raises(UsageError, match=r"not sent to http://127\.0\.0\.1"):
        login(shared.url, "hf_" + "x" * 34)


def test_a_token_of_a_kcard_hub_is_not_sent_to_the_hugging_face_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "kc_" + "x" * 40)
    with pytest.raises(UsageError, match=r"not sent to https://huggingface\.co"):
        credentials().token("https://huggingface.co")


def test_the_hugging_face_hubs_own_token_is_used_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    assert credentials().token("https://huggingface.co") == "hf_" + "x" * 34
    with pytest.raises(UsageError, match="hf auth login"):
        login("https://huggingface.co", "hf_" + "x" * 34)
    assert not home.exists()


def test_logging_out_of_one_hub_leaves_the_others(home: Path) -> None:
    credentials = Credentials(home / "tokens.json")
    credentials.store("https://one.org", "kc_one_token")
    credentials.store("https://two.org", "kc_two_token")
    assert logout("https://one.org/")
    assert not logout("https://one.org/")
    left = [credentials.token(f"https://{name}.org") for name in ("one", "two")]
    assert left == [None, "kc_two_token"]


def test_a_hub_that_is_down_is_one_line_at_once_and_not_one_that_needs_a_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it tried again"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it runs on this machine, or would
    down = "http://127.0.0.1:9"
    for call in (lambda: login(down, "kc_" + "x" * 40), lambda: listed(down), lambda: fetch_user(down, None)):
        with pytest.raises(HubError, match=r"http://127\.0\.0\.1:9 does not answer \(.*refused") as error:
            call()
        assert "\n" not in str(error.value)


def test_offline_nothing_leaves_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        login("http://192.0.2.1", "kc_" + "x" * 40)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("HTTPS://Hub.Example.ORG:443/", "https://hub.example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:80/kcard/", "http://[::1]/kcard"),
    ],
)
def test_a_hub_has_one_address_however_it_is_written(url: str, meant: str) -> None:
    assert normalise_url(url) == meant


@pytest.mark.parametrize(
    "url", ["hub.example.org", "ftp://hub", "https://ada:pw@hub.org", "http://hub/?a=1", "http://hub:99999"]
)
def test_what_is_no_address_of_a_hub_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="invalid hub URL"):
        normalise_url(url)


def test_the_command_reads_the_token_from_standard_input_where_it_is_told_to(
    shared: Shared, kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--hub", shared.url)
    monkeypatch.setattr("sys.stdin", io.StringIO(shared.tokens["bob"] + "\n"))
    assert "kcard login --token-stdin < FILE" in kcard("login", *here).error
    done = kcard("login", *here, "--token-stdin", "--json")
    assert json.loads(done.out)["name"] == "bob"
    assert json.loads(kcard("whoami", *here, "--json").out)["role"] == "write"
    kcard("logout", *here)
    assert "not logged in" in kcard("whoami", *here).error
    monkeypatch.setattr("sys.stdin", io.StringIO(shared.tokens["dan"] + "\n"))
    done = kcard("login", *here, "--token-stdin")
    assert shared.tokens["dan"] not in done.out + done.err
    monkeypatch.setenv("KCARD_HUB_URL", shared.url)
    assert kcard("whoami").out == "dan\n"


def test_on_a_terminal_the_token_is_typed_and_not_shown(
    shared: Shared, kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return shared.tokens["bob"]

    monkeypatch.setattr("getpass.getpass", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    done = kcard("login", "--hub", shared.url)
    assert (done.out, prompts) == ("bob\n", [f"Token for {shared.url}: "])


# Answers that attack the client: without end, compressed, leading elsewhere, malformed, or for the terminal.

TOKEN = "kc_secret-of-the-user"
RESOLVE = f"/{NAME}/resolve/{COMMIT}"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e"
BOMB = gzip.compress(gzip.compress(b"[" + b" " * (64 << 20) + b"]"))


def authorized(hub: Hostile) -> list[str]:
    """The requests that brought a token."""
    return [url for _, url, headers in hub.requests if "authorization" in headers]


def next_page_at(hub: Hostile) -> Answer:
    """An empty page of a listing that goes on at this hub."""
    link = {"Link": f'<{hub.url}/api/models?cursor=2>; rel="next"', "Content-Type": "application/json"}
    return lambda handler: send(handler, b"[]", headers=link)


def ask(hub: Hostile, path: str) -> None:
    """Let the client request a path."""
    if path == "/api/models":
        listed(hub.url)
    elif "whoami" in path:
        whoami(hub.url)
    else:
        pull(NAME, hub=hub.url)


def test_the_token_does_not_follow_a_listing_to_another_host() -> None:
    with hostile_hub() as other, hostile_hub() as hub:
        login(hub.url, TOKEN)
        hub.answers["/api/models"] = next_page_at(other)
        with pytest.raises(HubError, match="must not get your token"):
            listed(hub.url)
    assert authorized(hub)
    assert not other.requests


@pytest.mark.parametrize("path", [f"{RESOLVE}/{MANIFEST}", f"/api/models/{NAME}/refs", "/api/whoami-v2"])
def test_nor_does_it_follow_a_redirect(path: str) -> None:
    with hostile_hub(files=card({"notes.txt": b"x"})) as other, hostile_hub(files=other.files) as hub:
        login(hub.url, TOKEN)
        to = {"Location": f"{other.url}{path}", **file_headers(b"")}
        hub.answers[path] = lambda handler: send(handler, b"", 307, to)
        with suppress(KcardError):
            ask(hub, path)
    assert authorized(hub)
    assert not authorized(other)


def test_nor_does_it_follow_an_upload(tmp_path: Path) -> None:
    with hostile_hub() as other, hostile_hub() as hub:
        login(hub.url, TOKEN)
        folder = rivers(tmp_path / "card").folder
        there = {"url": f"{hub.url}/eve/rivers"}
        hub.answers["/api/repos/create"] = lambda handler: send_json(handler, there)
        for revision in ("main", COMMIT):
            hub.answers[f"/api/models/eve/rivers/preupload/{revision}"] = lambda handler: send_json(
                handler, {"files": _as_large_files(hub.body)}
            )
        hub.answers["/eve/rivers.git/info/lfs/objects/batch"] = lambda handler: send_json(
            handler, {"transfer": "basic", "objects": _uploads_to(other, hub.body)}
        )
        with pytest.raises(KcardError) as error:
            push(folder, hub.url, repository="eve/rivers")
        assert any("lfs" in url for _, url, _ in hub.requests), (error.value, hub.requests)
    assert not authorized(other)


@pytest.mark.parametrize(
    ("hub", "to"),
    [
        ("https://hub.example", "http://hub.example/x"),
        ("https://hub.example", "http://cdn.example/x"),
        ("https://hub.example", "file:///etc/passwd"),
        ("http://hub.example", "file:///etc/passwd"),
        ("http://hub.example", "ftp://hub.example/x"),
    ],
)
def test_a_redirect_to_something_less_safe_is_refused(hub: str, to: str) -> None:
    with pytest.raises(HubError, match="not encrypted"):
        Guard(hub).check_request(httpx.Request("GET", to))


@pytest.mark.parametrize(
    ("hub", "to"),
    [
        ("https://hub.example", "https://hub.example:443/x"),
        ("http://hub.example", "https://hub.example/x"),
        ("https://huggingface.co", "https://hf.co/x"),
    ],
)
def test_a_redirect_to_the_same_hub_keeps_the_token(hub: str, to: str) -> None:
    Guard(hub).check_request(httpx.Request("GET", to, headers={"Authorization": "Bearer x"}))


@pytest.mark.parametrize("path", ["/api/models", f"/api/models/{NAME}/refs", f"{RESOLVE}/{MANIFEST}"])
def test_compressed_answers_are_refused(path: str) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json", **file_headers(b"")}
    with hostile_hub(files=card({})) as hub:
        hub.answers[path] = lambda handler: send(handler, BOMB, headers=headers)
        with pytest.raises(HubError, match="compressed"):
            ask(hub, path)
    assert all(headers.get("accept-encoding") == "identity" for _, _, headers in hub.requests)


def test_a_listing_without_end_is_not_read_to_its_end() -> None:
    with hostile_hub() as hub:
        hub.answers["/api/models"] = endless = Endless(most=200)
        with pytest.raises(HubError, match="more than"):
            listed(hub.url)
    assert endless.sent < 100


def test_pages_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_REQUESTS", 20)
    with hostile_hub() as hub:
        hub.answers["/api/models"] = next_page_at(hub)
        with pytest.raises(HubError, match="more than 20 requests"):
            listed(hub.url)
    assert len(hub.requests) == 20


@pytest.mark.parametrize("headers", [{"Retry-After": "99999"}, {"RateLimit": '"api";r=0;t=99999'}])
def test_a_hub_can_not_make_the_client_wait_for_hours(headers: dict[str, str]) -> None:
    with hostile_hub() as hub:
        hub.answers["/api/models"] = lambda handler: send(handler, b"", 429, headers)
        begun = time.monotonic()
        with pytest.raises(HubError, match="try again later"):
            listed(hub.url)
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/json"])
@pytest.mark.parametrize("path", ["/api/models", f"{RESOLVE}/{MANIFEST}"])
def test_a_long_error_is_cut_to_a_line(kind: str, path: str) -> None:
    text = f"<html>{ESCAPES}\n" * 600_000
    body = json.dumps({"error": text}).encode() if "json" in kind else text.encode()
    assert len(body) > 10_000_000
    with hostile_hub(files=card({})) as hub:
        hub.answers[path] = lambda handler: send(handler, body, 400, {"Content-Type": kind})
        with pytest.raises(HubError) as error:
            ask(hub, path)
    assert len(str(error.value)) < 2_000
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "answer", [None, {}, [], "x", 5, [1], [None], [{}], [{"id": 5, "tags": 7}], {"tags": [{}]}, {"sha": {}}]
)
def test_an_answer_of_another_shape_is_an_error_of_the_hub(tmp_path: Path, answer: Any) -> None:
    with hostile_hub(files=card({"notes.txt": b"x"})) as hub:
        for path in ("/api/models", "/api/whoami-v2", f"/api/models/{NAME}/refs", f"/api/models/{NAME}"):
            hub.answers[path] = lambda handler: send_json(handler, answer)
        for call in (lambda: listed(hub.url), lambda: login(hub.url, TOKEN)):
            with suppress(KcardError):
                call()
        if not isinstance(answer, dict):
            with pytest.raises(HubError):
                pull(NAME, tmp_path / "card", hub=hub.url)


def test_what_a_hub_lists_is_cut_and_does_not_reach_the_terminal(kcard: Kcard) -> None:
    row = {"id": f"evil/{ESCAPES}{'x' * 9_000}", "tags": [ESCAPES + "[red]"] * 9_000, "downloads": 5}
    with hostile_hub() as hub:
        hub.answers["/api/models"] = lambda handler: send_json(handler, [row])
        shown = kcard("cards", "list", "--hub", hub.url).out
        data = kcard("cards", "list", "--hub", hub.url, "--json").out
    (card,) = json.loads(data)
    assert card["tags"][0] == f"{ESCAPES}[red]"
    assert card["repository"].startswith(f"evil/{ESCAPES}")
    assert len(card["repository"]) <= 200 >= len(card["tags"])
    for text in (shown, data):
        assert text.replace("\n", "").isprintable()
    assert "\\x1b]0;owned" in shown.replace("\n", "").replace(" ", "")


def _as_large_files(request: bytes) -> list[dict[str, Any]]:
    files = json.loads(request)["files"]
    return [{"path": file["path"], "uploadMode": "lfs", "shouldIgnore": False} for file in files]


def _uploads_to(other: Hostile, request: bytes) -> list[dict[str, Any]]:
    actions = {name: {"href": f"{other.url}/{name}"} for name in ("upload", "verify")}
    return [entry | {"actions": actions} for entry in json.loads(request)["objects"]]
