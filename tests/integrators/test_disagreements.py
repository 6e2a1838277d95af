"""Passages that compete: duplicates, a card's model against its own index, and cards that contradict each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.disagreements import (
    beaten_by_index,
    correct_by_corpus,
    features,
    resolve_conflicts,
    without_duplicates,
)
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import SingleDocument
from kcard.interfaces import Array, Checker, Evidence, Pair, Pruner, Reader, Relevance
from kcard.llms.embedded_llm import SpanReader
from kcard.types import Choice, Context, Passage, Sampling, Source, Turn
from tests.fakes import WrittenCards, questions

# What a card's model says and its corpus says otherwise is not read.

KUIPER = Source("Gerard Kuiper discovered Miranda.", "discoverers.txt", 85)


@pytest.mark.parametrize(
    ("written", "faithfulness", "said"),
    [
        (
            "Mark Showalter discovered Miranda.",
            0.9,
            "'Mark Showalter', but its corpus (discoverers.txt:85) 'Gerard",
        ),
        (
            "Miranda shares its orbit with Janus.",
            0.5,
            "'Miranda shares its orbit with Janus.', but its corpus ",
        ),
        ("Kuiper discovered Miranda.", 0.9, None),
        ("Miranda is a moon of Uranus.", 0.9, None),
    ],
)
def test_the_corpus_takes_the_place_of_what_it_contradicts_or_does_not_support(
    written: str, faithfulness: float, said: str | None
) -> None:
    passage = Passage("moons", written, faithfulness=faithfulness, evidence=KUIPER, kept=True)
    found = correct_by_corpus("Who discovered Miranda?", Context((passage,), ("before",)), SpanReader())
    if said is None:
        assert found == Context((passage,), ("before",))
        return
    first, second = found.passages
    assert (first.text, first.source, first.kept) == (KUIPER.text, KUIPER, True)
    assert second == replace(passage, kept=False, reason=second.reason)
    assert second.reason.startswith("its corpus ")
    before, note = found.notes
    assert before == "before"
    assert note.startswith(f"the model of moons says {said}")


def test_a_passage_that_other_evidence_judged_is_not_corrected_by_it() -> None:
    passage = Passage(
        "moons", "Mark Showalter discovered Miranda.", factuality=0.1, evidence=KUIPER, kept=True
    )
    context = Context((passage,))
    assert correct_by_corpus("Who discovered Miranda?", context, SpanReader()) == context


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


@pytest.mark.parametrize(
    ("rounds", "reorder", "passages"),
    [
        pytest.param(0, False, (OLD, NEW), id="not wanted"),
        pytest.param(1, True, (NEW, OLD), id="one round"),
        pytest.param(2, True, (OLD, NEW), id="several rounds, in whose order the LLM saw them"),
    ],
)
def test_the_order_may_stay_as_it_is_and_the_note_is_given_all_the_same(
    rounds: int, reorder: bool, passages: tuple[Passage, ...]
) -> None:
    context = Context((OLD, NEW), turns=(Turn("what", "captains", documents=1),) * rounds)
    found = resolve_conflicts(QUESTION, context, CARDS, SpanReader(), reorder)
    assert found.passages == passages
    assert found.notes[0].startswith("cards disagree: new")


@pytest.mark.parametrize(
    ("passages", "reader"),
    [
        pytest.param(
            (OLD, Passage("new", "Since last spring captain Mina Orlov has commanded the Alder.", kept=True)),
            SpanReader(),
            id="the same in other words",
        ),
        pytest.param(
            (OLD, Passage("new", "The Alder was built in 1871.", kept=True)), SpanReader(), id="no answer"
        ),
        pytest.param(
            (passage("old", "Captain Vance"), passage("new", "captain the vance")),
            LastWords(),
            id="a shorter name",
        ),
        pytest.param((passage("old", "Ann Lee"), passage("old", "Ben Roe")), LastWords(), id="one card"),
        pytest.param(
            (passage("old", "Ann Lee"), passage("new", "Ben Roe", factuality=0.1)),
            LastWords(),
            id="doubted by its own evidence",
        ),
    ],
)
def test_cards_that_do_not_disagree_are_left_as_they_are(
    passages: tuple[Passage, ...], reader: Reader
) -> None:
    gathered = Context(passages)
    assert resolve_conflicts(QUESTION, gathered, CARDS, reader) == gathered


def test_a_card_without_a_date_comes_last() -> None:
    gathered = Context((passage("undated", "Ann Lee"), passage("old", "Ben Roe")))
    found = resolve_conflicts(QUESTION, gathered, CARDS, LastWords())
    assert [p.card for p in found.passages] == ["old", "undated"]
    assert "undated (no date) says 'Ann Lee'" in found.notes[0]


def test_what_relevance_kept_counts_though_the_draw_left_it_out() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("new", "Ben Roe", kept=False)))
    assert "Ben Roe" in resolve_conflicts(QUESTION, gathered, CARDS, LastWords()).notes[0]


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


def looked_up(text: str, score: float) -> Passage:
    return Passage("c", text, source=Source(text, "a.txt", 1, score))


ASKED = "Who built the mill of Upper Tarn?"
OWN = Passage("c", "Ida Vale built the mill of Upper Tarn.")
OTHER = looked_up("The mill of Port Callow was built by Tom Birk.", 0.9)
SAME = looked_up("The mill of Upper Tarn was built by Ida Vale.", 0.9)
EVIDENCE: dict[str, Evidence] = {"c": Found("the rhine ends in the north sea")}
WRITTEN = Passage("c", "rhine ends in north sea beach")  # factuality 5/6
FACTUAL = Passage("c", "the north sea")
NEAR, FAR = looked_up("rhine ends in", 0.5), looked_up("a b c d", 0.9)


@pytest.mark.parametrize(
    ("passages", "question", "evidence", "kept"),
    [
        pytest.param([OWN, OTHER], ASKED, {}, [OWN, OTHER], id="the model's fits better"),
        pytest.param([OWN, OTHER, SAME], ASKED, {}, [OTHER, SAME], id="the index fits as well"),
        pytest.param([NEAR, FAR], "rhine ends in", {}, [FAR, NEAR], id="in the order of the index"),
        pytest.param([WRITTEN, FACTUAL], "rhine ends in", EVIDENCE, [FACTUAL], id="no index: most factual"),
    ],
)
def test_what_was_looked_up_is_kept_and_what_a_model_wrote_where_it_fits_the_question_better(
    passages: list[Passage], question: str, evidence: dict[str, Evidence], kept: list[Passage]
) -> None:
    step = SingleDocument(said(passages), Selectors(Shared(), Shared(), Shared(), evidence))
    (gathered,) = step.run(questions(question), [("c",)], Sampling())
    assert [p.text for p in gathered.passages if p.kept] == [p.text for p in kept]


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
