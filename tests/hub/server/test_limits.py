"""How much one client may ask for, how long it is waited for, and what browsers are told."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.hub.server.middleware.idle_timeout import IdleTimeout
from kcard.hub.server.middleware.rate_limit import Buckets, RateLimit, is_this_machine
from kcard.hub.server.middleware.security_headers import SecurityHeaders


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_minutes_worth_and_fills_steadily() -> None:
    clock = Clock()
    buckets = Buckets(60, clock)
    assert [buckets.take("ada") for _ in range(60)] == [0.0] * 60
    assert buckets.take("ada") == pytest.approx(1)
    assert buckets.take("bob") == 0
    clock.now = 0.75
    assert buckets.take("ada") == pytest.approx(0.25)  # asking too early costs nothing
    clock.now = 1
    assert buckets.take("ada") == 0
    clock.now = 3600
    assert [buckets.take("ada") for _ in range(60)] == [0.0] * 60
    assert buckets.take("ada") > 0


async def answered(scope: Scope, receive: Receive, send: Send) -> None:
    """Lets the token `good` in as ada."""
    if (b"authorization", b"Bearer good") in scope["headers"]:
        scope["state"]["account"] = "ada"
    await PlainTextResponse("ok")(scope, receive, send)


async def ask(
    app: ASGIApp, path: str = "/", address: str = "10.0.0.1", token: str | None = None
) -> httpx.Response:
    transport = httpx.ASGITransport(app=with_state(app), client=(address, 1))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://hub", headers=headers) as client:
        return await client.get(path)


def with_state(app: ASGIApp) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {}}, receive, send)

    return call


def statuses(app: ASGIApp, *calls: dict[str, Any]) -> list[int]:
    async def run() -> list[int]:
        return [(await ask(app, **call)).status_code for call in calls]

    return asyncio.run(run())


def test_too_many_requests_are_told_when_to_come_back() -> None:
    limited = RateLimit(answered, rate=2)

    async def run() -> httpx.Response:
        await ask(limited)
        await ask(limited)
        return await ask(limited)

    refused = asyncio.run(run())
    assert refused.status_code == 429
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    assert "too many requests" in refused.json()["error"]


def test_addresses_are_counted_apart_and_probes_not_at_all() -> None:
    limited = RateLimit(answered, rate=1)
    assert statuses(limited, {}, {"address": "10.0.0.2"}, {}) == [200, 200, 429]
    assert statuses(limited, *[{"path": path} for path in ("/healthz", "/readyz", "/metrics")]) == [200] * 3


def test_an_ipv6_client_has_one_bucket_for_its_whole_network() -> None:
    limited = RateLimit(answered, rate=1)
    near, far = {"address": "2001:db8::1"}, {"address": "2001:db8:0:1::1"}
    assert statuses(limited, near, {"address": "2001:db8::ffff"}, far) == [200, 429, 200]


def test_an_account_has_one_bucket_wherever_it_asks_from() -> None:
    limited = RateLimit(answered, rate=2)
    first, others = {"token": "good"}, [{"token": "good", "address": f"10.0.1.{n}"} for n in range(3)]
    assert statuses(limited, first, *others) == [200, 200, 200, 429]
    assert statuses(limited, {}) == [200]  # the address itself was counted once only


def test_tokens_that_were_made_up_count_for_the_address_that_tries_them() -> None:
    limited = RateLimit(answered, rate=3)
    assert statuses(limited, *[{"token": f"guess-{n}"} for n in range(5)]) == [200, 200, 200, 429, 429]


def test_only_this_machine_is_this_machine() -> None:
    for address, ours in (("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("testclient", False)):
        assert is_this_machine({"client": (address, 1)}) == ours
    assert not is_this_machine({"client": None})


def drive(app: ASGIApp, receive: Any, send: Any = None) -> list[Message]:
    sent: list[Message] = []

    async def kept(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await app({"type": "http", "headers": []}, receive, send or kept)

    asyncio.run(run())
    return sent


async def forever(*_: object) -> Any:
    await asyncio.sleep(3600)


def test_a_body_that_stands_still_is_given_up() -> None:
    from starlette.exceptions import HTTPException

    async def reading(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()

    with pytest.raises(HTTPException, match="request timed out") as refused:
        drive(IdleTimeout(reading, 0.05), forever)
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

    assert drive(IdleTimeout(streaming, 0.05), body)[0]["status"] == 200


def test_an_answer_that_nobody_takes_is_given_up_without_a_traceback() -> None:
    ended = []

    async def answering(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        finally:
            ended.append(True)

    drive(IdleTimeout(answering, 0.05), forever, forever)
    assert ended == [True]


def test_other_errors_of_the_disk_are_not_swallowed() -> None:
    async def failing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        drive(IdleTimeout(failing, 0.05), forever)


def test_every_answer_forbids_browsers_to_run_it() -> None:
    async def own(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("page", headers={"Content-Security-Policy": "img-src 'self'"})(
            scope, receive, send
        )

    async def headers(app: ASGIApp) -> httpx.Headers:
        return (await ask(app)).headers

    found = asyncio.run(headers(SecurityHeaders(answered)))
    assert found["x-content-type-options"] == "nosniff"
    assert found["x-frame-options"] == "DENY"
    assert "default-src 'none'" in found["content-security-policy"]
    assert "strict-transport-security" not in found
    assert asyncio.run(headers(SecurityHeaders(own)))["content-security-policy"] == "img-src 'self'"
    assert "strict-transport-security" in asyncio.run(headers(SecurityHeaders(answered, https=True)))
