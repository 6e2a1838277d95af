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


def test_the_view_leads_from_the_sentence_to_card_file_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    from kcard.cli.ask import show

    looked_up = Passage("moons", "Kuiper found Miranda.", kept=True, source=Source("x", "uranus.md", 14))
    recited = Passage("seas", "A sea [red].", kept=True, evidence=Source("y", "seas.md", 3))
    bare = Passage("notes", "No place.", kept=True)
    cited = (
        Citation("Kuiper", 0, 1.0, line=17),
        Citation("A [red] sea.", 1, 0.75),
        Citation("No place", 2, 1.0),
        Citation("Else."),
    )
    gate = Decision("always", 0.0, True)
    show(Answer("q", "a", "bottom-up", gate, passages=(looked_up, recited, bare), citations=cited))
    out = capsys.readouterr().out
    assert '"Kuiper found Miranda." <- moons (retrieval) <- uranus.md:17\n' in out
    assert '"A [red] sea." <- seas (model, support 0.75) <- seas.md:3\n' in out
    assert '"No place" <- notes (model)\n' in out
    assert "not in the cards: Else.\n" in out


def shown(
    capsys: pytest.CaptureFixture[str], text: str, *cited: Citation, nearest: Source | None = None
) -> str:
    from kcard.cli.ask import show

    known = "A mill stood there. - Kuiper found Miranda in 1948. It is small and round and nobody ever lived on it."
    passages = tuple(Passage("moons", known, kept=True, source=Source("x", f"{n}.md", n)) for n in (1, 2))
    gate = Decision("always", 0.0, True)
    show(Answer("q", text, "bottom-up", gate, passages=passages, citations=cited, nearest=nearest))
    return capsys.readouterr().out


def test_words_are_shown_in_the_sentence_that_the_llm_names(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "1948", *cite_quote("1948", Quote("- Kuiper found it in 1948.", 0), PASSAGES))
    assert '"Kuiper found it in 1948." <- moons' in out


def test_sentences_of_one_passage_are_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = "A mill stood there.", "It is small and round and nobody ever lived on it."
    out = shown(capsys, f"{one} {other}", Citation(one, 0, 1.0), Citation(other, 0, 1.0))
    assert out.splitlines()[1:-1] == ["[1] moons (retrieval) <- 1.md:1"]
    out = shown(capsys, f"{other} {one}", Citation(other, 0, 1.0), Citation(one, 1, 1.0))
    assert '"It is small and round and nobody ever …" <- moons (retrieval) <- 1.md:1\n' in out


def test_the_nearest_words_stand_in_their_passage(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "I don't know.", nearest=Source("Kuiper found Miranda in 1948.", "1.md", 1))
    assert '"A mill stood there. - Kuiper found Miranda in 1948. It is small' in out


def test_headings_that_were_read_before_a_passage_are_not_part_of_a_quotation() -> None:
    source = Source("It waits.", "a.md", 1, section="Manual > 2.1 Locks: how")
    kept = [Passage("m", "It waits. Then it goes.", kept=True, source=source)]
    for said, plain in (
        ("Manual > 2.1 Locks: how: It waits.", "It waits."),
        ("No: 1 Locks: how: It waits. … Then it goes.", "No: It waits. … Then it goes."),
        ("It waits.\nLocks: how: Then: it goes.", "It waits.\nThen: it goes."),
        ("Then: it goes.", "Then: it goes."),
    ):
        assert without_headings(said, kept) == plain
    assert without_headings("Manual > 2.1 Locks: how: It waits.", []) == "Manual > 2.1 Locks: how: It waits."
