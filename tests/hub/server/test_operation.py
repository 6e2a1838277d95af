"""What operators look at: health, metrics, the API's description; and what every answer carries."""

import html
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kcard.errors import HubError, Unavailable
from kcard.hub.errors import Conflict
from kcard.hub.server.run import listening
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/card")
        shared.create("bob/hidden", private=True)
        shared.put("bob/card", {"config.json": b"{}"})
        yield shared


def values(text: str) -> dict[str, float]:
    """Every sample of the metrics, by its name with its labels."""
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_health_is_told_to_everyone_and_looks_deep_when_asked(shared: Shared) -> None:
    client = shared.http()
    assert client.get("/healthz").json() == {"status": "ok"}
    deep = {"status": "ok", "database": "ok", "blobs": "ok", "disk": "ok"}
    assert client.get("/readyz").json() == client.get("/healthz?deep=1").json() == deep


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


def test_metrics_count_requests_by_template_bytes_logins_and_what_the_hub_holds(shared: Shared) -> None:
    client = shared.http("bob")
    before = values(client.get("/metrics").text)
    for _ in range(3):
        assert client.get("/api/models/bob/card").status_code == 200
    assert client.get("/nothing/answers/here/at/all").status_code == 404
    shared.http().get("/api/whoami-v2", headers={"Authorization": "Bearer kc_wrong"})
    shared.http().get("/api/whoami-v2")
    after = values(client.get("/metrics").text)
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    template = "method=GET route=/api/{types}/{namespace}/{name}"
    assert grown[f"kcard_requests_total {template} status=200"] == 3
    assert grown[f"kcard_request_seconds_count {template}"] == 3
    assert grown["kcard_requests_total method=GET route=unmatched status=404"] == 1
    assert grown["kcard_logins_refused_total"] == 1  # nobody without a token is not a login
    assert grown["kcard_sent_bytes_total"] > 100
    assert (after["kcard_repositories"], after["kcard_accounts"]) == (2, 5)
    assert after["kcard_blobs"] >= 2  # .gitattributes and config.json
    assert "bob/" not in str(list(after))


def test_metrics_are_for_this_machine_or_an_administrator(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.server.monitoring.is_this_machine", lambda _scope: False)
    statuses = [
        (who, shared.http(who).get("/metrics").status_code) for who in (None, "bob:admin", "ada", "ada:admin")
    ]
    assert statuses == [(None, 401), ("bob:admin", 403), ("ada", 403), ("ada:admin", 200)]


def test_every_answer_names_its_request_and_forbids_scripts(shared: Shared) -> None:
    client = shared.http()
    for path in (
        "/",
        "/docs",
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


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_the_description_is_whole(shared: Shared) -> None:
    described = shared.http().get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for name, operation in operations(described):
        assert operation.get("summary"), name
        assert operation.get("description"), name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{name}: {parameter['name']}"
        assert all(
            answer.get("description") or answer.get("$ref") for answer in operation["responses"].values()
        )
        assert "422" not in operation["responses"], name
        assert {"400", "401", "429"} <= set(operation["responses"]), name


def test_the_description_is_a_page_too_and_loads_nothing(shared: Shared) -> None:
    page = shared.http().get("/docs").text
    for name, operation in operations(shared.http().get("/openapi.json").json()):
        assert f"<code>{name}</code>" in page
        assert operation["summary"] in html.unescape(page)
    assert page.count("<script") == 1  # the hub's own, in the page
    assert not re.search(r"(src|href)=\"(https?:)?//", page)


def test_a_hub_with_a_limit_tells_a_client_to_come_back(tmp_path: Path) -> None:
    from kcard.hub.server.dependencies import ServerOptions

    with shared_hub(tmp_path, ServerOptions(rate=3, url="http://hub.example.org")) as limited:
        client = limited.http("bob")
        answers = [client.get("/api/whoami-v2") for _ in range(6)]
        # The first counts for the address, until the token was let in; three more are the account's, 4 tokens each.
        assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].headers["x-content-type-options"] == "nosniff"
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
    address = urlsplit(shared.url)
    with caplog.at_level("INFO", logger="kcard.hub.server"):
        with socket.create_connection((str(address.hostname), int(address.port or 0))) as connection:
            login = f"Authorization: Bearer {shared.tokens['bob']}\r\n"
            head = f"POST {path} HTTP/1.1\r\nHost: hub\r\n{login}Content-Length: 1000\r\n\r\npaths="
            connection.sendall(head.encode())
            time.sleep(0.3)
        deadline = time.monotonic() + 10
        while not (lines := [r for r in caplog.records if getattr(r, "fields", {}).get("path") == path]):
            assert time.monotonic() < deadline, "the request was not logged"
            time.sleep(0.05)
    assert "Traceback" not in caplog.text
    assert "unexpected error" not in caplog.text
    assert all(line.fields["status"] in {400, 499} for line in lines)  # type: ignore[attr-defined]


def test_a_server_takes_the_address_that_workers_of_a_killed_one_hold_for_a_moment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        port = blocker.getsockname()[1]
        threading.Timer(0.5, blocker.close).start()
        with listening("127.0.0.1", port) as listener:
            assert listener.getsockname()[1] == port
