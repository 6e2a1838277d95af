"""Answers, cards, hubs and evaluations, as print() and notebooks show them."""

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kcard
from kcard.api.evaluate import Evaluation
from kcard.cards.card import Card
from kcard.evaluation.runs.summary import SettingSummary
from kcard.manifest import Base, Manifest
from kcard.trace import Usage
from kcard.types import Answer, Citation, Decision, Passage, Source

SCRIPT = "<script>alert('x')</script>"
MIRANDA = "Gerard Kuiper discovered Miranda, a moon of Uranus."
PASSAGE = Passage(
    "moons",
    f"{MIRANDA} It was named in 1949.",
    relevance=0.8,
    faithfulness=1.0,
    factuality=0.934,
    kept=True,
    source=Source(f"{MIRANDA} It was named in 1949.", "discoverers.txt", 85),
)
ANSWER = Answer(
    "Who found Miranda?",
    "Gerard Kuiper",
    "top-down",
    Decision("self-ask", 0.19, fired=True),
    cards=("moons",),
    passages=(PASSAGE,),
    citations=(Citation("Gerard Kuiper", 0, 1.0, MIRANDA, 85),),
    calls=3,
    seconds=0.91,
    confidence=0.85,
)


def test_print_shows_the_answer_with_numbered_sources() -> None:
    assert str(ANSWER) == (
        "Gerard Kuiper\n"
        f'[1] "{MIRANDA}" <- moons (retrieval) <- discoverers.txt:85 (faithfulness 1.00, factuality 0.93)'
    )


def test_print_leaves_out_scores_that_are_unknown_and_sources_that_do_not_exist() -> None:
    passage = Passage("moons", MIRANDA, kept=True)
    answer = Answer(
        "Who?", "Gerard Kuiper", "bottom-up", ANSWER.gate, passages=(passage,),
        citations=(Citation("Gerard Kuiper", 0, 0.8), Citation("Nobody", None)),
    )  # fmt: skip
    assert str(answer).splitlines()[1:] == [
        f'[1] "{MIRANDA}" <- moons (model, support 0.80)',
        "[2] not in the cards: Nobody",
    ]


def test_print_says_what_the_cards_do_not_say_and_what_they_contradict() -> None:
    answer = Answer(
        "Who?", "Tom Birk. He was a baker.", "bottom-up", ANSWER.gate, passages=(PASSAGE,), confidence=0.3,
        citations=(
            Citation("Tom Birk.", 0, 0.1, MIRANDA, 85, is_contradicted=True),
            Citation("He was a baker.", None, 0.1),
        ),
        is_calibrated=False,
    )  # fmt: skip
    scores = "(faithfulness 1.00, factuality 0.93)"
    assert str(answer).splitlines()[1:] == [
        f'[1] contradicted: Tom Birk. - but: "{MIRANDA}" <- moons (retrieval) <- discoverers.txt:85 {scores}',
        "[2] not in the cards: He was a baker.",
    ]
    shown = answer._repr_html_()
    assert "contradicted: Tom Birk." in shown
    assert "confidence 0.30 (not calibrated for this LLM)" in shown
    data = answer.to_json()
    assert [c["verdict"] for c in data["citations"]] == ["contradicted", "not in the cards"]
    assert data["is_calibrated"] is False


@pytest.mark.parametrize(
    ("cited", "quote", "shown"),
    [
        ("12. Mai 1949", "12. Mai 1949 war ein Donnerstag.", "12. Mai 1949 war ein Donnerstag."),
        ("the red lever", "2. Pull the red lever.", "Pull the red lever."),
        ("Pull the red lever.", "- Pull the red lever.", "Pull the red lever."),
        ("Pull the red lever", "Pull the red lever.", "Pull the red lever"),
    ],
)
def test_a_quotation_lacks_the_mark_of_a_list_but_no_number_that_is_cited(
    cited: str, quote: str, shown: str
) -> None:
    passage = Passage("notes", quote, kept=True)
    answer = Answer(
        "?", "Other words", "top-down", ANSWER.gate, passages=(passage,),
        citations=(Citation(cited, 0, 1.0, quote),),
    )  # fmt: skip
    assert str(answer).splitlines()[1] == f'[1] "{shown}" <- notes (model)'


def test_a_sentence_that_the_answer_repeats_is_not_quoted_again_or_only_its_first_words() -> None:
    sentences = ["Kuiper saw the small moon Miranda in February of the year 1948.", "It is the smallest one."]
    passages = tuple(Passage(card, text, kept=True) for card, text in zip("ab", sentences, strict=True))
    citations = tuple(Citation(text, number, 1.0, text) for number, text in enumerate(sentences))
    answer = Answer("?", " ".join(sentences), "top-down", ANSWER.gate, passages=passages, citations=citations)
    assert str(answer).splitlines()[1:] == [
        '[1] "Kuiper saw the small moon Miranda in February …" <- a (model)',
        '[2] "It is the smallest one." <- b (model)',
    ]
    alone = Answer("?", sentences[0], "top-down", ANSWER.gate, passages=passages, citations=citations[:1])
    assert str(alone).splitlines()[1:] == ["[1] a (model)"]


def test_an_answer_without_cards_prints_as_its_text_and_a_choice_with_its_letter() -> None:
    direct = Answer("Where?", "Paris", "direct", Decision("never", 1.0, fired=False), choice="B")
    assert str(direct) == "B. Paris"


def test_not_knowing_prints_as_such_with_the_nearest_passage() -> None:
    answer = Answer(
        "How big is Miranda?", "I don't know.", "top-down", ANSWER.gate, passages=(PASSAGE,), known=False,
        nearest=Source("It was named in 1949.", "discoverers.txt", 85),
    )  # fmt: skip
    assert str(answer) == (
        f'I don\'t know.\nnearest passage: "{MIRANDA} It was named in 1949." (discoverers.txt:85)'
    )
    assert "no answer found" in answer._repr_html_()


def test_print_escapes_what_a_terminal_would_obey() -> None:
    answer = Answer("Who?", "Ann\x1b[2J\nBob", "direct", ANSWER.gate)
    assert str(answer) == "Ann\\x1b[2J\nBob"


class Elements(HTMLParser):
    """The tags and attributes of a page; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile_answer(_: Path) -> Answer:
    source = Source(SCRIPT, SCRIPT, 1, section=SCRIPT)
    passage = Passage(SCRIPT, f"{SCRIPT} Ann won.", kept=True, source=source, factuality=0.5)
    return Answer(
        SCRIPT, SCRIPT, SCRIPT, Decision(SCRIPT, 0.5, fired=True), cards=(SCRIPT,), passages=(passage,),
        citations=(Citation("Ann", 0, 0.5), Citation(SCRIPT, None)), nearest=source, choice=SCRIPT,
        usage=Usage(1, 2),
    )  # fmt: skip


def hostile_card(folder: Path) -> Card:
    base = Base(name=SCRIPT)
    return Card(
        folder / SCRIPT, Manifest("moons", SCRIPT, kind="lora", licence=SCRIPT, language=SCRIPT, base=base)
    )


def hostile_hub(folder: Path) -> kcard.Hub:
    (folder / "notes.txt").write_text("Ann won.", encoding="utf-8")
    card = kcard.train(folder / "notes.txt", kind="retrieval", description=SCRIPT, output=folder / "notes")
    hub = kcard.Hub(folder / "<b>")
    hub.publish(card.folder)
    return hub


def hostile_evaluation(_: Path) -> Evaluation:
    row = SettingSummary(
        SCRIPT, SCRIPT, SCRIPT, 2, 0.5, 0.1, 0.9, None, 0.25, 0.5, 0.5, 0.5, None, None, None, 2, 10, 5, 0.1, 1.5, 0, 1
    )  # fmt: skip
    task = SimpleNamespace(name=SCRIPT, ids=("a", "b"), total=9, metric=SCRIPT)
    run: Any = SimpleNamespace(number=3, plan=SimpleNamespace(tasks=(task,), llm=SCRIPT))
    return Evaluation(run, (row,))


@pytest.mark.parametrize("make", [hostile_answer, hostile_card, hostile_hub, hostile_evaluation])
def test_notebooks_get_escaped_html_without_foreign_requests(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    page = make(tmp_path)._repr_html_()
    assert html.escape("<script>", quote=False) in page
    assert "knowledge up to" not in page, "it is unknown"
    elements = Elements(page)
    assert "script" not in elements.tags
    assert not {"src", "href", "onclick", "onerror"} & set(elements.attributes)
    assert re.findall(r"https?:|url\(|@import", page) == []
    assert len(page) < 12_000


def test_an_answer_in_a_notebook_marks_the_words_that_it_rests_on() -> None:
    page = ANSWER._repr_html_()
    assert f"“<b>Gerard Kuiper</b>{MIRANDA.removeprefix('Gerard Kuiper')}”" in page
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S).split())
    assert "moons (retrieval) · discoverers.txt:85 · faithfulness 1.00 · factuality 0.93" in text
    assert (
        "confidence 0.85 · cards used (gate: self-ask 0.19) · mode: top-down · 3 LLM calls · 0.91 s" in text
    )
    assert "1 passage " in text


@pytest.mark.browser
def test_values_are_accessible_in_light_and_dark_and_fit_a_phone(tmp_path: Path) -> None:
    from tests.hub.server.chromium import launched, opened, require_accessible

    makers = (hostile_answer, hostile_card, hostile_hub, hostile_evaluation)
    values = [ANSWER, *(make(tmp_path) for make in makers)]
    shown = "".join(value._repr_html_() for value in values).replace("<details>", "<details open>")
    page = tmp_path / "notebook.html"
    head = "<html lang=en><meta charset=utf-8><title>Notebook</title><style>:root { color-scheme: light dark }</style>"
    page.write_text(f"<!doctype html>{head}<main><h1>Values</h1>{shown}</main>", encoding="utf-8")
    with launched() as browser:
        for narrow in (False, True):
            with opened(browser, "file://", str(page), narrow=narrow) as tab:
                assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
                require_accessible(tab)
