"""Characters that PostgreSQL or a database's text can't hold are refused, wherever a client sends them."""

import json
from collections.abc import Iterator

import pytest

from tests.hub.server.attacks import commit, inline
from tests.hub.shared_hub import Shared, shared_hub

QUERIES = ("search", "author", "filter", "sort", "cursor", "pipeline_tag", "expand", "limit", "full")
PAGES = ("q", "author", "tag", "sort", "cursor")
CARD = "/api/models/bob/card"


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    url = None
    if request.param == "postgresql":
        cluster = request.getfixturevalue("cluster")
        url = cluster.create()
    with shared_hub(tmp_path_factory.mktemp("hub"), database_url=url) as hub:
        hub.create("bob/card")
        hub.create("bob/gated", gated="manual")
        yield hub
        hub.hub.database.close()


@pytest.mark.parametrize(
    "path",
    [
        *(f"/api/models?{name}=a%00b" for name in QUERIES),
        *(f"/?{name}=a%00b" for name in PAGES),
        "/datasets?q=%00",
        "/?author=%00",
        f"{CARD}?expand=%00",
        f"{CARD}/commits/main?expand[]=%00",
        f"{CARD}/tree/main?cursor=%00",
        "/api/models/bob/ca%00rd",
        "/api/models/b%00b/card",
        "/api/mo%00dels/bob/card",
        f"{CARD}/revision/ma%00in",
        f"{CARD}/tree/main/a%00b",
        f"{CARD}/tree/ma%00in",
        f"{CARD}/commits/%00",
        f"{CARD}/user-access-request/%00",
        "/bob/card/resolve/main/a%00b",
        "/bob/card/resolve/ma%00in/a",
        "/bob/card/raw/main/%00",
        "/bob/card/tree/%00",
        "/bob/%00",
        "/%00/card",
        "/card/resolve/main/%00",
        "/api/users/%00/overview",
        "/api/organizations/%00/overview",
        "/api/organizations/%00/members",
        "/lfs/%00?ticket=x",
    ],
)
def test_a_nul_in_an_address_is_a_400(shared: Shared, path: str) -> None:
    for who in (None, "bob"):
        answer = shared.http(who).get(path)
        assert answer.status_code == 400 or (answer.status_code == 405 and path.startswith("/lfs")), path
        if answer.status_code == 400:
            assert "NUL" in answer.json()["error"]


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
    shared: Shared, method: str, path: str, body: dict[str, object], odd: str
) -> None:
    content = json.dumps(body).replace("?", json.dumps(odd)[1:-1])
    headers = {"Content-Type": "application/json"}
    answer = shared.http("bob").request(method, path, content=content, headers=headers)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("odd", ODD, ids=["nul", "surrogate"])
@pytest.mark.parametrize("field", ["title", "message", "path", "tag", "value", "library", "pipeline"])
def test_such_a_character_in_a_commit_is_no_server_error(shared: Shared, field: str, odd: str) -> None:
    escaped = json.dumps(odd)
    lines = {"tag": f"tags: [{escaped}]", "value": f"x: {escaped}", "library": f"library_name: {escaped}"}
    lines["pipeline"] = f"pipeline_tag: {escaped}"
    if field in lines:
        answer = commit(
            shared, "bob", "bob/card", inline("README.md", f"---\n{lines[field]}\n---\n".encode())
        )
    else:
        title, message = (odd if field == name else "text" for name in ("title", "message"))
        header = {"key": "header", "value": {"summary": title, "description": message}}
        file = inline(odd if field == "path" else "a.txt", b"text")
        body = b"".join(json.dumps(line).encode() + b"\n" for line in (header, file))
        answer = shared.http("bob").post(f"{CARD}/commit/main", content=body)
    assert answer.status_code < 500, answer.text
    assert shared.http("bob").get(CARD).status_code == 200
    assert shared.http().get("/").status_code == 200


def test_a_cursor_with_a_nul_inside_is_a_400(shared: Shared) -> None:
    import base64

    for text in ('["lastModified","a\\u0000b",1]', '["\\u0000",1,1]', '["lastModified","\\ud800",1]'):
        cursor = base64.urlsafe_b64encode(text.encode()).decode()
        assert shared.http().get("/api/models", params={"cursor": cursor}).status_code == 400
