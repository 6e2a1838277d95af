"""Clients that send slowly, read slowly or send too much cost the others nothing and learn what was wrong."""

import fcntl
import http.client
import json
import logging
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from kcard.serve.app import create_app
from kcard.serve.auth import Keys, add_key
from tests.openai_script import ScriptedServer
from tests.serve.conftest import (
    DISCOVERER,
    QUESTION,
    TRITON,
    answer,
    ask,
    embedded_service,
    error,
    post,
    running,
    service_before,
)

IDLE = 1.0
HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)


@pytest.fixture(scope="module")
def url(library: Path) -> Iterator[str]:
    with running(create_app(embedded_service(library), idle=IDLE)) as url:
        yield url


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def test_clients_that_stop_in_the_middle_of_a_request_are_given_up_and_others_are_served(url: str) -> None:
    slow = [connected(url) for _ in range(50)]
    for client in slow:
        client.sendall(HEAD.format(1000).encode() + b'{"model": ')
    assert answer(ask(url)) == DISCOVERER
    for client in slow:
        with closing(client):
            reply = http.client.HTTPResponse(client)  # head and body may come in several parts
            reply.begin()
            assert reply.status == 408
            told = json.loads(reply.read())["error"]
            assert "no data received" in told["message"]
            assert told["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "host",
    ["attacker.example", "attacker.example:8000", "localhost.attacker.example", "127.0.0.1.nip.io", ""],
)
def test_a_name_that_an_attacker_has_lead_to_this_machine_is_refused(url: str, host: str) -> None:
    for path in ("", "v1/models", "v1/chat/completions", "metrics"):
        reply = httpx.get(f"{url.removesuffix('v1')}{path}", headers={"Host": host})
        assert reply.status_code == 403
        assert error(reply)["code"] == "unknown_host"
    assert httpx.get(f"{url.removesuffix('v1')}healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:80", "[::1]", "[::1]:8000"])
def test_this_machine_is_addressed_by_any_of_its_local_names(url: str, host: str) -> None:
    assert httpx.get(f"{url}/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(("hosts", "has_keys"), [(["ask.example"], False), (["*"], False), ([], True)])
def test_another_name_is_accepted_if_it_is_allowed_or_keys_are_needed(
    library: Path, tmp_path: Path, hosts: list[str], has_keys: bool
) -> None:
    key = add_key(tmp_path / "keys.toml", "alice")
    keys = Keys(tmp_path / "keys.toml") if has_keys else None
    with running(create_app(embedded_service(library), keys, hosts=hosts)) as url:
        headers = {"Host": "ask.example:443", "Authorization": f"Bearer {key}"}
        assert httpx.get(f"{url}/models", headers=headers).status_code == 200


def test_a_client_that_sends_byte_by_byte_is_answered(url: str) -> None:
    body = json.dumps({"model": "embedded", "messages": TRITON}).encode()
    with closing(connected(url)) as client:
        client.sendall(HEAD.format(len(body)).encode())
        for start in range(0, len(body), 8):
            client.sendall(body[start : start + 8])
            time.sleep(0.02)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_ten_megabytes_of_messages_in_chunks_are_refused(url: str) -> None:
    turn = {"role": "user", "content": "Who discovered Triton? " * 500}
    body = json.dumps({"model": "embedded", "messages": [turn] * 900}).encode()
    assert len(body) > 10_000_000
    pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
    try:
        reply = httpx.post(
            f"{url}/chat/completions",
            content=pieces,
            headers={"Content-Type": "application/json"},
            timeout=60,
        )
    except httpx.WriteError:  # refused before all of it was sent
        pass
    else:
        assert reply.status_code == 413
        assert "too large" in error(reply)["message"]
    assert answer(ask(url)) == DISCOVERER


def test_thousands_of_short_turns_are_answered_and_a_question_of_megabytes_is_refused_at_once(
    url: str,
) -> None:
    turns = [{"role": "user", "content": "Hello."}] * 5_000
    assert answer(post(url, {"model": "embedded", "messages": [*turns, *TRITON]})) == DISCOVERER
    assert ask(url, f"{QUESTION} " * 160_000).status_code == 400
    refused = post(url, {"model": "embedded", "prompt": [QUESTION, "x" * 20_001]}, "completions")
    assert refused.status_code == 400
    assert "20,001 characters" in error(refused)["message"]


def waiting(client: socket.socket) -> int:
    """The number of bytes that have come and were not read."""
    return int.from_bytes(fcntl.ioctl(client, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_client_that_reads_nothing_of_its_stream_is_dropped(
    library: Path, serve: Callable[..., ScriptedServer]
) -> None:
    llm = serve({"pieces": ["word " * 2000] * 1000, "usage": [1, 1]})
    service = service_before(llm.url, library, "direct")
    body = json.dumps({"model": "big", "messages": TRITON, "stream": True}).encode()
    with running(create_app(service, idle=IDLE / 2)) as url, closing(connected(url)) as client:
        client.sendall(HEAD.format(len(body)).encode() + body)
        # However slow the machine is: until some of it has come and then nothing more for twice as long as it may.
        count, deadline = 0, time.monotonic() + 60
        while count == 0 or count != waiting(client):
            assert time.monotonic() < deadline
            count = waiting(client)
            time.sleep(IDLE)
        received = 0
        while data := client.recv(1 << 20):
            received += len(data)
        assert received < 10_000_000  # of 10 MB and the trace


def test_keys_and_questions_are_not_logged(
    library: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    key = add_key(tmp_path / "keys.toml", "alice")
    secret = "Where did Ada hide the gold?"
    app = create_app(embedded_service(library), Keys(tmp_path / "keys.toml"))
    with caplog.at_level(logging.DEBUG), running(app) as url:
        for sent in (key, "kc_wrong"):
            bearer = {"Authorization": f"Bearer {sent}"}
            for reply in (ask(url, secret, **bearer), post(url, {"model": secret}, **bearer)):
                assert reply.status_code in (200, 400, 401, 404)
                assert sent not in reply.text
    printed = capfd.readouterr()
    ours = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith(("kcard", "uvicorn"))
    )
    for log in (ours, printed.out, printed.err):
        assert key not in log
        assert "kc_wrong" not in log
        assert secret not in log
