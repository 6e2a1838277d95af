"""Who asks and what is answered: tokens, pages, addresses, headers and connections under attack."""

import ast
import hashlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from kcard.hub.db.models import LoggedEvent, Token, now
from kcard.hub.errors import Invalid
from kcard.hub.server import app as application
from kcard.hub.server import responses
from kcard.hub.server.logs import JsonFormatter, TextFormatter
from tests.hub.server.attacks import commit, deleted, inline, lines, raw
from tests.hub.shared_hub import Shared, shared_hub

NAME = "bob/target"
CLOSE = "\r\nHost: hub\r\nConnection: close\r\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create(NAME)
        shared.create("bob/secret", private=True, files={"config.json": b"{}"})
        yield shared


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_is_stored_as_its_hash_only(shared: Shared) -> None:
    token = shared.tokens["bob"]
    with shared.hub.database.read() as connection:
        digests = set(connection.scalars(select(Token.digest)))
    assert hashlib.sha256(token.encode()).hexdigest() in digests
    files = [path for path in shared.folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if token.encode() in path.read_bytes()]


def test_a_token_is_in_no_log_and_no_answer(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    token, wrong = shared.tokens["bob"], "kc_" + "w" * 40
    with caplog.at_level(logging.DEBUG):
        answers = [
            shared.http("bob").get("/api/whoami-v2").text,
            shared.http("bob").get(f"/api/models/{token}/{token}").text,
            shared.http().get("/api/whoami-v2", headers={"Authorization": f"Bearer {wrong}"}).text,
            shared.http().get("/api/whoami-v2", headers={"Authorization": wrong}).text,
            shared.http().get(f"/api/models?search=x&token={token}").text,
        ]
    ours = [record for record in caplog.records if record.name.startswith("kcard")]
    logged = "".join(form.format(record) for record in ours for form in (TextFormatter(), JsonFormatter()))
    assert logged
    assert token not in logged
    assert wrong not in logged + "".join(answers)
    assert token not in answers[0]


@pytest.mark.parametrize(
    "header", ["Bearer kc_" + "x" * 40, "Bearer", "Basic Ym9iOmJvYg==", "kc_", "Bearer \xff", "Bearer a b"]
)
def test_a_token_that_is_none_is_nobodys(shared: Shared, header: str) -> None:
    for path in ("/api/whoami-v2", f"/api/models/{NAME}"):
        answer = shared.http().get(path, headers={b"Authorization": header.encode("latin-1")})
        assert answer.status_code == 401


def test_a_token_of_the_other_hub_is_refused_with_a_warning(shared: Shared) -> None:
    answer = shared.http(token="hf_" + "x" * 34).get("/api/whoami-v2")
    assert answer.status_code == 401
    assert "Hugging Face" in answer.headers["X-Error-Message"]
    assert "hf_x" not in answer.text


def test_a_token_ends_when_it_said(shared: Shared) -> None:
    token = shared.hub.tokens.create("dan", name="short", days=1)
    http = shared.http(token=token)
    assert http.get("/api/whoami-v2").status_code == 200
    with shared.hub.database.write() as connection:
        connection.execute(update(Token).where(Token.name == "short").values(expires=now()))
    assert http.get("/api/whoami-v2").status_code == 401


def test_a_revoked_token_and_one_of_a_disabled_account_end_at_once(shared: Shared) -> None:
    shared.hub.accounts.add_user("eve")
    mine, other = (
        shared.http(token=shared.hub.tokens.create("eve", name=name)) for name in ("mine", "other")
    )
    shared.hub.tokens.revoke("eve", "mine")
    assert mine.get("/api/whoami-v2").status_code == 401
    assert other.get("/api/whoami-v2").status_code == 200
    shared.hub.accounts.update("eve", disabled=True)
    assert other.get("/api/whoami-v2").status_code == 401


WRITES = [
    ("POST", f"/api/models/{NAME}/commit/main"),
    ("POST", f"/api/models/{NAME}/preupload/main"),
    ("POST", f"/api/models/{NAME}/branch/b"),
    ("DELETE", f"/api/models/{NAME}/branch/b"),
    ("POST", f"/api/models/{NAME}/tag/main"),
    ("DELETE", f"/api/models/{NAME}/tag/t"),
    ("PUT", f"/api/models/{NAME}/settings"),
]


def written(shared: Shared, who: str | None, method: str, path: str) -> int:
    body = {"files": [], "tag": "t", "private": False}
    content = {"content": lines(inline("a.json", b"1"))} if "/commit/" in path else {"json": body}
    return shared.http(who).request(method, path, **content).status_code


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_token_that_reads_writes_nothing(shared: Shared, method: str, path: str) -> None:
    for who, expected in (("bob:read", 403), ("dan", 403), ("dan:admin", 403), (None, 401)):
        assert written(shared, who, method, path) == expected
    path = path.replace("target", "secret")
    for who, expected in (("dan", 404), ("dan:admin", 404), (None, 401)):
        assert written(shared, who, method, path) == expected


def test_a_token_of_one_repository_writes_to_no_other(shared: Shared) -> None:
    shared.create("bob/bound")
    http = shared.http(token=shared.hub.tokens.create("bob", name="bound", repository="bob/bound"))
    body = lines(inline("a.json", b"1"))
    assert http.post("/api/models/bob/bound/commit/main", content=body).status_code == 200
    assert http.post(f"/api/models/{NAME}/commit/main", content=body).status_code == 403
    assert http.post("/api/models/bob/secret/commit/main", content=body).status_code == 404
    assert http.post("/api/repos/create", json={"name": "another"}).status_code == 403


# --- pull requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["?create_pr=1", "?create_pr=true", "?create_pr=True", "?create_pr=0&create_pr=1"]
)
def test_a_pull_request_is_refused_and_not_committed(shared: Shared, query: str) -> None:
    before = shared.api().model_info(NAME).sha
    assert commit(shared, "bob", NAME, inline("a.json", b"1"), query=query).status_code == 501
    assert shared.api().model_info(NAME).sha == before


# --- scripts on pages -----------------------------------------------------------------------------------------------

SCRIPTS = """---
license: mit
---
<script>attack()</script> <img src=x onerror=attack()> <svg onload=attack()> <iframe src=//evil></iframe>
[click](javascript:attack()) [data](data:text/html,attack) ![x](http://evil.example/seen.png)
<a href="JaVaScRiPt:attack()">a</a> <style>body{background:url(http://evil.example)}</style>
<form action=//evil><input></form> <math><mi xlink:href="data:x,attack()"></mi></math>
"""


def test_a_readme_runs_nothing_on_its_page(shared: Shared) -> None:
    shared.create("bob/page")
    assert commit(shared, "bob", "bob/page", inline("README.md", SCRIPTS.encode())).status_code == 200
    page = shared.http().get("/bob/page")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "img-src 'self'" in policy
    assert "'unsafe-inline'" not in policy
    text = page.text.lower()
    shown = text[text.index("click") - 500 :]
    for attack in (
        *("<script>attack", "onerror=", "onload=", "<iframe", 'href="javascript:', 'href="data:'),
        "<form action=//",
    ):
        assert attack not in shown
    assert 'src="http://evil.example' not in text


# --- addresses that the server could be made to fetch -----------------------------------------------------------------

# What could open a connection. fsspec is what the operator's own store is reached by.
FETCHES = {
    *("httpx", "httpx2", "requests", "urllib3", "aiohttp", "http.client", "urllib.request"),
    *("huggingface_hub", "socket", "ftplib"),
}


def test_the_server_imports_nothing_that_fetches() -> None:
    folder = Path(str(application.__file__)).parent
    imported = {
        (path.name, name)
        for part in ("server/**", "checks/**", "[!_]")
        for path in sorted(folder.parent.glob(f"{part}*.py" if part == "[!_]" else f"{part}/*.py"))
        for name in _imports(path)
    }
    assert ("app.py", "fastapi") in imported
    # run.py opens the socket that is listened on, and asks its own /healthz before it says that it is ready.
    assert {file for file, name in imported if name in FETCHES} <= {"run.py"}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_an_address_in_a_card_is_never_fetched(shared: Shared) -> None:
    shared.create("bob/fetches")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        readme = (
            f"---\nlicense: mit\nthumbnail: {url}/a.png\nbase_model: {url}/b\n---\n![x]({url}/c.png) {url}\n"
        )
        shared.http("bob").post("/api/validate-yaml", json={"content": readme})
        config = inline("config.json", b'{"url": "%s"}' % url.encode())
        answer = commit(shared, "bob", "bob/fetches", inline("README.md", readme.encode()), config)
        assert answer.status_code in {200, 400}
        for path in ("/bob/fetches", "/", "/api/models/bob/fetches", "/api/models?full=true"):
            assert shared.http().get(path).status_code == 200
        listening.settimeout(0.5)
        with pytest.raises(TimeoutError):
            listening.accept()


# --- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/bob/none%0d%0aX-Evil:%201/resolve/main/a.json",
        "/bob/target/resolve/none%0d%0aX-Evil:%201/a.json",
        "/bob/target/resolve/main/none%0d%0aX-Evil:%201",
        "/api/models/bob/target/tree/main/none%0d%0aX-Evil:%201",
        "/api/models/bob/target/revision/%E2%80%AE%0aX-Evil:%201",
        "/api/models?search=a%0d%0aX-Evil:%201&limit=1",
        "/api/models?sort=%0d%0aX-Evil:%201",
        "/api/models?limit=1&filter=%0d%0aX-Evil:%201",
        "/api/models?limit=1&author=bob&x=%0d%0aX-Evil:%201",
        "/bob/target%0d%0aX-Evil:%201",
        "/api/models/bob/target/revision/%E6%97%A5%E6%9C%AC",
    ],
)
def test_a_line_end_in_an_address_begins_no_header(shared: Shared, path: str) -> None:
    answer = raw(shared, f"GET {path} HTTP/1.1{CLOSE}\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 ")
    assert int(head.split()[1]) < 500
    assert b"\nx-evil" not in head.lower()
    assert all(0x20 <= byte < 0x7F or byte in b"\r\n" for byte in head)


def test_a_line_end_in_a_message_begins_no_header() -> None:
    headers = responses.make_json_error(Invalid("a\r\nX-Evil: 1\u2028\x85b")).headers
    assert headers["X-Error-Message"] == "a X-Evil: 1 b"


def test_a_line_end_in_a_body_begins_no_header(shared: Shared) -> None:
    evil = "evil\r\nX-Evil: 1\r\n\r\nbody"
    http = shared.http("bob")
    answers = [
        commit(shared, "bob", NAME, inline(evil, b"1")),
        commit(shared, "bob", NAME, deleted("none\\" + evil)),
        http.post("/api/repos/create", json={"name": evil}),
        http.post("/api/repos/create", json={"name": "x", "type": evil}),
        http.post(f"/api/models/{NAME}/tag/main", json={"tag": evil}),
        http.post(f"/api/models/{NAME}/branch/b", json={"startingPoint": evil}),
        http.post("/api/repos/move", json={"fromRepo": NAME, "toRepo": evil}),
    ]
    for each in answers:
        assert 400 <= each.status_code < 500
        assert "x-evil" not in each.headers


def test_a_line_end_in_a_title_stays_out_of_headers_and_log(shared: Shared) -> None:
    shared.create("bob/titled")
    header = b'{"key": "header", "value": {"summary": "a\\r\\nX-Evil: 1", "description": "b\\nc"}}\n'
    body = header + lines(inline("a.json", b"1")).partition(b"\n")[2]
    answer = shared.http("bob").post("/api/models/bob/titled/commit/main", content=body)
    assert answer.status_code == 200
    assert "x-evil" not in answer.headers
    newest = shared.http().get("/api/models/bob/titled/commits/main").json()[0]
    assert (newest["title"], newest["message"]) == ("a X-Evil: 1", "b\nc")
    with shared.hub.database.read() as connection:
        assert not [row for row in connection.execute(select(LoggedEvent.detail)) if "\n" in row.detail]


# --- connections ----------------------------------------------------------------------------------------------------

SMUGGLED = "GET /api/models/bob/smuggled HTTP/1.1\r\nHost: hub\r\n\r\n"
LENGTH = len(SMUGGLED)


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        f"Transfer-Encoding: chunked\r\nContent-Length: {LENGTH}\r\n\r\n0\r\n\r\n" + SMUGGLED,
        f"Content-Length: 0\r\nContent-Length: {LENGTH}\r\n\r\n" + SMUGGLED,
        "Content-Length: -1\r\n\r\n" + SMUGGLED,
        "Content-Length: +0\r\n\r\n" + SMUGGLED,
        "Content-Length : 0\r\n\r\n" + SMUGGLED,
        "Transfer-Encoding: identity, chunked, x\r\n\r\n0\r\n\r\n" + SMUGGLED,
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    ],
)
def test_a_body_of_two_lengths_hides_no_second_request(shared: Shared, head: str) -> None:
    answer = raw(shared, f"POST /api/validate-yaml HTTP/1.1\r\nHost: hub\r\n{head}".encode())
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert not answer or int(answer.split()[1]) == 400


@pytest.mark.parametrize("path", [f"/api/models/{NAME}/commit/main", "/api/repos/create"])
def test_a_body_that_was_refused_unread_is_no_second_request(shared: Shared, path: str) -> None:
    request = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Length: {LENGTH}\r\n\r\n{SMUGGLED}"
    answer = raw(shared, request.encode())
    assert answer.count(b"HTTP/1.1 ") == 1
    assert int(answer.split()[1]) in {400, 401}
