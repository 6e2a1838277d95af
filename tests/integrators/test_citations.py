"""Citations: each sentence of an answer is traced to the kept passage that it rests on, cheaply and honestly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.citations import (
    beaten_by_index,
    cite,
    cite_quote,
    features,
    line_of,
    resolve_conflicts,
    without_duplicates,
    without_headings,
)
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import SingleDocument
from kcard.interfaces import Array, Checker, Evidence, Pair, Pruner, Relevance
from kcard.offline.checker import MiniLMChecker
from kcard.offline.llm import SpanReader
from kcard.types import Answer, Choice, Citation, Context, Decision, Passage, Quote, Sampling, Source, Turn
from tests.fakes import WrittenCards, questions

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


class Words(Checker):
    """Support is the share of the claim's words in the evidence."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        shares = [
            len(set(p.claim.lower().split()) & set(p.evidence.lower().split())) / len(set(p.claim.split()))
            for p in pairs
        ]
        return np.array(shares, dtype=np.float32)


@pytest.mark.parametrize("answer", ["Gerard Kuiper", "gerard kuiper.", "Gerard  Kuiper"])
def test_a_copied_answer_rests_on_the_passage_that_holds_its_words(answer: str) -> None:
    assert cite(answer, PASSAGES, NoChecker()) == (Citation(answer, 2, 1.0),)


def test_only_what_the_llm_read_of_a_kept_passage_counts() -> None:
    assert cite("1948", PASSAGES, NoChecker()) == (Citation("1948"),)
    assert cite("It is small", PASSAGES, NoChecker()) == (Citation("It is small"),)


def test_words_that_stand_apart_are_not_copied() -> None:
    assert cite("Kuiper Gerard", PASSAGES, NoChecker()) == (Citation("Kuiper Gerard"),)
    assert cite("Uran", PASSAGES, NoChecker()) == (Citation("Uran"),)


@pytest.mark.parametrize("answer", ["A", "of", "is"])
def test_a_word_that_stands_everywhere_proves_nothing(answer: str) -> None:
    assert cite(answer, PASSAGES, NoChecker()) == (Citation(answer),)


def test_a_figure_and_a_character_of_an_unspaced_script_do() -> None:
    passages = [Passage("m", "It has 7 moons.", kept=True), Passage("m", "木星有四颗卫星。", kept=True)]
    assert cite("7", passages, NoChecker()) == (Citation("7", 0, 1.0),)
    assert cite("四颗", passages, NoChecker()) == (Citation("四颗", 1, 1.0),)


def test_each_sentence_of_a_longer_answer_has_its_own_passage() -> None:
    answer = (
        "Gerard Kuiper found Miranda. Of the moons Titania is the largest moon of Uranus. "
        "Nobody can say much else today."
    )
    found = cite(answer, PASSAGES, Words())
    assert [c.passage for c in found] == [2, 1, None]
    assert found[0].support == 1.0
    assert 0.5 < found[1].support < 1
    assert 0 <= found[2].support < 0.5


def test_the_real_checker_tells_a_supported_sentence_from_a_made_up_one() -> None:
    answer = "The biggest of the moons of Uranus is Titania. Titania was painted green in the year 1732."
    found = cite(answer, PASSAGES, MiniLMChecker())
    assert [c.passage for c in found] == [1, None]
    assert all(0 <= c.support <= 1 for c in found)


def test_nothing_is_cited_where_nothing_was_kept_or_nothing_said() -> None:
    assert cite("Gerard Kuiper", PASSAGES[:1], NoChecker()) == ()
    assert cite("", PASSAGES, NoChecker()) == ()


def test_citations_are_in_the_json_only_where_there_are_any() -> None:
    answer = Answer("q", "Titania", "top-down", Decision("always", 0.0, True), passages=tuple(PASSAGES))
    assert "citations" not in answer.to_json()
    cited = Answer("q", "Titania", "top-down", answer.gate, citations=(Citation("Titania", 1, 1.0),))
    assert cited.to_json()["citations"] == [{"sentence": "Titania", "passage": 1, "support": 1.0}]


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
    assert '"Else." <- no kept passage\n' in out


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
    assert out.splitlines()[1:-1] == ["<- moons (retrieval) <- 1.md:1"]
    out = shown(capsys, f"{other} {one}", Citation(other, 0, 1.0), Citation(one, 1, 1.0))
    assert '"It is small and round and nobody ever …" <- moons (retrieval) <- 1.md:1\n' in out


def test_the_nearest_words_stand_in_their_passage(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "I don't know.", nearest=Source("Kuiper found Miranda in 1948.", "1.md", 1))
    assert '"A mill stood there. - Kuiper found Miranda in 1948. It is small' in out


def test_yes_or_no_is_no_part_of_what_is_cited() -> None:
    assert cite("Yes: Titania is the largest moon of Uranus.", PASSAGES, NoChecker()) == (
        Citation("Titania is the largest moon of Uranus.", 1, 1.0),
    )


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


# Cards that contradict each other: the user is told what each says and up to when it knows; the newest goes first.

CARDS = {
    "old": Choice("old", "captains of ships", "2020-12-01"),
    "new": Choice("new", "captains of ships", "2022-11-30"),
    "undated": Choice("undated", "ships"),
}
QUESTION = "Who is the captain of the Alder?"
OLD = Passage("old", "Mina Orlov is the captain of the Alder.", kept=True)
NEW = Passage("new", "The captain of the Alder is Tomas Reyes.", kept=True)


class LastWords:
    """Reads the last two words of a text about captains."""

    def extract(self, question: str, text: str) -> str | None:
        del question
        return " ".join(text.strip(".").split()[-2:]) if "captain" in text else None


def passage(card: str, name: str, kept: bool = True, factuality: float | None = None) -> Passage:
    text = f"The captain is {name}."
    return Passage(card, text, text, factuality=factuality, kept=kept)


def test_cards_that_differ_are_named_with_their_dates_and_the_newest_goes_first() -> None:
    found = resolve_conflicts(QUESTION, Context((OLD, NEW), ("before",)), CARDS, SpanReader())
    assert found.passages == (NEW, OLD)
    assert found.notes == (
        "before",
        "cards disagree: new (2022-11-30) says 'Tomas Reyes', old (2020-12-01) says 'Mina Orlov'",
    )


def test_the_order_can_be_left_as_it_is_and_the_note_stays() -> None:
    found = resolve_conflicts(QUESTION, Context((OLD, NEW)), CARDS, SpanReader(), reorder=False)
    assert found.passages == (OLD, NEW)
    assert found.notes[0].startswith("cards disagree: new")


def test_passages_of_several_rounds_keep_the_order_in_which_the_llm_saw_them() -> None:
    turns = (Turn("what", "captains", documents=1), Turn("what", "newer captains", documents=1))
    assert resolve_conflicts(QUESTION, Context((OLD, NEW), turns=turns), CARDS, SpanReader()).passages == (
        OLD,
        NEW,
    )
    assert resolve_conflicts(
        QUESTION, Context((OLD, NEW), turns=turns[:1]), CARDS, SpanReader()
    ).passages == (
        NEW,
        OLD,
    )


def test_cards_that_agree_are_left_as_they_are() -> None:
    same = Passage("new", "Since last spring captain Mina Orlov has commanded the Alder.", kept=True)
    gathered = Context((OLD, same))
    assert resolve_conflicts(QUESTION, gathered, CARDS, SpanReader()) == gathered


def test_what_does_not_answer_the_question_contradicts_nobody() -> None:
    other = Passage("new", "The Alder was built in 1871.", kept=True)
    gathered = Context((OLD, other))
    assert resolve_conflicts(QUESTION, gathered, CARDS, SpanReader()) == gathered


def test_a_shorter_name_agrees_with_the_longer_one() -> None:
    gathered = Context((passage("old", "Captain Vance"), passage("new", "captain the vance")))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered


def test_a_card_without_a_date_comes_last() -> None:
    gathered = Context((passage("undated", "Ann Lee"), passage("old", "Ben Roe")))
    found = resolve_conflicts(QUESTION, gathered, CARDS, LastWords())
    assert [p.card for p in found.passages] == ["old", "undated"]
    assert "undated (no date) says 'Ann Lee'" in found.notes[0]


def test_one_card_can_not_disagree_with_itself() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("old", "Ben Roe")))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered


def test_what_relevance_kept_counts_though_the_draw_left_it_out() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("new", "Ben Roe", kept=False)))
    assert "Ben Roe" in resolve_conflicts(QUESTION, gathered, CARDS, LastWords()).notes[0]


def test_what_its_own_evidence_doubts_does_not_count() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("new", "Ben Roe", factuality=0.1)))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered


# What an index looked up and what a model wrote, side by side: true to the corpus is not yet to the point.


def said(passages: Sequence[Passage]) -> WrittenCards:
    """A card that writes what it was given."""
    return WrittenCards([Choice("c", "a card")], lambda _, documents: passages[:documents])


class Shared(Checker, Relevance, Pruner):
    """Relevance is the share of the question's words in the text; support, of the claim's in the evidence."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        return self.support([Pair(question, text) for text in texts])

    def support(self, pairs: Sequence[Pair]) -> Array:
        claims = [(set(p.claim.split()), set(p.evidence.split())) for p in pairs]
        return np.array([len(c & e) / len(c) for c, e in claims], dtype=np.float32)

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        raise AssertionError(f"top-down prunes nothing: {question}, {texts}")


class Unpruned(Pruner):
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        assert question
        return list(texts)


@dataclass(frozen=True)
class Found(Evidence):
    text: str

    def find(self, claim: str, k: int) -> list[Source]:
        return [Source(claim if claim == "looked up" else self.text, "a.txt", 1)][:k]


def kept(passages: Sequence[Passage], question: str, evidence: dict[str, Evidence]) -> list[str]:
    step = SingleDocument(said(passages), Selectors(Shared(), Shared(), Shared(), evidence))
    (gathered,) = step.run(questions(question), [("c",)], Sampling())
    return [p.text for p in gathered.passages if p.kept]


def looked_up(text: str, score: float) -> Passage:
    return Passage("c", text, source=Source(text, "a.txt", 1, score))


ASKED = "Who built the mill of Upper Tarn?"
OWN = Passage("c", "Ida Vale built the mill of Upper Tarn.")
OTHER = looked_up("The mill of Port Callow was built by Tom Birk.", 0.9)
SAME = looked_up("The mill of Upper Tarn was built by Ida Vale.", 0.9)
EVIDENCE: dict[str, Evidence] = {"c": Found("the rhine ends in the north sea")}
WRITTEN = Passage("c", "rhine ends in north sea beach")  # factuality 5/6


def test_what_an_index_looked_up_is_kept_behind_what_a_model_wrote_that_fits_the_question_better() -> None:
    assert kept([OWN, OTHER], ASKED, {}) == [OWN.text, OTHER.text]


def test_what_a_model_wrote_stands_back_where_the_index_fits_as_well() -> None:
    assert kept([OWN, OTHER, SAME], ASKED, {}) == [OTHER.text, SAME.text]


def test_of_looked_up_passages_the_order_of_the_index_counts() -> None:
    found = [looked_up("rhine ends in", 0.5), looked_up("a b c d", 0.9)]
    assert kept(found, "rhine ends in", {}) == ["a b c d", "rhine ends in"]


def test_without_an_index_the_most_factual_document_is_kept_whatever_its_relevance() -> None:
    other = Passage("c", "the north sea")
    assert kept([WRITTEN, other], "rhine ends in", EVIDENCE) == [other.text]


@pytest.mark.parametrize("turned", [False, True])
def test_a_text_that_was_written_and_looked_up_counts_as_looked_up(turned: bool) -> None:
    pair = [Passage("c", "same"), looked_up("same", 0.4)]
    found = without_duplicates(
        [Passage("c", ""), *(reversed(pair) if turned else pair), Passage("c", "other")]
    )
    assert [(p.text, p.source is not None) for p in found] == [("same", True), ("other", False)]


@pytest.mark.parametrize(("seat", "out"), [("3rd", False), ("4th", True), ("third", False), ("fourth", True)])
def test_the_model_counts_where_the_index_only_has_another_number(seat: str, out: bool) -> None:
    written = Passage("c", "The 3rd seat of Ormond went to Ida Vale.")
    found = looked_up("The 4th seat of Ormond went to Tom Birk.", 0.9)
    assert beaten_by_index([f"Who got the {seat} seat of Ormond?"], [[written, found]]) == [[out, False]]


def test_each_card_is_compared_with_its_own_index() -> None:
    other = Passage("other", "The mill stood empty.")
    assert beaten_by_index([ASKED], [[other, SAME]]) == [[False, False]]
    assert beaten_by_index([ASKED], [[OWN, other]]) == [[False, False]]
    passages = [other, SAME, replace(OWN, card="d"), replace(OTHER, card="d"), replace(other, card="c")]
    assert beaten_by_index([ASKED], [passages]) == [[False, False, False, False, True]]


def test_questions_together_are_judged_as_alone() -> None:
    rows = [[OWN, OTHER], [], [OWN, SAME]]
    assert beaten_by_index([ASKED] * 3, rows) == [beaten_by_index([ASKED], [row])[0] for row in rows]


def test_the_features_are_leads_of_the_model_over_the_best_of_the_index() -> None:
    (same,) = features([(ASKED, [OWN, looked_up(OWN.text, 0.2)])])
    assert same == {"bias": 1.0, "relevance": 0.0, "covered": 0.0}
    (better,) = features([(ASKED, [OWN, OTHER])])
    (worse,) = features([(ASKED, [OWN, OTHER, SAME])])
    assert better["relevance"] > max(0.0, worse["relevance"])
    assert better["covered"] == pytest.approx(0.5)
    assert worse["covered"] == 0.0


@pytest.mark.parametrize(("found", "chosen"), [(SAME, {SAME.text}), (OTHER, {OTHER.text, OWN.text})])
def test_bottom_up_keeps_the_models_document_only_where_it_fits_clearly_better(
    found: Passage, chosen: set[str]
) -> None:
    selectors = Selectors(Shared(), Unpruned(), Shared(), {})
    bottom_up = BottomUp(said([OWN, found]), selectors, Sampling(), floor=0.0)
    (gathered,) = bottom_up.gather(questions(ASKED))
    assert {p.text for p in gathered.passages if p.kept} == chosen
    assert {p.text for p in gathered.passages} == {found.text, OWN.text}
