"""Questions on the pages in a real browser: with and without scripts, with the keyboard alone, on a phone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kcard.hub.server.web import ask
from tests.hub.server.asking_hub import MOONS, RIVERS, asking_hub, publish_passages
from tests.hub.server.chromium import Errors, launched, opened
from tests.hub.shared_hub import Shared

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WIDER = "document.documentElement.scrollWidth > window.innerWidth"
LARGEST = 150_000  # bytes of a page
README = b"---\nwidget:\n- text: Who discovered Phobos?\n- text: When was Triton discovered?\n---\n# Moons\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ask, "OF_CLIENT", 10_000)
        with asking_hub(folder, exam_required=False) as shared:
            publish_passages(shared, folder / "moons", "lab/moons", MOONS, "Moons and who discovered them")
            shared.put("lab/moons", {"README.md": README})
            publish_passages(
                shared, folder / "rivers", "bob/rivers", RIVERS, "Where the rivers of Europe rise"
            )
            yield shared


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with launched() as browser:
        yield browser


def no_faults(page: "Page") -> None:
    """Accessible in light and dark, and no wider than the screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        results = axe.run(page)
        assert results.response["violations"] == [], results.generate_report()
    assert not page.evaluate(WIDER)
    assert len(page.content().encode()) < LARGEST


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_card_is_asked_a_suggested_question_and_a_citation_followed(
    browser: "Browser", shared: Shared, scripts: bool
) -> None:
    with opened(browser, scripts=scripts) as page:
        errors = Errors(page)
        page.goto(f"{shared.url}/lab/moons")
        page.get_by_role("button", name="Who discovered Phobos?").click()
        answer = page.locator(".said")
        answer.wait_for()
        assert answer.inner_text().split("[")[0].strip() == "Asaph Hall"
        assert page.get_by_label("Question").input_value() == "Who discovered Phobos?"
        answer.get_by_role("link").click()
        page.wait_for_url("**#passage-1")
        cited = page.locator("li:target")
        assert MOONS[1] in cited.inner_text()
        cited.get_by_role("link", name="lab/moons").click()
        page.get_by_role("heading", name="Moons", exact=True).wait_for()
        assert errors.messages == []


def test_all_cards_are_asked_with_the_keyboard_alone(browser: "Browser", shared: Shared) -> None:
    with opened(browser) as page:
        page.goto(shared.url)
        _tab_to(page, "Ask")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Ask the cards").wait_for()
        _tab_to(page, "Question")
        page.keyboard.type("Where does the Oder rise?")
        page.keyboard.press("Enter")
        page.locator(".said").wait_for()
        assert "Sudetes" in page.locator(".said").inner_text()
        _tab_to(page, "Passage 1")
        page.keyboard.press("Enter")
        page.wait_for_url("**#passage-1")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "bob/rivers"


def test_the_pages_are_accessible_and_fit_a_phone(browser: "Browser", shared: Shared) -> None:
    with opened(browser, narrow=True) as page:
        errors = Errors(page)
        for path in ("/lab/moons", "/ask", "/ask?card=bob/rivers"):
            page.goto(shared.url + path)
            no_faults(page)
        page.get_by_label("Question").fill("Where does the Rhine rise?")
        page.get_by_role("button", name="Ask").click()
        page.locator(".said").wait_for()
        no_faults(page)
        page.goto(f"{shared.url}/ask?card=lab/moons")
        page.get_by_label("Question").fill("Who discovered the moon Zyx?")
        page.get_by_role("button", name="Ask").click()
        page.get_by_text("I don't know.").wait_for()
        no_faults(page)
        assert errors.messages == []


def test_a_question_that_waits_says_so_and_errors_stay_beside_the_field(
    browser: "Browser", shared: Shared
) -> None:
    with opened(browser) as page:
        page.goto(f"{shared.url}/ask?card=lab/moons")
        page.get_by_label("Question").fill("Who discovered Titan?")
        page.evaluate("document.forms[0].addEventListener('submit', (event) => event.preventDefault())")
        page.get_by_role("button", name="Ask").click()
        waits = page.get_by_role("button", name="Asking…")
        waits.wait_for()
        assert waits.is_disabled()
        page.goto(f"{shared.url}/ask?card=lab/moons")
        page.get_by_label("Question").fill("   ")
        page.get_by_role("button", name="Ask").click()
        field = page.get_by_label("Question")
        assert field.get_attribute("aria-invalid") == "true"
        assert "type a question" in page.locator("#question-error").inner_text().lower()
        no_faults(page)


def _tab_to(page: "Page", name: str) -> None:
    """Press the tab key until what has this name has the focus, which must be visible."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused, outline = page.evaluate(
            "[document.activeElement.ariaLabel ?? document.activeElement.textContent,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline != "none", f"no visible focus on {focused!r}"
        if focused == name:
            return
    raise AssertionError(f"the tab key does not reach {name!r}")
