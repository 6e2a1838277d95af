"""The pages in a real browser: with the keyboard alone, on a narrow screen, without scripts."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from kcard.manifest import Manifest, seal
from tests.hub.server.browser_session import hub_for_browsers
from tests.hub.server.chromium import Errors, launched, opened
from tests.hub.server.quarantined_cards import quarantined
from tests.hub.shared_hub import Shared

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

# Whether something reaches beyond the screen.
WIDER = "document.documentElement.scrollWidth > window.innerWidth"
PAGES = (
    "/",
    "/bob",
    "/bob/open",
    "/bob/gated",
    "/settings",
    "/settings/tokens",
    "/settings/organizations",
    "/organizations/lab",
    "/new",
    "/bob/open/upload",
    "/bob/open/edit",
    "/bob/open/settings",
    "/bob/gated/access",
    "/settings/hub/accounts",
    "/settings/hub/accounts/bob",
    "/settings/hub/quotas",
    "/settings/hub/quarantine",
    "/settings/hub/log",
    "/lab/held",
    "/none/none",
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.create("bob/open")
        shared.put("bob/open", {"README.md": b"---\nlicense: mit\n---\n# Open\n"})
        shared.create("bob/gated", gated="manual")
        shared.put("bob/gated", {"README.md": b"# Inside"})
        quarantined(shared, tmp_path_factory.mktemp("cards"), "lab/held")
        yield shared


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with launched() as browser:
        yield browser


def log_in(page: "Page", shared: Shared, who: str) -> None:
    page.goto(f"{shared.url}/login")
    page.get_by_label("Name").fill(who.partition(":")[0])
    page.get_by_label("Token").fill(shared.tokens[who])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Settings").wait_for()


def test_card_is_published_in_a_browser(browser: "Browser", shared: Shared, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "README.md").write_text("---\nlicense: mit\n---\n# Moons of the planets\n")
    (draft / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(draft, Manifest(name="moons", description="What moons are like", domain="science", kind="search"))
    with opened(browser) as page:
        errors = Errors(page)
        log_in(page, shared, "bob")
        page.get_by_role("link", name="New", exact=True).click()
        page.get_by_label("Name").fill("moons")
        page.get_by_role("button", name="Create").click()
        page.get_by_label("Or a whole folder").set_input_files(draft)
        page.get_by_label("Publish as version").fill("v1")
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("heading", name="Moons of the planets").wait_for()
        assert page.get_by_role("link", name="v1").is_visible()
        assert errors.messages == []
    published = shared.hub.publications.list(shared.hub.repositories.get("model", "bob/moons"))
    assert [each.tag for each in published] == ["v1"]


def test_access_is_asked_for_and_granted_in_browsers_without_scripts(
    browser: "Browser", shared: Shared
) -> None:
    with opened(browser, scripts=False, narrow=True) as page:
        log_in(page, shared, "dan")
        page.goto(f"{shared.url}/bob/gated")
        page.get_by_label("Why do you ask?").fill("For my thesis")
        page.get_by_role("button", name="Ask for access").click()
        page.get_by_text("has not answered yet").wait_for()
    with opened(browser, scripts=False) as page:
        log_in(page, shared, "bob")
        page.goto(f"{shared.url}/bob/gated/access")
        page.get_by_text("For my thesis").wait_for()
        page.get_by_role("button", name="Grant access to dan").click()
        page.get_by_role("button", name="Withdraw").or_(page.get_by_text("granted")).first.wait_for()
    gated = shared.hub.repositories.get("model", "bob/gated")
    assert shared.hub.repositories.access_state(gated, shared.hub.accounts.get("dan").id) == "granted"


def test_token_is_created_and_used_with_the_keyboard_alone(browser: "Browser", shared: Shared) -> None:
    with opened(browser) as page:
        page.goto(f"{shared.url}/login")
        tab_to(page, "name")
        page.keyboard.type("bob")
        page.keyboard.press("Tab")
        page.keyboard.type(shared.tokens["bob"])
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Settings").wait_for()
        page.goto(f"{shared.url}/settings/tokens")
        tab_to(page, "name")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Tab")
        page.keyboard.press("r")  # chooses the scope read
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        token = page.locator(".shown-once").inner_text()
        stored = next(each for each in shared.hub.tokens.list("bob") if each.name == "by keyboard")
        assert stored.scope == "read"
    answer = httpx.get(f"{shared.url}/api/whoami-v2", headers={"Authorization": f"Bearer {token}"})
    assert answer.json()["name"] == "bob"


def tab_to(page: "Page", name: str) -> None:
    """Press the tab key until the field of that id has the focus, which must be visible."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused, outline = page.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline != "none", f"no visible focus on {focused!r}"
        if focused == name:
            return
    raise AssertionError(f"the tab key does not reach {name!r}")


def test_wrong_input_stays_with_its_error_beside_it(browser: "Browser", shared: Shared) -> None:
    with opened(browser) as page:
        log_in(page, shared, "bob")
        page.goto(f"{shared.url}/new")
        page.get_by_label("Name").fill("not a name")
        page.get_by_role("button", name="Create").click()
        field = page.get_by_label("Name")
        assert field.input_value() == "not a name"
        described = str(field.get_attribute("aria-describedby")).split()
        assert "invalid name" in page.locator(f"#{described[0]}").inner_text().lower()
        assert page.get_by_role("alert").is_visible()


FAST = (
    "/bob",
    "/settings/tokens",
    "/bob/open/upload",
    "/settings/hub/accounts/bob",
    "/lab/held",
)


@pytest.mark.parametrize(
    ("narrow", "paths"),
    [
        pytest.param(True, FAST, id="390 px"),
        pytest.param(False, PAGES, id="wide, all", marks=pytest.mark.slow),
        pytest.param(True, PAGES, id="390 px, all", marks=pytest.mark.slow),
    ],
)
def test_pages_fit_are_accessible_and_complain_about_nothing(
    browser: "Browser", shared: Shared, narrow: bool, paths: tuple[str, ...]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    with opened(browser, narrow=narrow) as page:
        errors = Errors(page)
        log_in(page, shared, "ada:admin")
        for path in paths:
            page.goto(shared.url + path)
            assert not page.evaluate(WIDER), path
            assert page.locator("h1").first.is_visible(), path
            results = axe.Axe().run(page)
            assert results.violations_count == 0, f"{path}: {results.generate_report()}"
        assert errors.messages == []
