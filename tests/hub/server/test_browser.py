"""The pages in a real browser: what people see and do, without a mouse, without scripts, on a phone, in the dark."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.hub.server.browser_session import hub_for_browsers
from tests.hub.server.chromium import PHONE, launched, opened, require_accessible, tab_to
from tests.hub.server.sample_cards import LONG, OVERLAPPING, WAITING, fill, publish_unranked, quarantined
from tests.hub.shared_hub import Shared, shared_hub

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with launched() as browser:
        yield browser


# Cards, as visitors see them.

PAGES = {
    "home": "/",
    "search": "/?q=moon&verified=1",
    "nothing": "/?q=nothingatall&kind=lora",
    "empty": "/datasets",
    "card": "/lab/moons",
    "quarantined": "/bob/nobel-prizes",
    "long": f"/{LONG}",
    "waiting": f"/{WAITING}",
    "overlapping": f"/{OVERLAPPING}",
    "files": "/lab/moons/files/main",
    "text": "/lab/moons/blob/main/exam.json",
    "tensors": "/lab/moons/blob/main/adapter_model.safetensors",
    "leaderboard": "/leaderboard",
    "missing": "/bob/none",
}
FAST = ("home", "card", "leaderboard")  # the others have parts of these
ALL = [
    pytest.param(path, id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name, path in PAGES.items()
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder) as shared:
        fill(shared)
        publish_unranked(shared)
        yield shared


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_accessible_in_light_and_dark_fits_a_phone_and_needs_no_script(
    browser: "Browser", samples: Shared, path: str
) -> None:
    with opened(browser, samples.url, path) as page:
        require_accessible(page)
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    with opened(browser, samples.url, path, scripts=False) as page:
        assert page.locator("h1").count() >= 1
        assert page.locator("button[data-copy]:visible").count() == 0
        if path == PAGES["card"]:
            page.get_by_text("Python", exact=True).click()
            assert "kcard.pull" in page.locator(".snippet:visible").inner_text()


def test_somebody_searches_narrows_sorts_and_opens_a_card(browser: "Browser", samples: Shared) -> None:
    with opened(browser, samples.url) as page:
        page.get_by_role("searchbox").fill("what")
        page.get_by_role("button", name="Search").click()
        names = page.locator(".cards h2 a")
        assert set(names.all_inner_texts()) == {"lab/planets", "bob/nobel-prizes"}
        page.get_by_role("complementary", name="Filters").get_by_role("link", name="at least .7").click()
        assert names.all_inner_texts() == ["lab/planets"]
        assert "q=what" in page.url
        page.get_by_role("link", name="with any factuality").click()
        page.get_by_label("Order").select_option("factuality")
        page.get_by_role("button", name="Search").click()
        assert names.all_inner_texts() == ["lab/planets", "bob/nobel-prizes"]
        page.go_back()
        assert page.url == f"{samples.url}/?q=what"
        page.get_by_role("link", name="lab/planets").click()
        assert page.locator("main header h1").inner_text().startswith("lab/planets")


def test_the_domain_tree_opens_level_by_level(browser: "Browser", samples: Shared) -> None:
    with opened(browser, samples.url) as page:
        filters = page.get_by_role("complementary", name="Filters")
        filters.get_by_role("link", name="science 3").click()
        filters.get_by_role("link", name="astronomy 2").click()
        assert set(page.locator(".cards h2 a").all_inner_texts()) == {"lab/moons", "lab/planets"}
        assert filters.locator("[aria-current]").inner_text().split() == ["astronomy", "2"]
        filters.get_by_role("link", name="astronomy").click()
        assert page.locator(".cards h2 a").count() == 3


def test_everything_is_reached_with_the_keyboard_alone(browser: "Browser", samples: Shared) -> None:
    with opened(browser, samples.url) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("planets discoverers")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=planets+discoverers**")
        tab_to(page, "lab/moons")
        page.keyboard.press("Enter")
        page.wait_for_url("**/lab/moons")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.name") == "use":
                break
        page.keyboard.press("ArrowRight")
        assert page.locator(".snippet:visible").inner_text().count("import kcard") == 1


def test_copying_takes_the_command_that_is_shown(browser: "Browser", samples: Shared) -> None:
    with opened(
        browser, samples.url, "/lab/moons", permissions=("clipboard-read", "clipboard-write")
    ) as page:
        page.get_by_text("curl", exact=True).click()
        page.locator(".snippet:visible button").click()
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"curl -LO {samples.url}/lab/moons/resolve/main/kcard.json"


# What people with an account do.

PEOPLES_PAGES = ("/", "/bob/open", "/bob/gated", "/settings/tokens", "/lab/held", "/none/none")
FAST_PAGES = ("/settings/tokens", "/lab/held")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.create("bob/open", files={"README.md": b"---\nlicense: mit\n---\n# Open\n"})
        shared.create("bob/gated", gated="manual", files={"README.md": b"# Inside"})
        quarantined(shared, "lab/held")
        yield shared


def log_in(page: "Page", people: Shared, who: str) -> None:
    page.goto(f"{people.url}/login")
    page.get_by_label("Name").fill(who.partition(":")[0])
    page.get_by_label("Token").fill(people.tokens[who])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Tokens").wait_for()


@pytest.mark.parametrize(
    ("narrow", "paths"),
    [
        pytest.param(True, FAST_PAGES, id="390 px"),
        pytest.param(False, PEOPLES_PAGES, id="wide, all", marks=pytest.mark.slow),
        pytest.param(True, PEOPLES_PAGES, id="390 px, all", marks=pytest.mark.slow),
    ],
)
def test_pages_of_people_fit_and_are_accessible(
    browser: "Browser", people: Shared, narrow: bool, paths: tuple[str, ...]
) -> None:
    with opened(browser, people.url, narrow=narrow) as page:
        log_in(page, people, "ada:admin")
        for path in paths:
            page.goto(people.url + path)
            assert page.locator("h1").first.is_visible(), path
            require_accessible(page)


def test_access_is_asked_for_in_a_browser_without_scripts(browser: "Browser", people: Shared) -> None:
    with opened(browser, people.url, scripts=False, narrow=True) as page:
        log_in(page, people, "dan")
        page.goto(f"{people.url}/bob/gated")
        page.get_by_label("Why do you ask?").fill("For my thesis")
        page.get_by_role("button", name="Ask for access").click()
        page.get_by_text("has not answered yet").wait_for()
    people.api("bob").accept_access_request("bob/gated", "dan")
    gated = people.hub.repositories.get("model", "bob/gated")
    assert people.hub.repositories.access_state(gated, people.hub.accounts.get("dan").id) == "granted"


def test_token_is_created_and_used_with_the_keyboard_alone(browser: "Browser", people: Shared) -> None:
    with opened(browser, people.url, "/login") as page:
        tab_to(page, "name")
        page.keyboard.type("bob")
        page.keyboard.press("Tab")
        page.keyboard.type(people.tokens["bob"])
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Tokens").wait_for()
        page.goto(f"{people.url}/settings/tokens")
        tab_to(page, "name")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Tab")
        page.keyboard.press("r")  # chooses the scope read
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        token = page.locator(".shown-once").inner_text()
        stored = next(each for each in people.hub.tokens.list("bob") if each.name == "by keyboard")
        assert stored.scope == "read"
    answer = httpx.get(f"{people.url}/api/whoami-v2", headers={"Authorization": f"Bearer {token}"})
    assert answer.json()["name"] == "bob"
