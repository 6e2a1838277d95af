"""Addresses: names that would make one mean two things, HEAD, NUL, and other odd characters."""

import functools
import json
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import event
from starlette.routing import Match, Route

from kcard.hub.accounts import AMBIGUOUS, RESERVED_NAMES
from kcard.hub.db.models import Repository
from kcard.hub.errors import Invalid
from kcard.hub.server.app import PAGES, ROUTERS
from tests.hub.server.attacks import commit, inline, raw, wait_for
from tests.hub.shared_hub import Shared, shared_hub
from tests.hub.stand import recorded_statements

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
WORDS = {part for route in ROUTES for part in route.path.split("/") if part and "{" not in part}
USUAL = {"types": "models", "namespace": "ada", "name": "card", "revision": "main", "path": "a/b.txt"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """bob/card with two files, and bob/hidden, a private repository with much metadata."""
    with shared_hub(tmp_path_factory.mktemp("hub")) as hub:
        hub.create("bob/card", files={"README.md": b"# Card\n", "w.safetensors": b"x"})
        hub.create("bob/hidden", private=True)
        items = "".join(f"- {'word' * 10} {number}\n" for number in range(2000))
        hub.put("bob/hidden", {"README.md": f"---\nitems:\n{items}---\n".encode()})
        yield hub


@functools.cache
def reached(place: int, method: str, **parameters: str) -> str | None:
    """The template of the first route that answers the path of the one at this place."""
    values = {**USUAL, **parameters}
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1], "x"), ROUTES[place].path)
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return next((other.path for other in ROUTES if other.matches(scope)[0] is Match.FULL), None)


def ambiguous(**parameters: str) -> bool:
    """Whether a path with these parameters reaches another route than usual."""
    return any(
        reached(place, method, **parameters) != reached(place, method)
        for place, route in enumerate(ROUTES)
        for method in route.methods or ()
        if "{namespace}" in route.path and any(f"{{{name}" in route.path for name in parameters)
    )


def test_every_name_that_makes_a_url_ambiguous_is_refused() -> None:
    assert {word for word in WORDS if ambiguous(name=word)} <= AMBIGUOUS
    assert {word for word in WORDS if ambiguous(namespace=word)} <= AMBIGUOUS | RESERVED_NAMES
    assert "resolve" in {word for word in WORDS if ambiguous(name=word)}
    for kind in ("revision", "branch", "tag", "path"):  # they have a segment of their own
        assert not [word for word in WORDS if ambiguous(**{kind: word})]


@pytest.mark.parametrize("name", [*sorted(AMBIGUOUS), "Resolve"])
def test_such_a_name_is_refused_for_new_repositories_and_accounts(shared: Shared, name: str) -> None:
    client = shared.http("bob")
    answer = client.post("/api/repos/create", json={"name": name})
    assert answer.status_code == 400
    assert f"name {name!r} is reserved" in answer.json()["error"]
    moved = client.post("/api/repos/move", json={"fromRepo": "bob/card", "toRepo": f"bob/{name}"})
    assert moved.status_code == 400
    with pytest.raises(Invalid, match="is reserved"):
        shared.hub.accounts.add_user(name)


def test_every_first_segment_of_a_route_with_more_segments_is_reserved(shared: Shared) -> None:
    routes = [route for router in (*ROUTERS, *PAGES) for route in router.routes if isinstance(route, Route)]
    first = {route.path.split("/")[1] for route in routes if route.path.count("/") > 1}
    segments = {segment for segment in first if not segment.startswith("{")}
    assert {"api", "datasets", "lfs"} <= segments
    for name in (*segments, "Library"):
        with pytest.raises(Invalid, match="is reserved"):
            shared.hub.accounts.add_user(name)


def test_a_repository_of_before_with_such_a_name_keeps_working(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("kcard.hub.accounts.AMBIGUOUS", set())
        shared.create("bob/raw")
    shared.put("bob/raw", {"README.md": b"# Raw\n"})
    client = shared.http("bob")
    assert client.get("/bob/raw/resolve/main/README.md").text == "# Raw\n"
    assert client.post("/api/repos/create", json={"name": "raw"}).status_code == 409
    moved = client.post("/api/repos/move", json={"fromRepo": "bob/raw", "toRepo": "lab/raw"})
    assert moved.status_code == 200
    deleted = client.request("DELETE", "/api/repos/delete", json={"name": "raw", "organization": "lab"})
    assert deleted.status_code == 200


@pytest.mark.parametrize("who", [None, "dan"])
def test_a_private_repository_takes_the_same_work_as_a_missing_one(shared: Shared, who: str | None) -> None:
    read: list[object] = []

    def noted(row: Repository, _context: object) -> None:
        read.append(row)

    event.listen(Repository, "load", noted)
    runs = []
    for name in ("hidden", "absent"):
        with recorded_statements() as statements:
            assert shared.http(who).get(f"/api/models/bob/{name}").status_code in {401, 404}
        runs.append(statements)
    assert runs[0] == runs[1]
    assert read == []
    assert shared.http("bob").get("/api/models/bob/hidden").status_code == 200
    assert read != []


# HEAD answers wherever GET does, with the same headers and no body.


CARD = "/api/models/bob/card"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/datasets",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/bob/card",
        "/bob/card/tree/main",
        "/bob/none",
        "/api/models",
        CARD,
        f"{CARD}/tree/main",
        f"{CARD}/commits/main",
        f"{CARD}/refs",
        "/api/whoami-v2",
        "/bob/card/raw/main/README.md",
        "/bob/card/resolve/main/README.md",
        "/nothing/at/all/here",
    ],
)
def test_head_is_get_without_its_body(shared: Shared, path: str) -> None:
    client = shared.http("bob")
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length", "etag", "x-error-code", "x-repo-commit"):
        assert head.headers.get(name) == got.headers.get(name), name


def test_what_has_no_get_has_no_head(shared: Shared) -> None:
    assert shared.http("bob").head("/api/repos/create").status_code in {404, 405}
    answer = shared.http("bob").head(f"{CARD}/commit/main")
    assert answer.status_code == 405


def test_head_is_logged_as_head(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kcard.hub.server")
    shared.http().head("/bob/card")

    def logged() -> bool:
        fields = [getattr(record, "fields", {}) for record in caplog.records]
        return ("HEAD", "/bob/card", 200) in [
            (f.get("method"), f.get("path"), f.get("status")) for f in fields
        ]

    wait_for(logged)  # the line is written after the answer was sent


# Characters that PostgreSQL or a database's text can't hold are refused, wherever a client sends them.


@pytest.fixture(scope="module")
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A hub on PostgreSQL, which takes fewer characters than SQLite does; on SQLite where there is none."""
    url = None
    with suppress(pytest.skip.Exception):
        url = request.getfixturevalue("cluster").create()
    with shared_hub(tmp_path_factory.mktemp("hub"), database_url=url) as hub:
        hub.create("bob/card")
        hub.create("bob/gated", gated="manual")
        yield hub
        hub.hub.database.close()


@pytest.mark.parametrize(
    "path",
    [
        *("/api/models?search=a%00b", "/api/models?limit=%00", "/?q=a%00b", "/datasets?tag=%00"),
        *(f"{CARD}?expand=%00", f"{CARD}/commits/main?expand[]=%00", "/lfs/%00?ticket=x"),
        *(
            "/api/mo%00dels/bob/card",
            "/api/models/b%00b/card",
            f"{CARD}/tree/ma%00in",
            f"{CARD}/tree/main/a%00b",
        ),
        *("/bob/card/resolve/main/a%00b", "/bob/%00", "/card/resolve/main/%00", "/api/models/%00/card"),
    ],
)
def test_a_nul_in_an_address_is_a_400(strict: Shared, path: str) -> None:
    for who in (None, "bob"):
        answer = strict.http(who).get(path)
        assert answer.status_code == 400 or (answer.status_code == 405 and path.startswith("/lfs")), path
        if answer.status_code == 400:
            assert "NUL" in answer.json()["error"]


@pytest.mark.parametrize("host", ["[::1", "[1:2]", "a b", "a/b", "user@host", "host:port", "\xff"])
def test_a_host_that_is_none_is_a_400(shared: Shared, host: str) -> None:
    request = b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode("latin-1")
    assert raw(shared, request).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "address", [b"/api/models?search=\xff", b"/?q=\x80", b"/\xff/card", b"/leaderboard?\xc3\xa9=\xff"]
)
def test_bytes_beyond_ascii_in_an_address_are_no_server_error(shared: Shared, address: bytes) -> None:
    request = b"GET %s HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n" % address
    assert raw(shared, request)[:10] in {b"HTTP/1.1 2", b"HTTP/1.1 4"}


ODD = ["a\0b", "a\ud800b"]


@pytest.mark.parametrize("odd", ODD, ids=["nul", "surrogate"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/repos/create", {"name": "?"}),
        ("POST", "/api/repos/create", {"name": "new", "organization": "?"}),
        ("POST", "/api/repos/move", {"fromRepo": "bob/card", "toRepo": "bob/?"}),
        ("POST", "/api/repos/move", {"fromRepo": "bob/?", "toRepo": "bob/new"}),
        ("DELETE", "/api/repos/delete", {"name": "?"}),
        ("POST", f"{CARD}/tag/main", {"tag": "?"}),
        ("POST", f"{CARD}/tag/main", {"tag": "t1", "message": "?"}),
        ("POST", f"{CARD}/branch/b1", {"startingPoint": "?"}),
        ("POST", f"{CARD}/paths-info/main", {"paths": ["?"]}),
        ("POST", f"{CARD}/preupload/main", {"files": [{"path": "?", "size": 1}]}),
        ("POST", "/api/models/bob/gated/user-access-request/grant", {"user": "?"}),
        ("POST", "/api/models/bob/gated/user-access-request/handle", {"user": "?", "status": "accepted"}),
        ("POST", "/api/validate-yaml", {"content": "?", "repoType": "model"}),
    ],
)
def test_such_a_character_in_a_body_is_no_server_error(
    strict: Shared, method: str, path: str, body: dict[str, object], odd: str
) -> None:
    content = json.dumps(body).replace("?", json.dumps(odd)[1:-1])
    headers = {"Content-Type": "application/json"}
    answer = strict.http("bob").request(method, path, content=content, headers=headers)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("odd", ODD, ids=["nul", "surrogate"])
@pytest.mark.parametrize("field", ["title", "message", "path", "tag", "value", "library", "pipeline"])
def test_such_a_character_in_a_commit_is_no_server_error(strict: Shared, field: str, odd: str) -> None:
    escaped = json.dumps(odd)
    lines = {"tag": f"tags: [{escaped}]", "value": f"x: {escaped}", "library": f"library_name: {escaped}"}
    lines["pipeline"] = f"pipeline_tag: {escaped}"
    if field in lines:
        answer = commit(
            strict, "bob", "bob/card", inline("README.md", f"---\n{lines[field]}\n---\n".encode())
        )
    else:
        title, message = (odd if field == name else "text" for name in ("title", "message"))
        header = {"key": "header", "value": {"summary": title, "description": message}}
        file = inline(odd if field == "path" else "a.txt", b"text")
        body = b"".join(json.dumps(line).encode() + b"\n" for line in (header, file))
        answer = strict.http("bob").post(f"{CARD}/commit/main", content=body)
    assert answer.status_code < 500, answer.text
    assert strict.http("bob").get(CARD).status_code == 200
    assert strict.http().get("/").status_code == 200
