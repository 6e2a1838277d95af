"""How much one client may ask for, how long it is waited for, and what browsers are told."""

import asyncio
import http.client
import ipaddress
import multiprocessing
import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub.utils._http import RateLimitInfo, parse_ratelimit_headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from kcard.hub.server import limits
from kcard.hub.server.app import SecurityHeaders
from kcard.hub.server.limits import (
    DOWNLOAD_COST,
    HIGH_COST,
    MAX_REQUESTS_OF_CLIENT,
    USUAL_COST,
    BodyLimit,
    Buckets,
    RateLimit,
    create_counts,
    is_this_machine,
    request_cost,
)
from kcard.hub.server.run import MAX_OPEN_FILES, raise_file_limit
from tests.hub.server.attacks import connect, wait_for
from tests.hub.shared_hub import Shared, serving, shared_hub

FILE = "/ada/moons/resolve/main/config.json"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_five_minutes_worth_and_fills_steadily(tmp_path: Path) -> None:
    create_counts(tmp_path / "counts")
    for path in (None, tmp_path / "counts"):
        clock = Clock()
        buckets = Buckets(60, path, clock)
        assert [buckets.take("ada").allowed for _ in range(300)] == [True] * 300
        for who, allowed, left in (("ada", False, 0), ("bob", True, 299)):
            taken = buckets.take(who)
            assert (taken.allowed, taken.left) == (allowed, left)
            assert taken.wait == pytest.approx(1)
        clock.now += 0.75
        assert buckets.take("ada").wait == pytest.approx(0.25)  # asking too early costs nothing
        clock.now += 0.25
        assert buckets.take("ada").allowed
        clock.now += 3600
        assert [buckets.take("ada", 10).allowed for _ in range(31)] == [True] * 30 + [False]


def in_processes(work: Callable[[], Any], count: int) -> list[Any]:
    """What the work returns in forked processes, in which what it imports is there."""
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    processes = [fork.Process(target=lambda: results.put(work())) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [results.get() for _ in processes]


def test_processes_count_together_and_none_twice(tmp_path: Path) -> None:
    create_counts(tmp_path / "counts")

    def take() -> int:
        buckets = Buckets(600, tmp_path / "counts", lambda: 1000.0)
        return sum(buckets.take("ada").allowed for _ in range(1000))

    assert sum(in_processes(take, 4)) == 3000


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/ada/moons/resolve/main/config.json", b"", DOWNLOAD_COST),
        ("/datasets/ada/moons/resolve/main/a/b.csv", b"full=1", DOWNLOAD_COST),
        ("/lfs/00", b"ticket=x", DOWNLOAD_COST),
        ("/api/whoami-v2", b"", USUAL_COST),
        ("/api/models/ada/moons", b"", USUAL_COST),
        ("/api/models/ada/moons/tree/main", b"recursive=1", USUAL_COST),
        ("/api/models/resolve/x/tree/main/raw/y", b"", USUAL_COST),
        ("/ada/moons", b"", USUAL_COST),
        ("/api/models", b"limit=20", HIGH_COST),
        ("/api/%6Dodels", b"", HIGH_COST),
        ("/api/models/ada/moons/tree/main", b"e%78pand=1", HIGH_COST),
        ("/api/models/resolve/x/tree/main/resolve/y", b"expand=1", HIGH_COST),
        ("/api/datasets/ada/moons/paths-info/main", b"", HIGH_COST),
        ("/api/validate-yaml", b"", HIGH_COST),
        ("/", b"q=moons", HIGH_COST),
    ],
)
def test_requests_cost_what_they_take(path: str, query: bytes, expected: int) -> None:
    assert request_cost(path, query) == expected


async def answered(scope: Scope, receive: Receive, send: Send) -> None:
    """Lets the token `good` in as ada."""
    if (b"authorization", b"Bearer good") in scope["headers"]:
        scope["state"]["account"] = "ada"
    await PlainTextResponse("ok")(scope, receive, send)


async def ask(
    app: Any, path: str = FILE, address: str = "10.0.0.1", token: str = "", forwarded: str = ""
) -> httpx.Response:
    transport = httpx.ASGITransport(app=with_state(app), client=(address, 1))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if forwarded:
        headers["X-Forwarded-For"] = forwarded
    async with httpx.AsyncClient(transport=transport, base_url="http://hub", headers=headers) as client:
        return await client.get(path)


def with_state(app: ASGIApp) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {}}, receive, send)

    return call


def statuses(app: Any, *calls: dict[str, Any]) -> list[int]:
    async def run() -> list[int]:
        return [(await ask(app, **call)).status_code for call in calls]

    return asyncio.run(run())


def test_the_hugging_face_client_reads_how_much_is_left() -> None:
    limited = RateLimit(answered, rate=2)

    async def run() -> list[RateLimitInfo | None]:
        return [parse_ratelimit_headers((await ask(limited)).headers) for _ in range(11)]

    first, *_, refused = asyncio.run(run())
    assert first == RateLimitInfo("requests", 9, 30, limit=10, window_seconds=300)
    assert refused is not None
    assert refused.remaining == 0
    assert 25 <= refused.reset_in_seconds <= 30


OWN = [{"address": "127.0.0.1"}, {"address": "::1"}] * 6
PROBES = [{"path": path} for path in ("/healthz", "/readyz")]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([*[{}] * 5, *PROBES, {"address": "10.0.0.2"}, {}], [200] * 8 + [429]),
        # All of an IPv6 network.
        ([*({"address": f"2001:db8::{n}"} for n in range(6)), {"address": "2001:db8:0:1::1"}], [200] * 5 + [429, 200]),
        # IPv4 clients of a socket for both families.
        ([*[{"address": "::ffff:192.0.2.1"}] * 6, {"address": "::ffff:192.0.2.2"}], [200] * 5 + [429, 200]),
        # An account, wherever it asks from; only its first request counts for its address.
        ([{"token": "good"}, *({"token": "good", "address": f"10.0.1.{n}"} for n in range(6)), *[{}] * 5],
         [200] * 6 + [429] + [200] * 4 + [429]),
        # Tokens that were made up.
        ([{"token": f"guess-{n}"} for n in range(7)], [200] * 5 + [429] * 2),
        (OWN, [200] * 12),
    ],
    ids=["addresses", "networks", "mapped addresses", "accounts", "invented tokens", "this machine"],
)  # fmt: skip
def test_so_many_requests_are_let_in_by_address_or_account(
    calls: list[dict[str, Any]], expected: list[int]
) -> None:
    assert statuses(RateLimit(answered, rate=1), *calls) == expected


def test_this_machine_is_counted_by_a_hub_with_a_public_url() -> None:
    assert statuses(RateLimit(answered, rate=1, own=True), *OWN)[-1] == 429


def test_a_client_that_leaves_many_responses_untaken_is_refused_more_until_it_takes_them() -> None:
    async def run() -> list[int]:
        taken, running = asyncio.Event(), asyncio.Semaphore(0)

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            running.release()
            await taken.wait()
            await answered(scope, receive, send)

        limited = RateLimit(slow, rate=3000)
        waiting = [asyncio.create_task(ask(limited)) for _ in range(MAX_REQUESTS_OF_CLIENT)]
        for _ in waiting:
            await running.acquire()
        refused = await ask(limited)
        taken.set()
        await asyncio.gather(*waiting)
        after = await ask(limited)
        assert refused.headers["retry-after"] == "1"
        return [refused.status_code, after.status_code, *{(await task).status_code for task in waiting}]

    assert asyncio.run(run()) == [429, 200, 200]


@pytest.mark.parametrize(("proxy", "expected"), [("10.0.0.1", 200), ("10.0.0.2", 429)])
def test_the_address_that_a_proxy_names_counts_only_if_the_proxy_is_trusted(
    proxy: str, expected: int
) -> None:
    limited = RateLimit(answered, rate=1)
    app = ProxyHeadersMiddleware(limited, trusted_hosts="10.0.0.1")  # type: ignore[arg-type]
    clients = [f"10.9.9.9, 203.0.113.{number}" for number in range(6)]
    calls = [{"address": proxy, "forwarded": client} for client in clients]
    assert statuses(app, *calls) == [200] * 5 + [expected]


def drive(app: ASGIApp, receive: Any, send: Any = None) -> list[Message]:
    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await app({"type": "http", "headers": []}, receive, send or keep)

    asyncio.run(run())
    return sent


async def forever(*_: object) -> Any:
    await asyncio.sleep(3600)


def test_a_body_that_stands_still_is_given_up() -> None:
    from starlette.exceptions import HTTPException

    async def reading(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()

    with pytest.raises(HTTPException, match="request timed out") as refused:
        drive(BodyLimit(reading, seconds=0.05), forever)
    assert refused.value.status_code == 408


def test_an_answer_may_take_longer_than_a_body_may_stand_still() -> None:
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def body() -> Message:
        if messages:
            return messages.pop()
        await asyncio.sleep(0.2)  # what streams an answer awaits the end of the connection all the while
        return {"type": "http.disconnect"}

    async def streaming(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    assert drive(BodyLimit(streaming, seconds=0.05), body)[0]["status"] == 200


def test_an_answer_that_nobody_takes_is_given_up_without_a_traceback() -> None:
    ended = []

    async def answering(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        finally:
            ended.append(True)

    drive(BodyLimit(answering, seconds=0.05), forever, forever)
    assert ended == [True]


def test_every_answer_forbids_browsers_to_run_it() -> None:
    async def own(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("page", headers={"Content-Security-Policy": "img-src 'self'"})(
            scope, receive, send
        )

    async def headers(app: ASGIApp) -> httpx.Headers:
        return (await ask(app)).headers

    values = asyncio.run(headers(SecurityHeaders(answered)))
    assert values["x-content-type-options"] == "nosniff"
    assert values["x-frame-options"] == "DENY"
    assert "default-src 'none'" in values["content-security-policy"]
    assert "strict-transport-security" not in values
    assert asyncio.run(headers(SecurityHeaders(own)))["content-security-policy"] == "img-src 'self'"
    assert "strict-transport-security" in asyncio.run(headers(SecurityHeaders(answered, https=True)))


def test_only_this_machine_is_this_machine() -> None:
    own = [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True)]
    for address, ours in (*own, ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("testclient", False)):
        assert is_this_machine({"client": (address, 1)}) == ours
    assert not is_this_machine({"client": None})


# Clients that send their headers slowly, or never, or too many.


SECONDS = 1.0
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: hub\r\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "HEADER_SECONDS", SECONDS)
        with shared_hub(tmp_path_factory.mktemp("hub")) as hub:
            yield hub


def closed_after(connection: socket.socket, *parts: bytes, pause: float = 0.2) -> float:
    """Seconds until the server closes the connection, while parts are sent in turn, the last one forever."""
    begun = time.monotonic()
    connection.settimeout(pause)
    sent = list(parts)
    while time.monotonic() - begun < 50:
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


NEVER_ENDING: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "method": (b"G",),
    "headers": (REQUEST,),
    "endless headers": (REQUEST, b"X-A: b\r\n"),
    "line ends": (b"\r\n",),
    "endless path": (b"GET /", b"a"),
    "a second request": (REQUEST, b"X-A: b\r\n"),
}


def test_headers_that_never_end_close_the_connection(impatient: Shared) -> None:
    """All at once, because each waits for the server's patience."""

    def seconds(case: str) -> float:
        with connect(impatient.url) as connection:
            if case == "a second request":
                connection.sendall(REQUEST + b"\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            return closed_after(connection, *NEVER_ENDING[case])

    with ThreadPoolExecutor(len(NEVER_ENDING)) as pool:
        waited = dict(zip(NEVER_ENDING, pool.map(seconds, NEVER_ENDING), strict=True))
    # The default is 20 seconds: a busy machine may be late by less than that.
    assert {case: time for case, time in waited.items() if time >= 15} == {}


def test_headers_of_many_bytes_close_the_connection_at_once(
    impatient: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 60.0)
    with connect(impatient.url) as connection:
        assert closed_after(connection, REQUEST, b"X-A: " + b"b" * 100_000 + b"\r\n", pause=0.05) < 40


@pytest.mark.parametrize("length", [70_000, 200_000])
def test_so_do_headers_that_come_complete_in_one_burst(impatient: Shared, length: int) -> None:
    with connect(impatient.url) as connection:
        connection.sendall(REQUEST + b"X-A: " + b"b" * length + b"\r\n\r\n")
        answer = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        assert not answer.startswith(b"HTTP/1.1 200")
    with connect(impatient.url) as connection:
        connection.sendall(REQUEST + b"X-A: " + b"b" * 60_000 + b"\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def status_of_reply(connection: socket.socket) -> int:
    """The status of one reply, which is read to its end: head and body may come in two parts."""
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    reply.read()
    return reply.status


def test_a_slow_body_and_an_idle_connection_are_not_headers(impatient: Shared) -> None:
    body = b'{"content": "# a card", "repoType": "model"}'
    head = b"POST /api/validate-yaml HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n"
    with connect(impatient.url) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 15):
            time.sleep(SECONDS / 2)
            connection.sendall(body[start : start + 15])
        assert status_of_reply(connection) == 200
        time.sleep(SECONDS * 1.5)  # less than the keep-alive timeout
        connection.sendall(REQUEST + b"\r\n")
        assert status_of_reply(connection) == 200


@pytest.mark.parametrize(
    ("address", "proxies", "trusted"),
    [
        ("127.0.0.1", "127.0.0.1,::1", True),
        ("10.1.2.3", "127.0.0.1, 10.0.0.0/8", True),
        ("203.0.113.5", ["10.0.0.0/8", "proxy"], False),
        ("203.0.113.5", "*", True),
        ("203.0.113.5", "", False),
    ],
)
def test_proxies_are_addresses_networks_or_all(address: str, proxies: str | list[str], trusted: bool) -> None:
    assert limits.is_trusted(ipaddress.ip_address(address), proxies) == trusted


@pytest.mark.parametrize(("proxies", "limited"), [("192.0.2.1", True), ("127.0.0.1", False)])
def test_an_address_has_so_many_connections_unless_it_is_a_proxys(
    proxies: str, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS_OF_ADDRESS", 3)
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

    def ask(url: str) -> bytes:
        with connect(url) as client:
            client.sendall(request)
            return client.recv(4096).split(b"\r\n")[0]

    with serving(PlainTextResponse("hello"), forwarded_allow_ips=proxies) as url:
        slow = [connect(url) for _ in range(3)]
        for client in slow:
            client.sendall(request[:5])
        assert ask(url) == (b"HTTP/1.1 429 Too Many Requests" if limited else b"HTTP/1.1 200 OK")
        for client in slow:
            client.sendall(request[5:])
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
            client.close()
        wait_for(lambda: not limits.Connection._open)
        assert ask(url) == b"HTTP/1.1 200 OK"


def test_a_server_opens_as_many_files_as_the_system_allows() -> None:
    def raise_limit() -> tuple[int, int]:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raise_file_limit()
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    [(soft, hard)] = in_processes(raise_limit, 1)
    assert soft == (MAX_OPEN_FILES if hard < 0 else min(hard, MAX_OPEN_FILES))
