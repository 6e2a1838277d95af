"""What an index looked up and what a model wrote, side by side: true to the corpus is not yet to the point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.citations import beaten_by_index, features, without_duplicates
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import SingleDocument
from kcard.interfaces import Array, Evidence, Pair
from kcard.types import Choice, Passage, Sampling, Source


@dataclass(frozen=True)
class Said:
    """A card that writes what it was given."""

    passages: Sequence[Passage]
    cards: Sequence[Choice] = (Choice("c", "a card"),)

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        assert (list(cards), sampling) == (["c"], Sampling())
        return [list(self.passages[:documents]) for _ in questions]


class Shared:
    """Relevance is the share of the question's words in the text; support, of the claim's in the evidence."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        return self.support([Pair(question, text) for text in texts])

    def support(self, pairs: Sequence[Pair]) -> Array:
        claims = [(set(p.claim.split()), set(p.evidence.split())) for p in pairs]
        return np.array([len(c & e) / len(c) for c, e in claims], dtype=np.float32)

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        raise AssertionError(f"top-down prunes nothing: {question}, {texts}")


class Unpruned:
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        assert question
        return list(texts)


@dataclass(frozen=True)
class Found:
    text: str

    def find(self, claim: str, k: int) -> list[Source]:
        return [Source(claim if claim == "looked up" else self.text, "a.txt", 1)][:k]


def kept(passages: Sequence[Passage], question: str, evidence: dict[str, Evidence]) -> list[str]:
    step = SingleDocument(Said(passages), Selectors(Shared(), Shared(), Shared(), evidence))
    (gathered,) = step.run([question], [("c",)], Sampling())
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
    bottom_up = BottomUp(Said([OWN, found]), selectors, Sampling(), floor=0.0)
    (gathered,) = bottom_up.gather([ASKED])
    assert {p.text for p in gathered.passages if p.kept} == chosen
    assert {p.text for p in gathered.passages} == {found.text, OWN.text}
