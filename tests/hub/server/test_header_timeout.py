"""Clients that send their headers slowly, or never, or too many."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from kcard.hub.server import limits
from tests.hub.shared_hub import Shared, shared_hub

SECONDS = 1.0
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: hub\r\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "HEADER_SECONDS", SECONDS)
        with shared_hub(tmp_path_factory.mktemp("hub")) as hub:
            yield hub


def connected(shared: Shared) -> socket.socket:
    address = urlsplit(shared.url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=15)


def closed_after(connection: socket.socket, *parts: bytes, pause: float = 0.2) -> float:
    """Seconds until the server closes the connection, while parts are sent in turn, the last one forever."""
    begun = time.monotonic()
    connection.settimeout(pause)
    sent = list(parts)
    while time.monotonic() - begun < 10:
        try:
            if sent:
                connection.sendall(sent[0])
                sent = sent[1:] or sent
            if connection.recv(65536) == b"":
                return time.monotonic() - begun
        except TimeoutError:
            continue
        except ConnectionError:
            return time.monotonic() - begun
    raise AssertionError("the connection stays open")


@pytest.mark.parametrize(
    "parts",
    [(), (b"G",), (REQUEST,), (REQUEST, b"X-A: b\r\n"), (b"\r\n",), (b"GET /", b"a")],
    ids=["nothing", "method", "headers", "endless headers", "line ends", "endless path"],
)
def test_headers_that_never_end_close_the_connection(shared: Shared, parts: tuple[bytes, ...]) -> None:
    with connected(shared) as connection:
        assert closed_after(connection, *parts) < 6


def test_so_do_those_of_a_second_request(shared: Shared) -> None:
    with connected(shared) as connection:
        connection.sendall(REQUEST + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        assert closed_after(connection, REQUEST, b"X-A: b\r\n") < 6


def test_headers_of_many_bytes_close_the_connection_at_once(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 60.0)
    with connected(shared) as connection:
        assert closed_after(connection, REQUEST, b"X-A: " + b"b" * 100_000 + b"\r\n", pause=0.05) < 6


@pytest.mark.parametrize("length", [70_000, 200_000])
def test_so_do_headers_that_come_complete_in_one_burst(shared: Shared, length: int) -> None:
    with connected(shared) as connection:
        connection.sendall(REQUEST + b"X-A: " + b"b" * length + b"\r\n\r\n")
        answer = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        assert not answer.startswith(b"HTTP/1.1 200")
    with connected(shared) as connection:
        connection.sendall(REQUEST + b"X-A: " + b"b" * 60_000 + b"\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_slow_body_and_an_idle_connection_are_not_headers(shared: Shared) -> None:
    body = b'{"content": "# a card", "repoType": "model"}'
    head = b"POST /api/validate-yaml HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n"
    with connected(shared) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 10):
            time.sleep(SECONDS / 2)
            connection.sendall(body[start : start + 10])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(SECONDS * 1.5)  # less than the keep-alive timeout
        connection.sendall(REQUEST + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
