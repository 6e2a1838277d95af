"""The page to ask, driven in Chromium by keyboard: answers with sources, follow-ups, links, keys, phones."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kcard.serve.app import FILES, create_app
from kcard.serve.auth import Keys, add_key
from kcard.serve.uploads import MAX_UPLOAD_BYTES, UploadedFiles
from tests.hub.server.chromium import opened, require_accessible
from tests.serve.conftest import ANSWERED, QUESTION, embedded_service, running, without_policy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Page


@pytest.fixture
def address(url: str) -> str:
    """Of an endpoint that needs no key."""
    return url.removesuffix("v1")


@pytest.fixture(scope="module")
def uploading(library: Path) -> Iterator[str]:
    """The address of an endpoint that takes files."""
    with running(create_app(embedded_service(library, uploads=UploadedFiles()))) as url:
        yield url.removesuffix("v1")


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: "Browser", address: str) -> Iterator["Page"]:
    """The page on a phone, or as wide as the test has it."""
    with opened(browser, address, "", narrow=getattr(request, "param", True)) as tab:
        yield tab
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def ask_page(page: "Page", question: str, number: int = 1) -> None:
    page.keyboard.type(question)
    page.keyboard.press("Enter")
    page.wait_for_selector(ANSWERED.format(number), timeout=60_000)


@pytest.mark.parametrize("page", [False, True], ids=["wide", "phone"], indirect=True)
def test_an_answer_cites_its_passage_marks_itself_in_the_quotation_and_folds_its_sources(
    page: "Page",
) -> None:
    page.wait_for_selector("#model option", state="attached")
    assert page.text_content("#cards") == "1 card: neptune"
    ask_page(page, "Who discovered Triton?")
    assert page.text_content(".text") == "William Lassell[1]"
    assert page.text_content(".quote mark") == "William Lassell"
    assert "mode top-down · cards neptune · confidence" in page.inner_text(".facts")
    assert not page.is_visible(".sources li")
    page.focus("a.cite")
    page.keyboard.press("Enter")
    item = page.locator(".sources li").first
    assert item.is_visible()
    assert item.locator(".where").text_content() == "neptune.txt:1"
    assert "faithfulness 1.00" in item.inner_text()
    assert "factuality unknown" in item.inner_text()


def test_a_follow_up_stands_below_and_a_new_conversation_begins_empty(page: "Page") -> None:
    ask_page(page, "Who discovered Triton?")
    ask_page(page, "Which shops sell posters of Triton?", 2)
    assert page.locator(".turn:nth-of-type(2) .text").text_content() == "I don't know."
    assert page.inner_text(".turn:nth-of-type(2) .facts").startswith("no answer found")
    assert page.inner_text(".turn:nth-of-type(2) .quote").startswith("Nearest passage: ")
    page.click("#new")
    assert page.locator(".turn").count() == 0
    assert page.evaluate("document.activeElement.id") == "question"


def test_a_link_asks_its_question_with_its_model(page: "Page") -> None:
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#model", "embedded:direct")
    page.focus("#question")
    ask_page(page, "Who discovered Triton?")
    link = page.get_attribute(".facts a", "href")
    assert link == "?q=Who+discovered+Triton%3F&model=embedded%3Adirect"
    page.goto(page.url + link)
    page.wait_for_selector(ANSWERED.format(1), timeout=60_000)
    assert page.text_content(".asked") == "Who discovered Triton?"
    assert "no cards used" in page.inner_text(".facts")


@pytest.mark.parametrize("name", ["neptune", "ada/neptune"])
def test_a_link_to_a_card_finds_it_with_or_without_its_namespace_on_the_hub(page: "Page", name: str) -> None:
    page.goto(f"{page.url}?card={name}")
    page.wait_for_selector("#model option", state="attached")
    assert page.input_value("#model") == "embedded:neptune"


def test_a_card_that_is_not_there_is_told_and_its_question_left_to_the_reader(page: "Page") -> None:
    page.goto(f"{page.url}?card=pluto&q=Who+found+Charon?")
    page.wait_for_selector("#model option", state="attached")
    assert page.inner_text("#notice") == "There is no card “pluto” here. The answers come from all cards."
    assert page.input_value("#question") == "Who found Charon?"
    assert page.locator(".turn").count() == 0
    page.goto(f"{page.url.partition('?')[0]}?model=gpt")
    page.wait_for_selector("#notice:has-text('There is no model “gpt” here')")


def test_examples_come_from_the_cards_and_are_asked_by_a_click(page: "Page") -> None:
    page.wait_for_selector("#examples button")
    questions = page.locator("#examples button").all_inner_texts()
    assert questions[0] == "What is known about Triton?"
    page.locator("#examples button").first.click()
    page.wait_for_selector(ANSWERED.format(1), timeout=60_000)
    assert page.text_content(".asked") == questions[0]
    assert not page.is_visible("#examples")


def test_of_an_llm_that_reads_single_questions_no_conversation_is_promised(page: "Page") -> None:
    page.wait_for_selector("#model option", state="attached")
    assert page.inner_text("#only-llm") == "embedded"
    assert "embedded answers each question by itself" in page.inner_text("#keys")
    assert "conversation" not in page.inner_text("#keys")


def test_text_is_never_read_as_html(page: "Page") -> None:
    ask_page(page, "<img src=x onerror=alert(1)> Who discovered Triton?")
    assert page.locator(".turn img").count() == 0
    assert page.text_content(".asked") == "<img src=x onerror=alert(1)> Who discovered Triton?"


RENT: "FilePayload" = {
    "name": "The <b>hall.md",
    "mimeType": "",
    "buffer": b"The rent of the hall is 90 euros a day.",
}
DROP = """([name, size]) => { const data = new DataTransfer();
  data.items.add(new File(["Wanda Ruiz keeps the keys.".padEnd(size)], name));
  for (const type of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "phone"])
def test_a_file_is_chosen_and_asked_alone_until_all_cards_are_asked_again(
    browser: "Browser", uploading: str, narrow: bool
) -> None:
    with opened(browser, uploading, "", narrow=narrow) as tab:
        with tab.expect_file_chooser() as chooser:
            tab.click("#pick-file")
        chooser.value.set_files([RENT])
        tab.wait_for_selector("#only-file", timeout=60_000)
        assert tab.inner_text("#only-file") == "Only from The bhall.md, 1 passage · ask all cards"
        assert tab.locator("#model option:checked").inner_text() == "only The bhall.md"
        ask_page(tab, "What is the rent of the hall?")
        assert tab.text_content(".text") == "90 euros[1]"
        tab.click(".sources summary")
        assert tab.inner_text(".sources .place").startswith("the-bhall The bhall.md:1")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # A link to the question finds the file again.
        tab.goto(uploading + str(tab.get_attribute(".facts a.link", "href")))
        tab.wait_for_selector(ANSWERED.format(1), timeout=60_000)
        assert tab.text_content(".text") == "90 euros[1]"
        tab.click("#all-cards")
        assert not tab.is_visible("#only-file")
        ask_page(tab, "Who discovered Triton?", 2)
        assert tab.text_content(".turn:nth-of-type(2) .text") == "William Lassell[1]"


def test_a_dropped_file_is_asked_and_one_that_can_not_be_read_is_told(
    browser: "Browser", uploading: str
) -> None:
    with opened(browser, uploading, "", narrow=True) as tab:
        tab.wait_for_selector("#pick-file")
        tab.evaluate(DROP, ["keys.md", 0])
        tab.wait_for_selector("#only-file:has-text('keys.md')", timeout=60_000)
        tab.evaluate(DROP, ["<b>hall.md", MAX_UPLOAD_BYTES + 1])
        tab.wait_for_selector("#file-error:has-text('<b>hall.md is larger than 32 MB.')")
        assert tab.input_value("#model") == "embedded:draft:keys"
        ask_page(tab, "Who keeps the keys?")
        assert tab.text_content(".text") == "Wanda Ruiz[1]"


def test_the_page_is_accessible_with_an_answer_and_while_a_file_is_asked(
    browser: "Browser", uploading: str
) -> None:
    with without_policy(browser, uploading) as tab:
        tab.wait_for_selector("#model option", state="attached")
        require_accessible(tab)
        ask_page(tab, QUESTION)
        tab.click(".sources summary")
        require_accessible(tab)
        tab.set_input_files("#file", RENT)
        tab.wait_for_selector("#only-file", timeout=60_000)
        require_accessible(tab)
        tab.set_input_files("#file", {**RENT, "name": "hall.exe"})
        tab.wait_for_selector('#file-error:has-text("hall.exe can\'t be read")')
        require_accessible(tab)


def test_where_no_files_are_taken_no_button_is_shown(page: "Page") -> None:
    page.wait_for_selector("#model option", state="attached")
    assert not page.is_visible("#pick-file")
    page.evaluate(DROP, ["keys.md", 0])
    assert not page.is_visible(".stage")


def test_where_keys_are_needed_the_page_asks_for_one(
    browser: "Browser", library: Path, tmp_path: Path
) -> None:
    key = add_key(tmp_path / "keys", "ada")
    with (
        running(create_app(embedded_service(library), Keys(tmp_path / "keys"))) as url,
        opened(browser, url.removesuffix("v1"), "") as tab,
    ):
        assert httpx.get(f"{url}/models").status_code == 401
        tab.wait_for_selector("#key")
        tab.keyboard.type("kc_wrong")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#key:invalid")
        tab.fill("#key", key)
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#model option", state="attached")
        tab.wait_for_selector("#key-form", state="hidden")
        ask_page(tab, "Who discovered Triton?")
        assert tab.text_content(".text") == "William Lassell[1]"


def test_the_page_and_its_files_come_with_a_policy_and_are_all_that_is_served_there(address: str) -> None:
    seen: dict[str, Any] = {path: httpx.get(address + path) for path in ("", *FILES)}
    kinds = [answer.headers["content-type"].partition(";")[0] for answer in seen.values()]
    assert kinds == ["text/html", "text/css", *["text/javascript"] * 4]
    assert all("default-src 'none'" in answer.headers["content-security-policy"] for answer in seen.values())
    assert httpx.get(f"{address}chat.html").status_code == 404
    assert httpx.get(f"{address}page/../app.py").status_code == 404
