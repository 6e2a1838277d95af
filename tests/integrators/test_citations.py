"""Citations: each sentence of an answer is traced to the kept passage that it rests on, cheaply and honestly."""

from collections.abc import Sequence

import pytest

from kcard.integrators.citations import cite, cite_quote, line_of, without_headings
from kcard.interfaces import Array, Checker, Pair
from kcard.types import Answer, Citation, Decision, Passage, Quote, Source
from tests.fakes import WordOverlap

PASSAGES = [
    Passage("moons", "Miranda was found in 1948.", kept=False),
    Passage("moons", "Titania is the largest moon of Uranus.", kept=True),
    Passage(
        "moons",
        "Gerard Kuiper found Miranda, a moon of Uranus. It is small.",
        "Gerard Kuiper found Miranda.",
        kept=True,
    ),
]


class NoChecker(Checker):
    """Fails where it is asked: a copied answer must cost no reading."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        raise AssertionError(pairs)


@pytest.mark.parametrize("answer", ["Gerard Kuiper", "gerard kuiper.", "Gerard  Kuiper"])
def test_a_copied_answer_rests_on_the_passage_that_holds_its_words(answer: str) -> None:
    assert cite(answer, PASSAGES, NoChecker()) == (Citation(answer, 2, 1.0),)
    sentence = "Titania is the largest moon of Uranus."
    assert cite(f"Yes: {sentence}", PASSAGES, NoChecker()) == (Citation(sentence, 1, 1.0),)
    passages = [Passage("m", "It has 7 moons.", kept=True), Passage("m", "木星有四颗卫星。", kept=True)]
    assert cite("7", passages, NoChecker()) == (Citation("7", 0, 1.0),)
    assert cite("四颗", passages, NoChecker()) == (Citation("四颗", 1, 1.0),)


@pytest.mark.parametrize(
    "answer",
    [
        *("1948", "It is small"),  # the LLM did not read it
        *("Kuiper Gerard", "Uran"),  # stands apart
        *("A", "of", "is"),  # stands everywhere
    ],
)
def test_what_is_not_copied_from_what_the_llm_read_has_no_passage(answer: str) -> None:
    assert cite(answer, PASSAGES, NoChecker()) == (Citation(answer),)


def test_each_sentence_of_a_longer_answer_has_its_own_passage() -> None:
    answer = (
        "Gerard Kuiper found Miranda. Of the moons Titania is the largest moon of Uranus. "
        "Nobody can say much else today."
    )
    found = cite(answer, PASSAGES, WordOverlap())
    assert [c.passage for c in found] == [2, 1, None]
    assert found[0].support == 1.0
    assert 0.5 < found[1].support < 1
    assert 0 <= found[2].support < 0.5


def test_nothing_is_cited_where_nothing_was_kept_or_nothing_said() -> None:
    assert cite("Gerard Kuiper", PASSAGES[:1], NoChecker()) == ()
    assert cite("", PASSAGES, NoChecker()) == ()


def test_citations_are_in_the_json_only_where_there_are_any() -> None:
    answer = Answer("q", "Titania", "top-down", Decision("always", 0.0, True), passages=tuple(PASSAGES))
    assert "citations" not in answer.to_json()
    cited = Answer("q", "Titania", "top-down", answer.gate, citations=(Citation("Titania", 1, 1.0),))
    assert cited.to_json()["citations"] == [
        {"sentence": "Titania", "passage": 1, "support": 1.0, "verdict": "supported"}
    ]


def test_a_citation_names_the_line_on_which_its_sentence_begins() -> None:
    text = "Titania was found in 1787. Miranda is small. It was found by Kuiper."
    source = Source(text, "moons.md", 4, lines=((3, 5), (8, 6), (12, 8)))
    passages = [Passage("moons", text, kept=True, source=source)]
    for words, line in (("1787", 4), ("Miranda is small.", 5), ("found by Kuiper", 6)):
        [citation] = cite(words, passages, NoChecker())
        assert citation.line == line
    assert line_of("Kuiper, who found it", source) == 6
    answer = Answer("q", "1787", "top-down", Decision("always", 0.0, True), citations=(citation,))
    assert answer.to_json()["citations"][0]["line"] == 6


def test_words_are_cited_with_the_sentence_that_the_llm_names() -> None:
    [citation] = cite_quote("1948", Quote("- Kuiper found it in 1948.", 0), PASSAGES)
    assert (citation.passage, citation.quote) == (1, "- Kuiper found it in 1948.")


def test_sentences_of_one_passage_are_shown_with_one_source() -> None:
    sentences = ("A mill stood there.", "It is small.")
    passage = Passage("moons", " ".join(sentences), kept=True, evidence=Source("x", "1.md", 1))
    citations = tuple(Citation(sentence, 0, 1.0) for sentence in sentences)
    gate = Decision("always", 0.0, True)
    answer = Answer("q", passage.text, "bottom-up", gate, passages=(passage,), citations=citations)
    assert str(answer).splitlines()[1:] == ["[1] moons (model) <- 1.md:1"]


def test_headings_that_were_read_before_a_passage_are_not_part_of_a_quotation() -> None:
    title, option = "Manual > 2.1 Locks: how", "Manual > Options > -w, --wait"
    for section, said, plain in (
        (title, "Manual > 2.1 Locks: how: It waits.", "It waits."),
        (title, "No: 1 Locks: how: It waits. … Then it goes.", "No: It waits. … Then it goes."),
        (title, "It waits.\nLocks: how: Then: it goes.", "It waits.\nThen: it goes."),
        (title, "Then: it goes.", "Then: it goes."),
        (option, "Manual > Options > -w, --wait: It waits.", "-w, --wait: It waits."),
        (option, "-w, --wait: It waits.", "-w, --wait: It waits."),
        (option, "--wait: It waits.", "--wait: It waits."),
    ):
        source = Source("It waits.", "a.md", 1, section=section)
        kept = [Passage("m", "It waits. Then it goes.", kept=True, source=source)]
        assert without_headings(said, kept) == plain
    assert without_headings("Manual > 2.1 Locks: how: It waits.", []) == "Manual > 2.1 Locks: how: It waits."
