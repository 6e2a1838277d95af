"""The pages in a real browser: what people see and do, without a mouse, without scripts, on a phone, in the dark."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.hub.server.chromium import launched
from tests.hub.server.sample_cards import LONG, fill
from tests.hub.shared_hub import Shared, shared_hub

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = pytest.mark.browser
PAGES = {
    "home": "/",
    "search": "/?q=moon&verified=1",
    "nothing": "/?q=nothingatall&kind=lora",
    "empty": "/datasets",
    "card": "/lab/moons",
    "quarantined": "/bob/nobel-prizes",
    "long": f"/{LONG}",
    "text": "/lab/moons/blob/main/exam.json",
    "tensors": "/lab/moons/blob/main/adapter_model.safetensors",
    "commits": "/lab/moons/commits/main",
    "commit": "/lab/moons/commit/v2",
    "compare": "/compare?a=lab/moons@v1&b=lab/moons@v3",
    "leaderboard": "/leaderboard",
    "api": "/docs",
    "missing": "/bob/none",
}
# The others have parts of these.
FAST = ("home", "nothing", "card", "text", "compare")
ALL = [
    pytest.param(path, id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name, path in PAGES.items()
]
LARGEST = 150_000  # bytes of a page
PHONE: "ViewportSize" = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder) as shared:
        fill(shared, folder / "cards")
        yield shared


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    with launched() as browser:
        yield browser


@contextmanager
def opened(browser: "Browser", shared: Shared, path: str, **options: Any) -> Iterator["Page"]:
    """A page that asks no other host and whose console has no errors, also from its security policy."""
    context = browser.new_context(**options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(shared.url) else wrong.append(request.url)
    )
    try:
        page.goto(shared.url + path)
        yield page
        # The browser reports that the page itself is an error page.
        assert [
            text for text in wrong if "Failed to load resource" not in text or path != PAGES["missing"]
        ] == []
    finally:
        context.close()


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_accessible_in_light_and_dark_fits_a_phone_and_has_no_errors(
    browser: "Browser", shared: Shared, path: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    with opened(browser, shared, path, color_scheme="light") as page:
        assert len(page.content().encode()) < LARGEST
        results = Axe().run(page)
        assert results.response["violations"] == [], results.generate_report()
        page.emulate_media(color_scheme="dark")
        results = Axe().run(page, options={"runOnly": {"type": "rule", "values": ["color-contrast"]}})
        assert results.response["violations"] == [], results.generate_report()
        page.set_viewport_size(PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_somebody_searches_narrows_sorts_and_opens_a_card(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/") as page:
        page.get_by_role("searchbox").fill("what")
        page.get_by_role("button", name="Search").click()
        names = page.locator(".cards h2 a")
        assert set(names.all_inner_texts()) == {"lab/planets", "bob/nobel-prizes"}
        page.get_by_role("complementary", name="Filters").get_by_role("link", name="at least 0.7").click()
        assert names.all_inner_texts() == ["lab/planets"]
        assert "q=what" in page.url
        page.get_by_role("link", name="with any factuality").click()
        page.get_by_label("Order").select_option("factuality")
        page.get_by_role("button", name="Search").click()
        assert names.all_inner_texts() == ["lab/planets", "bob/nobel-prizes"]
        page.go_back()
        assert page.url == f"{shared.url}/?q=what"
        page.get_by_role("link", name="lab/planets").click()
        assert page.locator("main header h1").inner_text().startswith("lab/planets")


def test_the_domain_tree_opens_level_by_level(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/") as page:
        filters = page.get_by_role("complementary", name="Filters")
        filters.get_by_role("link", name="science 3").click()
        filters.get_by_role("link", name="astronomy 2").click()
        assert set(page.locator(".cards h2 a").all_inner_texts()) == {"lab/moons", "lab/planets"}
        assert filters.locator("[aria-current]").inner_text().split() == ["astronomy", "2"]
        filters.get_by_role("link", name="astronomy").click()
        assert page.locator(".cards h2 a").count() == 3


def test_everything_is_reached_with_the_keyboard_alone(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("planets discoverers")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=planets+discoverers**")
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('name')"):
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/lab/moons")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.name") == "use":
                break
        page.keyboard.press("ArrowRight")
        assert page.locator(".snippet:visible").inner_text().count("import kcard") == 1


def test_copying_takes_the_command_that_is_shown(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/lab/moons", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.get_by_text("curl", exact=True).click()
        page.locator(".snippet:visible button").click()
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"curl -LO {shared.url}/lab/moons/resolve/main/kcard.json"


@pytest.mark.parametrize("path", ALL)
def test_no_page_needs_a_script(browser: "Browser", shared: Shared, path: str) -> None:
    with opened(browser, shared, path, java_script_enabled=False) as page:
        assert page.locator("h1").count() >= 1
        assert page.locator("button[data-copy]:visible").count() == 0
        if path == PAGES["card"]:
            page.get_by_text("Python", exact=True).click()
            assert "kcard.pull" in page.locator(".snippet:visible").inner_text()


def test_two_versions_are_compared_from_the_page_of_the_card(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/lab/moons") as page:
        page.get_by_role("link", name="Compare the last two").click()
        assert page.get_by_role("row", name="Factuality, self-declared").inner_text().split()[-3:] == [
            "0.71",
            "0.84",
            "higher",
        ]
        questions = page.get_by_role("region", name="Questions in both exams")
        assert questions.get_by_role("row").count() == 6
        assert questions.get_by_text("✗ wrong").count() == 4


def test_the_leaderboard_has_only_verified_cards_best_first(browser: "Browser", shared: Shared) -> None:
    with opened(browser, shared, "/leaderboard") as page:
        names = page.locator("tbody th a")
        assert names.all_inner_texts() == [
            "bob/midterms-2022",
            "lab/moons",
            "lab/planets",
            "bob/nobel-prizes",
        ]
        page.get_by_role("link", name="science 3").click()
        assert names.all_inner_texts() == ["lab/moons", "lab/planets", "bob/nobel-prizes"]
