"""What people do in a browser: log in and out, make tokens, ask for access; and attacks on the forms of the pages."""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select, update
from starlette.requests import Request

from kcard.hub.db.models import BrowserSession, now
from kcard.hub.errors import Forbidden
from kcard.hub.server import limits
from kcard.hub.server.app import PAGES
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.web.forms import require_same_origin
from kcard.hub.tokens import MAX_IDLE, MAX_SESSION, Login
from tests.hub.server.attacks import end_right
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared, running
from tests.hub.stand import recorded_statements


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub")) as shared:
        shared.create(
            "bob/secret", private=True, files={"README.md": b"# Hush\n![p](a.png)", "notes.txt": b"mine"}
        )
        for kind in ("model", "dataset"):
            shared.create("bob/target", kind)
        shared.put("bob/target", {"README.md": b"# Before"})
        shared.create("bob/gated", gated="manual")
        shared.create("ada/hidden", private=True)
        yield shared


@pytest.fixture
def browser(shared: Shared) -> Browser:
    return Browser(shared)


@pytest.fixture
def bob(shared: Shared) -> Browser:
    return Browser(shared).log_in("bob")


def test_a_session_shows_private_cards_and_their_files_until_it_is_closed(browser: Browser) -> None:
    browser.open("/bob/secret", 401)
    browser.log_in("bob")
    assert "Hush" in browser.open("/bob/secret")
    assert "bob/secret" in browser.open("/")
    assert "secret" in browser.open("/?author=bob")
    assert browser.http.get("/bob/secret/resolve/main/notes.txt").text == "mine"
    assert browser.send("/settings/logout").headers["location"] == "/"
    browser.open("/bob/secret", 401)
    assert browser.http.get("/bob/secret/resolve/main/notes.txt").status_code == 401


def test_private_cards_stay_invisible_to_other_sessions(browser: Browser) -> None:
    browser.log_in("dan")
    assert "Hush" not in browser.open("/bob/secret", 404)
    assert "bob/secret" not in browser.open("/")
    assert "secret" not in text(browser.http.get("/?author=bob"))
    assert browser.http.get("/bob/secret/resolve/main/notes.txt").status_code == 404


def test_pages_for_an_account_are_kept_in_no_cache(browser: Browser) -> None:
    browser.log_in("bob")
    for path in ("/bob/secret", "/", "/settings/tokens"):
        assert browser.http.get(path).headers["cache-control"] == "no-store"


def test_cookie_is_out_of_reach_of_scripts_and_other_sites(shared: Shared, browser: Browser) -> None:
    browser.open("/login")
    sent = {"name": "bob", "token": shared.tokens["bob"]}
    cookie = browser.send("/login", sent).headers["set-cookie"]
    assert {part.strip().lower() for part in cookie.split(";")[1:]} == {
        "httponly",
        "path=/",
        "samesite=lax",
        f"max-age={int(MAX_SESSION.total_seconds())}",
    }


def test_cookie_is_secure_and_bound_to_the_host_behind_https(shared: Shared) -> None:
    http = shared.http()
    headers = {"X-Forwarded-Proto": "https"}
    cookie = http.get("/login", headers=headers).headers["set-cookie"]
    assert cookie.startswith("__Host-kcard_session=")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "domain" not in cookie.lower()


def test_only_the_hash_of_a_session_is_stored(shared: Shared, browser: Browser) -> None:
    browser.log_in("bob")
    assert len(browser.session) >= 43
    files = [path for path in (shared.folder / "home").rglob("*") if path.is_file()]
    assert not [path for path in files if browser.session.encode() in path.read_bytes()]


def test_login_makes_a_new_session_whatever_cookie_the_browser_had(shared: Shared, browser: Browser) -> None:
    """Session fixation: a cookie that an attacker planted never opens the account."""
    planted = "x" * 43
    browser.http.cookies.set("kcard_session", planted, domain="127.0.0.1", path="/")
    browser.log_in("bob")
    cookies = [cookie.value for cookie in browser.http.cookies.jar]
    assert planted not in cookies
    attacker = Browser(shared)
    attacker.http.cookies.set("kcard_session", planted)
    attacker.open("/bob/secret", 401)


@pytest.mark.parametrize(
    "how", ["logout", "logout everywhere", "another login", "token revoked", "account disabled"]
)
def test_a_stolen_cookie_is_worth_nothing_once_its_session_ended(shared: Shared, how: str) -> None:
    name = how.replace(" ", "-")
    shared.hub.accounts.add_user(name)
    token = shared.hub.tokens.create(name)
    browser, other, thief = Browser(shared), Browser(shared), Browser(shared)
    for each in (browser, other):
        each.log_in(name, token)
    thief.http.cookies.set("kcard_session", browser.session)
    assert thief.http.get("/settings/tokens").status_code == 200
    if how == "logout":
        browser.send("/settings/logout")
    elif how == "logout everywhere":
        other.send("/settings/logout", {"everywhere": "1"})
    elif how == "another login":
        browser.send("/login", {"name": "cleo", "token": shared.tokens["cleo"]})
    elif how == "token revoked":
        shared.hub.tokens.revoke(name, "cli")
    else:
        shared.hub.accounts.update(name, disabled=True)
    assert thief.http.get("/settings/tokens").status_code == 303
    assert thief.http.get("/bob/secret").status_code == 401


@pytest.mark.parametrize("column", ["used", "opened"])
def test_session_ends_without_use_and_in_any_case_after_a_month(
    shared: Shared, browser: Browser, column: str
) -> None:
    browser.log_in("bob")
    limit = MAX_IDLE if column == "used" else MAX_SESSION
    for age, status in ((limit - timedelta(minutes=1), 200), (limit + timedelta(minutes=1), 303)):
        with shared.hub.database.write() as connection:
            connection.execute(update(BrowserSession).values({column: now() - age}))
        assert browser.http.get("/settings/tokens").status_code == status


def test_use_extends_a_session(shared: Shared, browser: Browser) -> None:
    browser.log_in("bob")
    with shared.hub.database.write() as connection:
        connection.execute(update(BrowserSession).values(used=now() - MAX_IDLE + timedelta(hours=1)))
    browser.open("/settings/tokens")
    with shared.hub.database.read() as connection:
        used = connection.scalar(select(BrowserSession.used).order_by(BrowserSession.used.desc()))
    assert used is not None
    assert now().replace(tzinfo=None) - used.replace(tzinfo=None) < timedelta(minutes=1)


API = [
    ("GET", "/api/whoami-v2"),
    ("GET", "/api/models/bob/secret"),
    ("POST", "/api/repos/create"),
    ("DELETE", "/api/repos/delete"),
    ("PUT", "/api/models/bob/secret/settings"),
    ("POST", "/api/models/bob/secret/commit/main"),
    ("POST", "/bob/secret/ask-access"),
]


@pytest.mark.parametrize(("method", "path"), API)
def test_api_knows_no_sessions(shared: Shared, browser: Browser, method: str, path: str) -> None:
    browser.log_in("bob:admin")
    headers = {"Origin": shared.url, "Sec-Fetch-Site": "same-origin"}
    body = {"name": "secret", "organization": "bob", "private": False, "form_token": browser.form_token}
    answer = browser.http.request(method, path, json=body, headers=headers)
    assert answer.status_code == 401
    assert shared.hub.repositories.get("model", "bob/secret").private


NEXT = [
    ("/bob/secret?tab=1", "/bob/secret?tab=1"),
    ("//evil.example", "/"),
    ("/\\evil.example", "/"),
    ("https://evil.example/", "/"),
    ("javascript:alert(1)", "/"),
    ("/\t/evil.example", "/"),
    ("/\n//evil.example", "/"),
    ("evil.example", "/"),
    ("/%0d%0aSet-Cookie:%20x=1", "/%0d%0aSet-Cookie:%20x=1"),
    ("", "/"),
    ("/ü", "/"),
]


@pytest.mark.parametrize(("target", "to"), NEXT)
def test_login_leads_to_no_other_site(shared: Shared, browser: Browser, target: str, to: str) -> None:
    page = browser.http.get("/login", params={"next": target})
    assert page.status_code == 200
    assert "evil.example" not in page.text
    browser.open("/login")
    sent = {"name": "bob", "token": shared.tokens["bob"], "next": target}
    answer = browser.send("/login", sent)
    assert answer.headers["location"] == to
    assert browser.http.get("/login", params={"next": target}).headers["location"] == to


def test_page_that_needs_a_login_comes_back_after_it(shared: Shared, browser: Browser) -> None:
    answer = browser.http.get("/settings/tokens?a=b&c=")
    assert answer.status_code == 303
    page = browser.open(answer.headers["location"])
    assert 'value="/settings/tokens?a=b&amp;c="' in page
    sent = {"name": "ada", "token": shared.tokens["ada:admin"], "next": "/settings/tokens?a=b&c="}
    assert browser.send("/login", sent).headers["location"] == "/settings/tokens?a=b&c="


def test_login_with_the_token_of_another_account_is_refused_like_an_unknown_name(
    shared: Shared, browser: Browser
) -> None:
    pages = set()
    for name, token in (
        ("bob", shared.tokens["dan"]),
        ("nobody-at-all", shared.tokens["dan"]),
        ("bob", "kc_" + "x" * 40),
    ):
        browser.open("/login")
        answer = browser.send("/login", {"name": name, "token": token})
        assert answer.status_code == 401
        assert token not in answer.text
        assert 'aria-describedby="token-error' in answer.text
        assert f'value="{name}"' in answer.text
        pages.add(text(answer))
    assert len(pages) == 1


def test_time_does_not_tell_whether_an_account_exists(browser: Browser) -> None:
    """The same queries run for a known and an unknown name."""
    browser.open("/login")
    ran = []
    for name in ("bob", "nobody-at-all"):
        with recorded_statements() as statements:
            assert browser.send("/login", {"name": name, "token": "kc_" + "x" * 40}).status_code == 401
        ran.append(statements)
    assert ran[0] == ran[1] != []


@pytest.fixture
def limited(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser of a server with the usual limits."""
    for name, limit in (("OF_ADDRESS", 6), ("OF_ACCOUNT_AT_ADDRESS", 2), ("OF_ACCOUNT", 12)):
        monkeypatch.setattr(limits, name, limit)
    with running(shared.hub) as url:
        yield Browser(replace(shared, url=url))


def test_attempts_to_log_in_are_limited_by_account_and_address(shared: Shared, limited: Browser) -> None:
    browser = limited
    browser.open("/login")
    status = [
        browser.send("/login", {"name": "Bob", "token": f"kc_{number:040d}"}).status_code
        for number in range(15)
    ]
    assert status[:10] == [401] * 10
    assert set(status[10:]) == {429}
    answer = browser.send("/login", {"name": "bob", "token": shared.tokens["bob"]})
    assert answer.status_code == 429
    assert "try again in" in text(answer)
    many = [
        browser.send("/login", {"name": f"name{number}", "token": "kc_x"}).status_code for number in range(30)
    ]
    assert many[0] == 401
    assert many[-1] == 429


@pytest.mark.parametrize(
    "value", ["short", "ä" * 40, "planted; Path=/x", '"planted\\015\\012X-Evil: 1"', "x" * 5000, "a b" * 20]
)
def test_odd_cookies_are_not_repeated(shared: Shared, value: str) -> None:
    headers = {b"Cookie": b"kcard_session=" + value.encode(), b"Accept": b"text/html"}
    answer = shared.http().get("/login", headers=headers)
    assert answer.status_code == 200
    assert value not in answer.headers["set-cookie"].partition(";")[0]
    assert shared.http().get("/", headers=headers).status_code == 200


def test_form_for_the_login_needs_its_cookie_too(shared: Shared) -> None:
    """Login CSRF: another site can't log a browser into the attacker's account."""
    attacker, victim = Browser(shared), Browser(shared)
    attacker.open("/login")
    sent = {"form_token": attacker.form_token, "name": "dan", "token": shared.tokens["dan"]}
    assert victim.send("/login", sent).status_code == 403
    victim.open("/login")
    assert victim.send("/login", sent).status_code == 403
    assert victim.http.get("/settings/tokens").status_code == 303


# Attacks on the forms of the pages: other sites, foreign tokens, scripts in what people type.


EVIL = "https://evil.example"
SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def posts() -> list[str]:
    """The path of every form of the pages."""
    routes = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
    values = {"namespace": "bob", "name": "target", "account": "bob"}
    paths = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(paths) == 6
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


TWO_FORMS = ("/settings/tokens", "/bob/gated/access")


@pytest.mark.parametrize("headers", FOREIGN)
def test_no_form_is_accepted_from_another_origin(shared: Shared, headers: Mapping[str, str]) -> None:
    """Even with the cookie and the right form token. The first comes to every form, the others to two."""
    admin = Browser(shared).log_in("ada:admin")
    for path in posts() if headers == FOREIGN[0] else TWO_FORMS:
        answer = admin.http.post(path, data={"form_token": admin.form_token}, headers=headers)
        assert answer.status_code == 403, path
        assert "not sent from a page of this hub" in text(answer), path


@pytest.mark.parametrize("forged", ["", "0" * 64, "another", "ä"])
def test_no_form_is_accepted_without_the_token_of_its_session(shared: Shared, forged: str) -> None:
    admin, other = Browser(shared).log_in("ada:admin"), Browser(shared).log_in("dan")
    token = other.form_token if forged == "another" else forged
    for path in posts() if forged == "another" else TWO_FORMS:
        answer = admin.http.post(path, data={"form_token": token}, headers={"Origin": shared.url})
        assert answer.status_code == 403, path
        assert "another session" in text(answer), path


def test_form_of_a_closed_session_changes_nothing(shared: Shared, bob: Browser) -> None:
    shared.hub.sessions.close(bob.session)
    before = shared.hub.tokens.list("bob")
    answer = bob.send("/settings/tokens", {"scope": "read", "days": "30"})
    assert answer.status_code == 401
    assert "log in" in text(answer)
    assert shared.hub.tokens.list("bob") == before


@pytest.mark.parametrize("what", ["token", "role"])
def test_form_that_is_being_sent_ends_with_what_allowed_it(
    shared: Shared, browser: Browser, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sessions, name = shared.hub.sessions, f"sending-{what}"
    token = shared.hub.tokens.create("cleo", name=name, scope="write")
    browser.log_in("cleo", token)
    looked_up = threading.Event()
    find = sessions.find

    def find_and_tell(id_: str) -> Login | None:
        login = find(id_)
        looked_up.set()
        return login

    def body() -> Iterator[bytes]:
        yield f"form_token={browser.form_token}&name=made-by-{name}".encode()
        assert looked_up.wait(10)
        end_right(shared, what, name)
        yield b"&scope=write&days=never"

    monkeypatch.setattr(sessions, "find", find_and_tell)
    headers = {
        "Origin": shared.url,
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    answer = browser.http.post("/settings/tokens", content=body(), headers=headers)
    assert answer.status_code in {303, 401}, text(answer)
    assert f"made-by-{name}" not in [token.name for token in shared.hub.tokens.list("cleo")]
    shared.hub.accounts.set_member("lab", "cleo", "write")


def test_pages_let_no_other_site_frame_them_and_run_no_script(shared: Shared) -> None:
    admin = Browser(shared).log_in("ada:admin")
    for path in ("/", "/settings/tokens", "/bob/target", "/none/none"):
        headers = admin.http.get(path).headers
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert re.search(r"script-src 'sha256-[^ ]+';", policy)  # the hub's own


def test_names_descriptions_and_notes_run_nothing(shared: Shared, bob: Browser) -> None:
    bob.send("/settings/tokens", {"name": SCRIPT, "scope": "read", "days": "30"})
    readme = f"# {SCRIPT}\n[a](javascript:alert(1))".encode()
    shared.put("bob/target", {"README.md": readme}, title=SCRIPT)
    for path in ("/settings/tokens", "/bob/target"):
        page = bob.open(path)
        assert "&lt;script&gt;alert(1)" in page, path
        harmless(page, path)


def test_errors_repeat_what_was_typed_without_running_it(bob: Browser) -> None:
    sent = {
        "/settings/tokens": {"name": "x", "scope": SCRIPT, "days": SCRIPT, "repository": SCRIPT},
        "/bob/gated/access": {"note": SCRIPT * 100},
        "/login": {"name": SCRIPT, "token": SCRIPT, "next": SCRIPT},
    }
    for path, values in sent.items():
        answer = bob.send(path, values)
        assert 400 <= answer.status_code < 500, path
        harmless(answer.text, path)
    for path in (f"/{SCRIPT}", f"/login?next={SCRIPT}", f"/?q={SCRIPT}"):
        harmless(bob.http.get(path).text, path)


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


# Tokens that people create, and access that they ask for.


def works(shared: Shared, token: str) -> bool:
    return shared.http(token=token).get("/api/whoami-v2").status_code == 200


def read_token(page: str) -> str:
    """The token that a page shows once."""
    match = re.search(r'class="shown-once">(kc_[^<]+)<', page)
    assert match is not None
    return match[1]


def test_token_is_shown_once_works_with_the_api_and_ends_when_revoked(shared: Shared, bob: Browser) -> None:
    answer = bob.send("/settings/tokens", {"name": "laptop", "scope": "read", "days": "30"})
    token = read_token(answer.text)
    assert answer.headers["cache-control"] == "no-store"
    assert works(shared, token)
    assert token not in bob.open("/settings/tokens")
    stored = next(each for each in shared.hub.tokens.list("bob") if each.name == "laptop")
    assert stored.scope == "read"
    assert stored.expires is not None
    assert (stored.expires - stored.created).days == 30
    assert bob.send("/settings/tokens/revoke", {"name": "laptop"}).status_code == 303
    assert not works(shared, token)


def test_token_may_be_limited_to_a_repository(shared: Shared, bob: Browser) -> None:
    shared.create("bob/bound")
    sent = {"name": "bound", "scope": "write", "days": "never", "repository": "bob/bound"}
    read_token(bob.send("/settings/tokens", sent).text)
    token = next(each for each in shared.hub.tokens.list("bob") if each.name == "bound")
    assert (token.repository, token.expires) == ("bob/bound", None)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"name": "write", "scope": "read", "days": "30"}, "name"),
        ({"name": "n", "scope": "admin", "days": "30"}, "scope"),
        ({"name": "n", "scope": "everything", "days": "30"}, "scope"),
        ({"name": "n", "scope": "read", "days": "31"}, "days"),
        ({"name": "n", "scope": "read", "days": "30", "repository": "no/where"}, "repository"),
        ({"name": "n", "scope": "read", "days": "30", "repository": "ada/hidden"}, "repository"),
    ],
)
def test_wrong_token_is_explained_beside_its_field(
    shared: Shared, bob: Browser, sent: dict[str, str], field: str
) -> None:
    before = shared.hub.tokens.list("bob")
    answer = bob.send("/settings/tokens", sent)
    assert 400 <= answer.status_code < 500
    assert shared.hub.tokens.list("bob") == before
    box = re.search(rf'<(?:input|select) id="{field}"[^>]*>', answer.text)
    assert box is not None
    assert f'aria-describedby="{field}-error' in box[0]
    assert 'aria-invalid="true"' in box[0]
    assert f'id="{field}-error"' in answer.text
    assert f'value="{sent["name"]}"' in answer.text
    assert "<title>Error: " in answer.text


def test_session_creates_no_token_that_may_do_more_or_lasts_longer(shared: Shared) -> None:
    reading = Browser(shared).log_in("bob:read")
    assert reading.send("/settings/tokens", {"scope": "write", "days": "30"}).status_code == 403
    assert reading.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    token = shared.hub.tokens.create("bob", name="two days", days=2)
    short = Browser(shared).log_in("bob", token)
    answer = short.send("/settings/tokens", {"scope": "read", "days": "30"})
    assert answer.status_code == 400
    assert "expires at" in text(answer)
    bound = shared.hub.tokens.create("bob", name="one card", repository=shared.create("bob/one").name)
    only = Browser(shared).log_in("bob", bound)
    assert only.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    assert only.send("/settings/tokens/revoke", {"name": "write"}).status_code == 403


def test_access_is_asked_for_with_a_note_and_granted(shared: Shared) -> None:
    shared.create("bob/asked", gated="manual", files={"README.md": b"# Inside"})
    dan = Browser(shared)
    assert "/login?next=%2Fbob%2Fasked" in dan.open("/bob/asked")
    dan.log_in("dan")
    assert 'name="note"' in dan.open("/bob/asked")
    assert dan.send("/bob/asked/access", {"note": "x" * 2001}).status_code == 400
    answer = dan.send("/bob/asked/access", {"note": "For my thesis\r\non moons"})
    assert answer.headers["location"] == "/bob/asked"
    assert "has not answered yet" in dan.open("/bob/asked")
    assert "Inside" not in dan.open("/bob/asked")
    [request] = shared.hub.repositories.requests(shared.hub.repositories.get("model", "bob/asked"))
    assert (request.account, request.note) == ("dan", "For my thesis\non moons")
    owner = shared.api("bob")
    owner.reject_access_request("bob/asked", "dan", rejection_reason=None)
    assert "rejected your request" in dan.open("/bob/asked")
    owner.accept_access_request("bob/asked", "dan")
    assert "Inside" in dan.open("/bob/asked")
