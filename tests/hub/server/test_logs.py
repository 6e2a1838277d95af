"""The server's log: one line for each request, in text or JSON, and no secret in any."""

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from kcard.hub.server.monitoring import Exchange, Instrumentation, log_exchange
from kcard.hub.server.run import JsonFormatter, TextFormatter, log_configuration, redact

TOKEN = "kc_" + "Ab3-_" * 8
HUGGING_FACE = "hf_" + "x" * 34


def request(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
    async def sent() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
            return await client.request(method, path, **options)

    return asyncio.run(sent())


async def echo(request: Request) -> Response:
    request.state.account = "ada"
    body = await request.body()
    return PlainTextResponse("x" * (2 * len(body)), status_code=201)


async def bug(request: Request) -> Response:
    raise RuntimeError(f"a bug about {request.headers['authorization']} at {request.url}")


def observed(*observers: Any) -> Instrumentation:
    return Instrumentation(
        Router(routes=[Route("/echo", echo, methods=["POST"]), Route("/bug", bug)]), *observers
    )


def test_an_exchange_tells_who_asked_for_what_and_how_much_went_over_the_line() -> None:
    seen: list[Exchange] = []
    answer = request(observed(seen.append), "POST", "/echo?sig=secret", content=b"12345")
    [exchange] = seen
    assert (exchange.method, exchange.path, exchange.status) == ("POST", "/echo", 201)
    assert (exchange.received, exchange.sent, exchange.account) == (5, 10, "ada")
    assert (exchange.address, exchange.login) == ("127.0.0.1", False)
    assert 0 < exchange.seconds < 10
    assert answer.headers["x-request-id"] == exchange.id


def test_a_client_may_name_its_request_where_that_is_a_name() -> None:
    app = observed()
    assert (
        request(app, "GET", "/", headers={"X-Request-Id": "a1b2-c3d4e5"}).headers["x-request-id"]
        == "a1b2-c3d4e5"
    )
    for wrong in ("short", "x" * 65, "<script>alert(1)"):
        identifier = request(app, "GET", "/", headers={"X-Request-Id": wrong}).headers["x-request-id"]
        assert identifier != wrong
        assert len(identifier) == 16


def test_a_bug_is_answered_without_its_reason_and_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Exchange] = []
    answer = request(observed(seen.append), "GET", "/bug", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 500
    assert "RuntimeError" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert [(exchange.status, exchange.login) for exchange in seen] == [(500, True)]
    [record] = [r for r in caplog.records if r.name == "kcard.hub.server"]
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert "RuntimeError" in line
        assert TOKEN not in line


def test_an_answer_that_breaks_off_ends_the_connection() -> None:
    async def half(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("in the middle")

    seen: list[Exchange] = []
    with pytest.raises(RuntimeError, match="in the middle"):
        request(Instrumentation(half, seen.append), "GET", "/")
    assert seen[0].status == 200


@pytest.mark.parametrize(
    "text",
    [
        f"path /api/models/{TOKEN}",
        f"Authorization: Bearer {TOKEN}",
        f"token={HUGGING_FACE}&x=1",
        "GET /lfs?oid=1&sig=s3cr3t&size=2",
        "postgresql://ada:s3cr3t@db/hub can't be reached",
        "Basic czNjcjN0",
    ],
)
def test_what_is_secret_is_struck_out_wherever_it_stands(text: str) -> None:
    left = redact(text)
    assert "***" in left
    for secret in (TOKEN, TOKEN[3:], HUGGING_FACE, "s3cr3t", "czNjcjN0"):
        assert secret not in left
    assert redact(left) == left


def record(message: str, **fields: object) -> logging.LogRecord:
    entry = logging.LogRecord("kcard.hub.server", logging.INFO, "here", 1, message, (), None)
    entry.fields = fields
    return entry


def test_a_line_is_one_line_whatever_was_asked_for() -> None:
    forged = record("request", path="/a\nERROR forged\r\x1b[31m", status=200, account=None)
    text = TextFormatter().format(forged)
    assert "\n" not in text
    assert "\x1b" not in text
    assert text.endswith("status=200")
    line = JsonFormatter().format(forged)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": json.loads(line)["time"],
        "level": "info",
        "message": "request",
        "path": "/a\nERROR forged\r\x1b[31m",
        "status": 200,
    }


def test_probes_leave_no_line_unless_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kcard.hub.server")
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/api/models", 200)):
        log_exchange(Exchange("id", "GET", path, path, status, 0.1, 0, 0, None, None, False))
    logged = [(r.levelname, r.fields["path"]) for r in caplog.records]  # type: ignore[attr-defined]
    assert logged == [("ERROR", "/readyz"), ("INFO", "/api/models")]


def test_the_log_configuration_is_one_that_python_takes() -> None:
    import logging.config

    before = logging.getLogger("kcard.hub").handlers[:]
    try:
        for form, kind in (("json", JsonFormatter), ("text", TextFormatter)):
            logging.config.dictConfig(log_configuration(form))  # type: ignore[arg-type]
            assert isinstance(logging.getLogger("kcard.hub").handlers[0].formatter, kind)
    finally:
        for name in ("kcard.hub", "uvicorn"):
            logging.getLogger(name).handlers = before
            logging.getLogger(name).propagate = True
        logging.getLogger().handlers = [
            h
            for h in logging.getLogger().handlers
            if not isinstance(h.formatter, TextFormatter | JsonFormatter)
        ]
