"""Ten thousand requests that no client sends: every route, with hostile values in every place, without an error of the
server's own. They are drawn by a seeded generator, so that a failure can be repeated, and reach the application
without a connection, so that any byte may stand anywhere.
"""

import asyncio
import base64
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kcard.errors import KcardError
from kcard.hub.accounts import Identity
from kcard.hub.listing import ListQuery
from kcard.hub.server.app import PAGES, ROUTERS, create_app
from kcard.hub.server.dependencies import COOKIE, ServerOptions, form_token
from kcard.hub.server.routes.uploads import PARTS_LIST, WHOLE_FILE, Claims, sign_ticket
from kcard.hub.services import HubServices
from tests.hub.postgres import BOTH

ROUTES = [route for router in (*ROUTERS, *PAGES) for route in router.routes if isinstance(route, APIRoute)]
FORMS = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")
NOT_BUILT = 501
PEOPLE = ("ada", "bob", "cleo")
RENEWED = 100  # requests after which what was deleted, revoked or disabled meanwhile is there again

# Values that have ended in an error of some server before.
NUMBERS = ("0", "-1", "1", "1.5", "1e400", "NaN", "-0", "٣", "1_000", "0x10", "9" * 30, "9" * 5000)
BOUNDS = tuple(str(2**bits + more) for bits in (15, 31, 32, 53, 63, 64) for more in (-1, 0))
TEXTS = (
    "", " ", "null", "true", "false", "[]", "{}", "..", ".", "../../etc/passwd", "a/b", "a//b", "a\\b", "C:", "con",
    ".git/config", "main", "refs/heads/main", "HEAD", "v1", "side", "*", "%", "'", '"', "';--", "<script>", "{{7*7}}",
    "${x}", "(" * 40, "[" * 40, "a" * 97, "a" * 300, "é" * 200, "a" * 5000, "\u202e", "\u2028", "\ufeff", "ſ", "İ",
    "ß", "\U0001f600", "\ufffe", "\n", "\r\n", "\t", "\x1b[31m", "\x7f", "a,b", "a&b=c", "a;b", "a|b", "word:*", "&",
    "!", "NOT", "OR", "NEAR(", '"a', "-a", "2020-01-01", "9999-12-31T23:59:59-23:59", "0001-01-01", "datasets", "space",
)  # fmt: skip
RAW = (
    "%00",
    "%",
    "%f",
    "%ff",
    "%zz",
    "%2e%2e",
    "%2F",
    "%252F",
    "%c0%ae",
    "%ed%a0%80",
    "\x01",
    "\x80",
    "\xff",
)
HEADERS = {
    "accept": ("", "*/*", "text/html", "application/json", "a" * 3000),
    "content-type": (
        "", "application/json", "application/json; charset=utf-7", "application/x-ndjson", "text/plain", "a/b; c",
        "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=x", "\xff",
        "application/vnd.git-lfs+json", 'multipart/form-data; boundary="' + "b" * 300 + '"',
    ),
    "range": ("bytes=0-", "bytes=-1", "bytes=5-1", "bytes=0-0,2-3", "bytes=" + "9" * 40 + "-", "bytes=a-b", "\xb2"),
    "if-none-match": ("*", '"', 'W/"x"', '"a", "b"', "\xff"),
    "if-range": ('"x"', "Tue, 99 Nov 1994 08:12:31 GMT", "x"),
    "if-modified-since": ("Tue, 15 Nov 1994 08:12:31 GMT", "never"),
    "content-length": ("", "-1", "0", "1", "9" * 25, "a", "1, 2", "\xb2"),
    "host": ("", "a", "[::1", "a:b", "a b", "\xff", "a" * 3000),
    "origin": ("null", "http://hub", "http://other", "\xff", "http://[::1"),
    "sec-fetch-site": ("same-origin", "cross-site", "none", ""),
    "x-forwarded-for": ("1.2.3.4", "a b=c", "\xff"),
    "x-forwarded-proto": ("https", "javascript", ""),
    "x-request-id": ("a" * 20, "\xff", ""),
    "transfer-encoding": ("chunked", "x"),
    "content-encoding": ("gzip", "br"),
    "cookie": (f"{COOKIE}=", f"{COOKIE}={'a' * 43}", "\xff", "=;=;", "a" * 3000),
}  # fmt: skip
BEARERS = (
    "Bearer",
    "Bearer ",
    "Basic YTpi",
    "Bearer kc_x",
    "Bearer hf_x",
    "Bearer \xff",
    "kc_",
    "Bearer kc_" + "a" * 400,
)


@dataclass(frozen=True)
class Request:
    """A request as the application gets it; `body` in the pieces in which it arrives."""

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: Sequence[bytes]

    def __str__(self) -> str:
        body = b"".join(self.body)[:300]
        return f"{self.method} {self.path[:300]!r}?{self.query[:300]!r} {self.headers!r} {body!r}"


class Target:
    """A hub with people, repositories, tokens and sessions, which requests may change."""

    def __init__(self, hub: HubServices) -> None:
        self.hub = hub
        self.tokens: list[str] = []
        self.sessions: list[str] = []
        self.real: dict[str, list[str]] = {}

    def renew(self, number: int) -> None:
        """Put back what requests took away; the tokens of this round are named by its number."""
        hub = self.hub
        self.tokens, self.sessions = [], []
        for name in PEOPLE:
            _do(lambda name=name: hub.accounts.add_user(name, admin=name == "ada"))
            _do(lambda name=name: hub.accounts.update(name, disabled=False, admin=name == "ada"))
            for scope in ("read", "write", "admin"):
                token = hub.tokens.create(name, name=f"{scope}-{number}", scope=scope)
                self.tokens.append(token)
                self.sessions.append(hub.sessions.open(name, token))
        _do(lambda: hub.accounts.add_organisation("lab", owner="bob"))
        ada = hub.tokens.identify(self.tokens[2])
        assert ada is not None
        oids = [self._add(name, ada) for name in ("bob/card", "bob/gated", "bob/secret", "lab/card")]
        commits = [found.head for found in hub.listing.page(ListQuery("model"), ada)[0] if found.head]
        claims: Claims = {"token": ada.token, "repository": 1, "oid": "ab" * 32, "size": 2, "count": 1}
        self.real = {
            "types": ["models", "datasets"],
            "namespace": ["bob", "bob", "bob", "lab", "BOB"],
            "name": ["card", "card", "gated", "secret", "bob/card"],
            "revision": ["main", "side", "v1", *commits],
            "path": ["config.json", "folder", "folder/a.txt", "README.md"],
            "branch": ["main", "side", "new"],
            "tag": ["v1", "v2", "knowledge-card"],
            "user": [*PEOPLE],
            "organisation": ["lab"],
            "organization": ["lab"],
            "status": ["pending", "accepted", "rejected"],
            "oid": ["ab" * 32, *oids],
            "ticket": [sign_ticket(hub.secret, purpose, claims, 600) for purpose in (WHOLE_FILE, PARTS_LIST)],
            "sort": ["likes", "downloads", "lastModified", "createdAt", "date", "relevance"],
            "type": ["model", "dataset"],
            "role": ["read", "write", "admin", "none"],
            "scope": ["read", "write", "admin"],
            "days": ["30", "never"],
            "visibility": ["public", "private"],
            "gated": ["no", "auto", "manual"],
            "operation": ["upload", "download"],
            "fromRepo": ["bob/card"],
            "toRepo": ["lab/moved", "bob/CARD"],
        }

    def _add(self, name: str, by: Identity) -> str:
        """The repository with two commits, a branch and a tag; returns the id of a file."""
        hub = self.hub
        owner = hub.accounts.get(name.partition("/")[0])
        private = name.endswith("secret")
        _do(lambda: hub.repositories.create("model", owner.id, name, private=private, by=by))
        _do(lambda: hub.repositories.create("dataset", owner.id, name, by=by))
        repository = hub.repositories.get("model", name)
        head = hub.refs.resolve(repository, "main")
        if name.endswith("gated"):
            hub.repositories.update(repository, gated="manual")
        _do(lambda: hub.refs.create_branch(repository, "side", head))
        _do(lambda: hub.refs.create_tag(repository, "v1", head))
        return next(iter(hub.commits.tree(repository, head).values())).sha256


def _do(work: Any) -> None:
    """Do the work, unless it is done already."""
    with suppress(KcardError):
        work()


def query_names(dependant: Dependant) -> list[str]:
    """The query parameters of an endpoint and of what it depends on."""
    names = [parameter.alias for parameter in dependant.query_params]
    for each in dependant.dependencies:
        names += query_names(each)
    return names


class Fuzzer:
    """Draws requests."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target, self.random = target, random.Random(seed)

    def request(self) -> Request:
        draw = self.random
        route = draw.choice(ROUTES)
        methods = sorted(route.methods or ()) if draw.random() < 0.95 else METHODS
        path = self._path(route)
        headers = {"host": "hub"}
        session = (
            draw.choice(self.target.sessions) if draw.random() < (0.8 if route in FORMS else 0.1) else ""
        )
        if session:
            headers |= {
                "cookie": f"{COOKIE}={session}",
                "origin": "http://hub",
                "sec-fetch-site": "same-origin",
            }
        elif draw.random() < 0.9:
            headers["authorization"] = f"Bearer {draw.choice(self.target.tokens)}"
        elif draw.random() < 0.5:
            headers["authorization"] = draw.choice(BEARERS)
        kind, body = self._body(route, session)
        if kind:
            headers["content-type"] = kind
        while draw.random() < 0.2:
            name = draw.choice(sorted(HEADERS))
            headers[name] = draw.choice(HEADERS[name])
        cut = draw.randrange(len(body) + 1)
        return Request(
            draw.choice(methods),
            path.encode("latin-1", "replace"),
            self._query(route).encode("latin-1", "replace"),
            [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            [body[:cut], body[cut:]],
        )

    def _path(self, route: APIRoute) -> str:
        """The path with a value for each of its parameters, most of which are of something that is there."""

        def fill(parameter: re.Match[str]) -> str:
            value = self._text(parameter[1], usual=0.95)
            return value if self.random.random() < 0.1 else quote(value, safe=self.random.choice(["", "/"]))

        path = PARAMETER.sub(fill, route.path)
        if self.random.random() < 0.03:
            place = self.random.randrange(1, len(path) + 1)
            path = path[:place] + self.random.choice(RAW) + path[place:]
        return path

    def _query(self, route: APIRoute) -> str:
        pairs = []
        for name in query_names(route.dependant):
            if self.random.random() < (0.9 if name == "ticket" else 0.3):
                pairs += [(name, self._text(name, usual=0.4))] * self.random.choice([1, 1, 1, 2, 30])
        query = urlencode(pairs, errors="replace")
        if self.random.random() < 0.03:
            query += self.random.choice(["&", "&cursor=", "&=", "?"]) + self.random.choice(RAW)
        return query

    def _text(self, name: str, usual: float) -> str:
        """A value of a parameter or field of that name."""
        draw = self.random
        if name == "cursor" and draw.random() < 0.8:
            return self._cursor()
        if name in self.target.real and draw.random() < usual:
            return draw.choice(self.target.real[name])
        anything = [value for values in self.target.real.values() for value in values]
        return draw.choice(draw.choice([TEXTS, TEXTS, NUMBERS, BOUNDS, anything]))

    def _cursor(self) -> str:
        """A place in a list, as nobody gave it out."""
        draw = self.random
        state: Any = [
            draw.choice(self.target.real["sort"]),
            draw.choice([-1, 1, -1.0, True]),
            self._json("", 1),
            self._json("", 1),
        ]
        if draw.random() < 0.2:
            state = self._json("", 2)
        text = base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
        return text if draw.random() < 0.9 else text[: draw.randrange(len(text) + 1)]

    def _json(self, name: str, depth: int) -> Any:
        """A value of JSON."""
        draw = self.random
        match draw.randrange(8):
            case 0:
                return draw.choice([None, True, False])
            case 1:
                return draw.choice([0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**30, 0.5, 1e308, float("nan")])
            case 2 if depth:
                return [self._json(name, depth - 1) for _ in range(draw.choice([0, 1, 3]))]
            case 3 if depth:
                return {self._text("", 0): self._json("", depth - 1) for _ in range(draw.choice([0, 1, 3]))}
            case 4:
                return draw.choice(["\0", "a\ud800b", "2020-01-01T00:00:00", "\udfff"])
            case _:
                return self._text(name, usual=0.7)

    def _body(self, route: APIRoute, session: str) -> tuple[str, bytes]:
        """The type and the bytes of a body, by what the route expects."""
        draw = self.random
        if draw.random() < 0.05:
            return draw.choice(HEADERS["content-type"]), draw.randbytes(draw.choice([0, 1, 100, 5000]))
        if session:
            fields = {name: self._text(name, usual=0.6) for name in self._names(route)}
            if draw.random() < 0.95:
                fields["form_token"] = form_token(self.target.hub.secret, session)
            return "application/x-www-form-urlencoded", urlencode(fields, errors="replace").encode()
        if "commit" in route.path and "POST" in (route.methods or ()):
            return "application/x-ndjson", b"\n".join(self._lines())
        if "paths-info" in route.path:
            return "application/x-www-form-urlencoded", urlencode({"paths": self._text("path", 0.7)}).encode()
        value: Any = {name: self._json(name, 2) for name in self._names(route)}
        if draw.random() < 0.1:
            value = self._json("", 3)
        return "application/json", json.dumps(value).encode()

    def _names(self, route: APIRoute) -> list[str]:
        """Names of fields of the body: the model's own where there is one, else of the forms of the pages."""
        model = None if route.body_field is None else route.body_field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            return [name for name in model.model_fields if self.random.random() < 0.9]
        return [name for name in FIELDS if self.random.random() < 0.5]

    def _lines(self) -> Iterator[bytes]:
        """The lines of a commit."""
        draw = self.random
        summary: dict[str, Any] = {"summary": self._text("", 0) or "change", "description": self._text("", 0)}
        if draw.random() < 0.2:
            summary["parentCommit"] = self._json("revision", 1)
        yield json.dumps({"key": "header", "value": summary}).encode()
        for _ in range(draw.choice([0, 1, 1, 2])):
            key = draw.choice(["file", "lfsFile", "deletedFile", "deletedFolder", self._text("", 0)])
            value: dict[str, Any] = {"path": self._text("path", usual=0.6)}
            if key == "file":
                content = draw.choice(
                    [b"{}", b"---\ntags: [a]\n---\n", b"\x80\x02.", b"[" * 70, draw.randbytes(20)]
                )
                value |= {"content": base64.b64encode(content).decode(), "encoding": "base64"}
            if key == "lfsFile":
                value |= {"algo": "sha256", "oid": self._text("oid", 0.9)}
            for name in list(value):
                if draw.random() < 0.1:
                    value[name] = self._json(name, 1)
            yield json.dumps({"key": key, "value": value}).encode()


PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
FIELDS = ("name", "token", "next", "everywhere", "scope", "days", "repository", "note")


async def answer(app: Any, request: Request) -> int:
    """The status that the application answers with."""
    statuses: list[int] = []
    pieces = [*request.body]

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()  # the client waits for the answer
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path.decode("latin-1"),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": [*request.headers],
        "client": ("127.0.0.1", 1),
        "server": ("hub", 80),
    }
    await app(scope, receive, send)
    return statuses[0] if statuses else 0


def fuzz(hub: HubServices, log: pytest.LogCaptureFixture, count: int, seed: int) -> list[str]:
    """What ended in an error of the server, with what it logged, or in none of its answers."""
    target = Target(hub)
    app = create_app(hub, ServerOptions(rate=0))
    fuzzer = Fuzzer(target, seed)
    wrong: list[str] = []

    async def send_all() -> None:
        for number in range(count):
            if number % RENEWED == 0:
                target.renew(number)
            request = fuzzer.request()
            log.clear()
            status = await answer(app, request)
            if status >= 500 and status != NOT_BUILT:
                wrong.append(f"{status} to request {number}: {request}\n{log.text[-1500:]}")

    asyncio.run(send_all())
    return wrong


@pytest.fixture(params=BOTH)
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HubServices]:
    url = None if request.param == "sqlite" else str(request.getfixturevalue("postgres_hub"))
    hub = HubServices(tmp_path / "home", database_url=url, quota=10_000_000)
    yield hub
    hub.database.close()


def test_no_hostile_request_ends_in_an_error_of_the_server(
    hub: HubServices, caplog: pytest.LogCaptureFixture
) -> None:
    assert fuzz(hub, caplog, count=300, seed=1) == []


@pytest.mark.slow
def test_ten_thousand_hostile_requests_end_in_no_error_of_the_server(
    hub: HubServices, caplog: pytest.LogCaptureFixture
) -> None:
    assert fuzz(hub, caplog, count=10_000, seed=2) == []
