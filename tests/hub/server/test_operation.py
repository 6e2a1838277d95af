"""What operators look at: health, the log, the API's description, a full disk; what every answer carries."""

import asyncio
import errno
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from kcard.errors import HubError, Unavailable
from kcard.hub.errors import Conflict
from kcard.hub.server import monitoring
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.logs import JsonFormatter, TextFormatter, log_request, redact
from kcard.hub.server.monitoring import RequestLog
from kcard.hub.server.run import listening
from tests.hub.server.attacks import commit, connect, inline, request_batch, wait_for
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/card")
        shared.create("bob/hidden", private=True)
        shared.put("bob/card", {"config.json": b"{}"})
        yield shared


def test_a_hub_without_its_files_lives_and_is_not_ready(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_sha256: str) -> bool:
        raise HubError("the store at s3://ada:s3cr3t@bucket is away")

    monkeypatch.setattr(type(shared.hub.blobs), "holds", lambda _self, sha256: away(sha256))
    client = shared.http()
    readiness = client.get("/readyz")
    assert readiness.status_code == 503
    assert readiness.json() == {"status": "failed", "database": "ok", "blobs": "failed", "disk": "ok"}
    assert client.get("/healthz").status_code == 200


def test_every_answer_names_its_request_and_forbids_scripts(shared: Shared) -> None:
    client = shared.http()
    for path in (
        "/",
        "/bob/card",
        "/api/models",
        "/api/models/bob/hidden",
        "/no/such/thing/here",
        "/healthz",
    ):
        headers = client.get(path, headers={"Accept": "text/html"}).headers
        assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"]), path
        assert headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"], path


def test_the_api_is_described_for_programs(shared: Shared) -> None:
    for path, methods in shared.http().get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert set(operation["responses"]) == {"200", "4XX"}, path


def test_a_hub_with_a_limit_tells_a_client_to_come_back(tmp_path: Path) -> None:
    with shared_hub(tmp_path, ServerOptions(rate=3, url="http://hub.example.org")) as limited:
        client = limited.http("bob")
        answers = [client.get("/api/whoami-v2") for _ in range(6)]
        # The first counts for the address, until the token was let in; three more are the account's, 4 tokens each.
        assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].headers["x-content-type-options"] == "nosniff"
        assert answers[-1].json()["error"]
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 429
        assert "<h1>Too many requests" in page.text
        assert client.get("/healthz").status_code == 200


def test_what_is_done_to_a_repository_is_in_the_log_by_whom(shared: Shared) -> None:
    api = shared.api("cleo")
    api.create_repo("lab/made", private=True)
    api.update_repo_settings("lab/made", private=False, token=shared.tokens["bob"])
    api.create_tag("lab/made", tag="v1")
    api.delete_tag("lab/made", tag="v1")
    bob = shared.api("bob")
    bob.move_repo("lab/made", "bob/moved")
    bob.delete_repo("bob/moved")
    seen = [
        (e.actor, e.action, e.target)
        for e in reversed(shared.hub.events.list())
        if e.actor in {"bob", "cleo"}
    ]
    assert seen == [
        ("cleo", "repository.created", "lab/made"),
        ("bob", "repository.updated", "lab/made"),
        ("cleo", "tag.deleted", "lab/made"),
        ("bob", "repository.moved", "lab/made"),
        ("bob", "repository.deleted", "bob/moved"),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [(Unavailable("postgresql://db.internal/hub is away"), 503), (HubError("no disk"), 500)],
)
def test_what_is_wrong_with_the_server_is_for_its_log_alone(
    shared: Shared,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: HubError,
    status: int,
) -> None:
    def away(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(shared.hub.tokens), "identify", away)
    answer = shared.http("bob").get("/api/whoami-v2")
    assert answer.status_code == status
    assert str(error) not in answer.text + str(answer.headers)
    assert str(error) in caplog.text


@pytest.mark.parametrize(
    "path", ["/api/models/bob/gone/paths-info/main", "/api/validate-yaml", "/api/models/bob/gone/commit/main"]
)
def test_a_client_that_leaves_during_its_upload_is_no_error_of_the_server(
    shared: Shared, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with suppress(Conflict):
        shared.create("bob/gone")
    with caplog.at_level("INFO", logger="kcard.hub.server"):
        with connect(shared.url) as connection:
            login = f"Authorization: Bearer {shared.tokens['bob']}\r\n"
            head = f"POST {path} HTTP/1.1\r\nHost: hub\r\n{login}Content-Length: 1000\r\n\r\npaths="
            connection.sendall(head.encode())
            time.sleep(0.3)
        wait_for(lambda: path in [line["path"] for line in fields(caplog)])
    assert "Traceback" not in caplog.text
    assert "unexpected error" not in caplog.text
    assert {line["status"] for line in fields(caplog) if line["path"] == path} <= {400, 499}


def test_a_server_takes_the_address_that_workers_of_a_killed_one_hold_for_a_moment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        port = blocker.getsockname()[1]
        threading.Timer(0.5, blocker.close).start()
        with listening("127.0.0.1", port) as listener:
            assert listener.getsockname()[1] == port


# A server whose disk is full: 507 with a plain message, nothing half-stored, and not ready.


Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(folder)]
    if (
        not sys.platform.startswith("linux")
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as stream:
        while stream.write(b"x" * 4096):
            pass


def upload(shared: Shared, content: bytes) -> httpx.Response:
    answer = request_batch(shared.http("bob"), "bob/card", content)
    if answer.status_code != 200:
        return answer
    return shared.http().put(answer.json()["objects"][0]["actions"]["upload"]["href"], content=content)


def test_a_full_disk_is_a_507_until_there_is_room_again(disk: Path) -> None:
    with shared_hub(disk) as shared:
        shared.create("bob/card")
        head = shared.hub.repositories.get("model", "bob/card").head
        fill(disk)
        text = b"text " * 40_000
        answers = {
            "commit": commit(shared, "bob", "bob/card", inline("a.txt", text)),
            "lfs": upload(shared, text),
            "create": shared.http("bob").post("/api/repos/create", json={"name": "other"}),
        }
        for what, answer in answers.items():
            if what == "create" and answer.status_code == 200:
                continue  # it fitted into what the database has left
            assert answer.status_code == 507, (what, answer.text)
            assert "disk is full" in answer.json()["error"]
            assert str(disk) not in answer.text
        ready = shared.http().get("/readyz")
        assert ready.status_code == 503
        assert "MB free" in ready.json()["disk"]
        assert shared.http().get("/api/models/bob/card").json()["sha"] == head
        (disk / "ballast").unlink()
        assert commit(shared, "bob", "bob/card", inline("a.txt", text)).status_code == 200
        assert shared.hub.registry.gc() == []
        shared.hub.database.close()


def test_little_room_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared_hub(tmp_path) as shared:
        least = monitoring.MIN_FREE_BYTES
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, least))
        assert shared.http().get("/readyz").json()["disk"] == "ok"
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, least - 1))
        answer = shared.http().get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["disk"] == "99 MB free: at least 100 MB are needed"
        assert shared.http().get("/healthz").status_code == 200


def test_a_file_that_can_not_be_written_outside_of_an_upload_is_a_507_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "secret"))

    with shared_hub(tmp_path) as shared:
        monkeypatch.setattr(type(shared.hub.repositories), "place_attributes", full)
        answer = shared.http("bob").post("/api/repos/create", json={"name": "card"})
        assert answer.status_code == 507
        assert "secret" not in answer.text + str(answer.headers)
        monkeypatch.undo()
        assert shared.http("bob").post("/api/repos/create", json={"name": "card"}).status_code == 200


# The server's log: one line for each request, in text or JSON, and no secret in any.


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


def instrumented(*routes: Route) -> RequestLog:
    return RequestLog(Router(routes=list(routes)))


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the requests that were logged."""
    return [record.fields for record in caplog.records if record.message == "request"]  # type: ignore[attr-defined]


def test_a_line_tells_who_asked_for_what_and_how_much_went_over_the_wire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kcard.hub.server")
    app = instrumented(Route("/echo", echo, methods=["POST"]))
    answer = request(app, "POST", "/echo?sig=secret", content=b"12345")
    [line] = fields(caplog)
    assert 0 < line.pop("ms") < 10_000
    assert line.pop("route") in {None, "/echo"}
    assert line == {
        "id": answer.headers["x-request-id"],
        **{"method": "POST", "path": "/echo", "status": 201, "received": 5, "sent": 10},
        **{"account": "ada", "address": "127.0.0.1"},
    }


def test_a_client_may_name_its_request_where_that_is_a_name() -> None:
    for given in ("a1b2-c3d4e5", "short", "x" * 65, "<script>alert(1)"):
        headers = request(instrumented(), "GET", "/", headers={"X-Request-Id": given}).headers
        if given == "a1b2-c3d4e5":
            assert headers["x-request-id"] == given
        else:
            assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])


def test_a_bug_is_answered_without_its_reason_and_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    app = instrumented(Route("/bug", bug))
    answer = request(app, "GET", "/bug", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 500
    assert "RuntimeError" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert [line["status"] for line in fields(caplog)] == [500]
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(caplog.records[0])
        assert "RuntimeError" in line
        assert TOKEN not in line


def test_an_answer_that_breaks_off_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def half(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("in the middle")

    caplog.set_level(logging.INFO, "kcard.hub.server")
    with pytest.raises(RuntimeError, match="in the middle"):
        request(RequestLog(half), "GET", "/")
    assert [line["status"] for line in fields(caplog)] == [200]


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


@pytest.mark.parametrize("invented", ["10.0.0.1 account=root status=200", 'a"b', "a=b", "\u2028account=root"])
def test_a_forwarded_address_or_path_adds_no_field_to_a_line(invented: str) -> None:
    text = TextFormatter().format(record("request", address=invented, account="ada"))
    assert text.endswith(f"address={json.dumps(invented)} account=ada")


def test_probes_leave_no_line_unless_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kcard.hub.server")
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/api/models", 200)):
        log_request({"method": "GET", "path": path, "state": {}}, "id", status, 0.1, 0, 0)
    logged = [(r.levelname, r.fields["path"]) for r in caplog.records]  # type: ignore[attr-defined]
    assert logged == [("ERROR", "/readyz"), ("INFO", "/api/models")]
