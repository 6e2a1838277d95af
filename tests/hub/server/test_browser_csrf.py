"""Attacks on the forms of the pages: other sites, foreign tokens, scripts in what people type."""

import re
from collections.abc import Iterator, Mapping

import pytest
from fastapi.routing import APIRoute
from starlette.requests import Request

from kcard.hub.errors import Forbidden
from kcard.hub.server.app import PAGES
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.web.render import require_same_origin
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared

EVIL = "https://evil.example"
SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/target")
        shared.create("bob/target", "dataset")
        shared.put("bob/target", {"README.md": b"# Before"})
        shared.create("bob/gated", gated="manual")
        yield shared


def posts() -> list[str]:
    """The path of every form of the pages."""
    routes = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
    values = {"namespace": "bob", "name": "target", "organisation": "lab", "account": "bob"}
    paths = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(paths) > 20
    return [re.sub(r"\{(\w+)\}", lambda match: values[match[1]], path) for path in paths]


FOREIGN: list[Mapping[str, str]] = [
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": EVIL, "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_no_form_is_accepted_from_another_origin(shared: Shared, headers: Mapping[str, str]) -> None:
    """Even with the cookie and the right form token."""
    admin = Browser(shared).log_in("ada:admin")
    admin.open("/settings")
    for path in posts():
        answer = admin.http.post(path, data={"form_token": admin.form_token}, headers=headers)
        assert answer.status_code == 403, path
        assert "not sent from a page of this hub" in text(answer), path


@pytest.mark.parametrize("forged", ["", "0" * 64, "another", "ä"])
def test_no_form_is_accepted_without_the_token_of_its_session(shared: Shared, forged: str) -> None:
    admin, other = Browser(shared).log_in("ada:admin"), Browser(shared).log_in("dan")
    other.open("/settings")
    token = other.form_token if forged == "another" else forged
    for path in posts():
        files = {"files": ("a.txt", b"x")} if path.endswith("/upload") else None
        headers = {"Origin": shared.url}
        answer = admin.http.post(path, data={"form_token": token}, files=files, headers=headers)
        assert answer.status_code == 403, path
        assert "another session" in text(answer), path


def test_form_of_a_closed_session_changes_nothing(shared: Shared, bob: Browser) -> None:
    shared.hub.sessions.close(bob.session)
    answer = bob.send("/settings", {"fullname": "Mallory"})
    assert answer.status_code == 401
    assert "log in" in text(answer)
    assert shared.hub.accounts.get("bob").fullname == "Bob"


def test_pages_let_no_other_site_frame_them_and_run_no_script(shared: Shared) -> None:
    admin = Browser(shared).log_in("ada:admin")
    for path in ("/", "/settings", "/settings/tokens", "/bob/target/settings", "/bob", "/none/none"):
        headers = admin.http.get(path).headers
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        for part in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
            assert part in policy, path
        assert "unsafe" not in policy
        assert re.search(r"script-src 'sha256-[^ ]+';", policy)  # the hub's own


def test_names_descriptions_and_notes_run_nothing(shared: Shared, bob: Browser) -> None:
    assert bob.send("/settings", {"fullname": SCRIPT, "description": SCRIPT + "\nsecond"}).status_code == 303
    bob.open("/settings/organizations")
    bob.send("/settings/organizations", {"name": "scripted", "fullname": SCRIPT})
    bob.send("/organizations/scripted", {"description": SCRIPT, "fullname": SCRIPT})
    bob.send("/settings/tokens", {"name": SCRIPT, "scope": "read", "days": "30"})
    bob.send("/bob/target/edit", {"text": f"# {SCRIPT}\n[a](javascript:alert(1))", "title": SCRIPT})
    dan = Browser(shared).log_in("dan")
    dan.open("/bob/gated")
    assert dan.send("/bob/gated/access", {"note": SCRIPT}).status_code == 303
    admin = Browser(shared).log_in("ada:admin")
    pages = {
        "/bob": 2,
        "/settings": 2,
        "/settings/tokens": 1,
        "/scripted": 2,
        "/organizations/scripted": 2,
        "/bob/gated/access": 1,
        "/bob/target": 1,
        "/bob/target/edit": 1,
    }
    for path, least in pages.items():
        page = bob.open(path)
        assert page.count("&lt;script&gt;alert(1)") >= least, path
        harmless(page, path)
    for path in (
        "/settings/hub/accounts",
        "/settings/hub/accounts/bob",
        "/settings/hub/log",
        "/bob/gated/access",
    ):
        page = admin.open(path)
        assert "&lt;script&gt;alert(1)" in page, path
        harmless(page, path)


def test_errors_repeat_what_was_typed_without_running_it(shared: Shared, bob: Browser) -> None:
    sent = {
        "/settings/organizations": {"name": SCRIPT},
        "/new": {"owner": SCRIPT, "name": SCRIPT, "visibility": SCRIPT},
        "/settings/tokens": {"name": "x", "scope": SCRIPT, "days": SCRIPT, "repository": SCRIPT},
        "/bob/target/settings": {"visibility": SCRIPT, "gated": SCRIPT},
        "/bob/target/settings/move": {"to": SCRIPT},
        "/bob/target/settings/delete": {"confirm": SCRIPT},
        "/bob/target/publish": {"tag": SCRIPT},
        "/organizations/lab/members": {"user": SCRIPT, "role": SCRIPT},
        "/bob/gated/access/answer": {"user": SCRIPT, "state": "granted"},
        "/login": {"name": SCRIPT, "token": SCRIPT, "next": SCRIPT},
    }
    for path, values in sent.items():
        answer = bob.send(path, values)
        assert 400 <= answer.status_code < 500, path
        harmless(answer.text, path)
    admin = Browser(shared).log_in("ada:admin")
    admin.open("/settings")
    for path in (f"/{SCRIPT}", f"/login?next={SCRIPT}", f"/settings/hub/log?actor={SCRIPT}", f"/?q={SCRIPT}"):
        harmless(Browser(shared).log_in("ada:admin").http.get(path).text, path)


def harmless(page: str, path: str) -> None:
    """Nothing of SCRIPT became markup."""
    for attack in ("<script>alert", "<img src=x", 'onerror=alert(1)>"', 'href="javascript:'):
        assert attack not in page, path


def test_origin_is_that_of_the_public_url() -> None:
    """Behind a proxy, the hub's own origin is the one of --url; the Host header does not matter."""

    def request(origin: str) -> Request:
        headers = [(b"host", b"evil.example"), (b"origin", origin.encode())]
        return Request(
            {"type": "http", "method": "POST", "path": "/login", "headers": headers, "scheme": "http"}
        )

    options = ServerOptions(url="https://hub.example.org")
    require_same_origin(request("https://hub.example.org"), options)
    for origin in ("http://hub.example.org", "https://hub.example.org:444", "http://evil.example", ""):
        with pytest.raises(Forbidden):
            require_same_origin(request(origin), options)
