"""What an index looked up and what a model wrote, side by side: true to the corpus is not yet to the point."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from kcard.answer import Passage, Source
from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.gathered import distinct
from kcard.integrators.looked_up import outdone
from kcard.integrators.selectors import Selectors
from kcard.integrators.single import SingleDocument
from kcard.protocols import Array, Evidence, Pair
from kcard.request import Choice
from kcard.sampling import Sampling


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


EVIDENCE: dict[str, Evidence] = {"c": Found("the rhine ends in the north sea")}
WRITTEN = Passage("c", "rhine ends in north sea beach")  # factuality 5/6


def test_what_an_index_looked_up_is_kept_behind_what_a_model_wrote_nearer_to_the_question() -> None:
    found = [WRITTEN, looked_up("looked up", 0.2)]
    assert kept(found, "rhine ends in", EVIDENCE) == [WRITTEN.text, "looked up"]


def test_what_a_model_wrote_stands_back_where_the_index_is_as_near() -> None:
    assert (
        kept([WRITTEN, looked_up("looked up", 0.95)], "rhine ends in looked up", EVIDENCE)[-1] == "looked up"
    )


def test_of_looked_up_passages_the_order_of_the_index_counts() -> None:
    found = [looked_up("rhine ends in", 0.5), looked_up("a b c d", 0.9)]
    assert kept(found, "rhine ends in", {}) == ["a b c d", "rhine ends in"]


def test_without_an_index_the_most_factual_document_is_kept_whatever_its_relevance() -> None:
    other = Passage("c", "the north sea")
    assert kept([WRITTEN, other], "rhine ends in", EVIDENCE) == [other.text]


@pytest.mark.parametrize("turned", [False, True])
def test_a_text_that_was_written_and_looked_up_counts_as_looked_up(turned: bool) -> None:
    pair = [Passage("c", "same"), looked_up("same", 0.4)]
    found = distinct([Passage("c", ""), *(reversed(pair) if turned else pair), Passage("c", "other")])
    assert [(p.text, p.source is not None) for p in found] == [("same", True), ("other", False)]


def test_what_a_model_wrote_stands_back_unless_it_is_clearly_nearer_than_what_its_index_found() -> None:
    written, found = Passage("c", "w"), looked_up("l", 0.4)
    assert outdone([written, found], [0.6, 0.5]) == [True, False]
    assert outdone([written, found], [0.75, 0.5]) == [False, False]
    assert outdone([written, found, looked_up("m", 0.4)], [0.75, 0.5, 0.6]) == [True, False, False]


def test_cards_without_an_index_do_not_stand_back_for_the_index_of_another() -> None:
    assert outdone([Passage("other", "w"), looked_up("l", 0.9)], [0.1, 0.9]) == [False, False]
    assert outdone([Passage("c", "w"), Passage("c", "v")], [0.1, 0.9]) == [False, False]


@pytest.mark.parametrize(
    ("found", "chosen"), [("rhine ends", {"rhine ends"}), ("rhine falls", {"rhine falls", WRITTEN.text})]
)
def test_bottom_up_keeps_the_models_document_only_where_the_index_has_nothing_near(
    found: str, chosen: set[str]
) -> None:
    selectors = Selectors(Shared(), Unpruned(), Shared(), {})
    bottom_up = BottomUp(Said([WRITTEN, looked_up(found, 0.5)]), selectors, Sampling(), floor=0.0)
    (gathered,) = bottom_up.gather(["rhine ends"])
    assert {p.text for p in gathered.passages if p.kept} == chosen
    assert {p.text for p in gathered.passages} == {found, WRITTEN.text}
