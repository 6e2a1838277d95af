"""Bottom-up, top-down and hybrid, to the letter of the paper, with selectors and cards scripted by protocol."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import AutoChoice, CardChoice, ExplicitChoice, SingleDocument, TopDown
from kcard.interfaces import LLM, Array, Checker, Evidence, Pair, Pruner
from kcard.types import Choice, Kind, Passage, Reply, Request, Sampling, Source
from tests.fakes import Replies, SharedWords, WrittenCards, questions

CARDS = (
    Choice("elections", "results of elections"),
    Choice("moons", "moons of the planets"),
    Choice("prizes", "winners of prizes"),
)


NOTES = {card.name: [f"{card.name} note {i}" for i in range(9)] for card in CARDS}


def notes(documents: dict[str, list[str]] = NOTES) -> WrittenCards:
    """A pool whose cards write numbered notes."""
    return WrittenCards(CARDS, lambda card, n: [Passage(card, text) for text in documents[card][:n]])


class FirstWords(Pruner):
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        del question
        return [" ".join(t.split()[:3]) for t in texts]


class Digits(Checker):
    """Supports a claim by its last digit: 'note 7' has 0.7."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def support(self, pairs: Sequence[Pair]) -> Array:
        self.pairs += pairs
        return np.array(
            [int(p.claim[-1]) / 10 if p.claim[-1].isdigit() else 0.0 for p in pairs], dtype=np.float32
        )


class OneSource(Evidence):
    def find(self, claim: str, k: int) -> list[Source]:
        del claim
        return [Source("a source", "notes.txt", 3)][:k]


def scripted(what: str = "moons", choose: str = "moons", need: Sequence[float] = (1.0,)) -> Replies:
    """An LLM with a fixed reply for each kind of request."""
    texts: dict[Kind, str] = {"what": what, "choose": choose, "answer": "42"}
    needs = list(need)

    def reply(request: Request) -> Reply:
        if request.kind == "need":
            return Reply("Yes", yes=needs.pop(0))
        return Reply(texts[request.kind])

    return Replies(reply)


def selectors(evidence: bool = True) -> Selectors:
    return Selectors(
        SharedWords(), FirstWords(), Digits(), {c.name: OneSource() for c in CARDS} if evidence else {}
    )


def top_down(
    pool: WrittenCards,
    llm: LLM,
    choice: CardChoice | None = None,
    rounds: int = 1,
    evidence: bool = True,
) -> TopDown:
    choice = choice or AutoChoice(CardRanker(SharedWords(), CARDS))
    step = SingleDocument(pool, selectors(evidence))
    return TopDown(step, Sampling(), llm, choice, len(CARDS), max_iterations=rounds)


def test_bottom_up_lets_every_card_write_n1_and_keeps_n2_then_n3() -> None:
    pool = notes()
    (found,) = BottomUp(pool, selectors(), Sampling(), floor=0).gather(questions("moons note"))
    assert pool.calls == [(("moons note",), ("elections", "moons", "prizes"), 3)]
    assert len(found.passages) == 9
    assert sum(p.pruned is not None for p in found.passages) == 5
    assert sum(p.kept for p in found.passages) == 3
    assert [p.kept for p in found.passages] == [True] * 3 + [False] * 6
    reasons = [p.reason for p in found.passages]
    assert reasons[:3] == [""] * 3
    assert all("(--n3)" in reason for reason in reasons[3:5])
    assert all("--n2 5" in reason for reason in reasons[5:])


def test_bottom_up_is_the_same_alone_and_in_a_batch() -> None:
    integrator = BottomUp(notes(), selectors(), Sampling())
    alone = [integrator.gather(questions(q))[0] for q in ("moons note", "elections note")]
    assert integrator.gather(questions("moons note", "elections note")) == alone


def test_what_is_known_to_be_less_factual_than_wanted_is_kept_in_no_mode_and_what_is_unknown_is() -> None:
    """The figure in a document tells its factuality: see Digits. Bottom-up takes the mean of it and pruning's 1."""
    documents = {"elections": ["note 9"], "moons": ["note 2"], "prizes": ["note 5"]}
    for wanted, kept in ((0.0, 3), (0.7, 2), (1.0, 0)):
        (found,) = BottomUp(notes(documents), selectors(), Sampling(), floor=0, min_factuality=wanted).gather(
            questions("note")
        )
        assert all((p.support or 0) >= wanted for p in found.passages if p.kept)
        assert sum(p.kept for p in found.passages) == kept
        assert all("(--min-factuality)" in p.reason for p in found.passages if not p.kept)
        (single,) = SingleDocument(notes(documents), selectors(), min_factuality=wanted).run(
            questions("note"), [["moons"]], Sampling()
        )
        assert [p.kept for p in single.passages] == [wanted == 0.0]
    (unknown,) = BottomUp(
        notes(documents), selectors(evidence=False), Sampling(), floor=0, min_factuality=1.0
    ).gather(questions("note"))
    assert sum(p.kept for p in unknown.passages) == 3


def test_what_is_true_but_beside_the_question_takes_no_place_in_the_draw() -> None:
    """Factuality alone would draw the nines; the floor leaves them out before. Floor 0 is the paper's."""
    documents = {"elections": ["true 9", "true 9 9"], "moons": ["moons note 1"], "prizes": ["true 9 9 9"]}
    cards = notes(documents)
    (paper,) = BottomUp(cards, selectors(), Sampling(), n3=1, floor=0).gather(questions("moons note"))
    (found,) = BottomUp(cards, selectors(), Sampling(), n3=1).gather(questions("moons note"))
    assert len([p for p in paper.passages if p.pruned]) == 4
    assert [(p.text, p.kept) for p in found.passages if p.pruned] == [("moons note 1", True)]
    assert [p.factuality for p in found.passages if not p.kept] == [None] * 3


def test_top_down_asks_one_card_and_keeps_its_most_factual_document_unpruned() -> None:
    pool, llm = notes(), scripted()
    (found,) = top_down(pool, llm).gather(questions("Who found it?"))
    assert pool.calls == [(("Who found it?",), ("moons",), 3)]
    assert [(p.text, p.kept, p.pruned) for p in found.passages] == [
        ("moons note 2", True, None),
        ("moons note 0", False, None),
        ("moons note 1", False, None),
    ]
    assert "better supported" in found.passages[1].reason
    assert found.knowledge == ("moons note 2",)


def test_of_two_cards_that_top_down_asks_each_ones_most_factual_document_is_kept() -> None:
    documents = {"moons": ["moons note 1", "moons note 3"], "prizes": ["prizes note 9", "prizes note 8"]}
    step = SingleDocument(notes(documents), selectors())
    (found,) = step.run(questions("q"), [("moons", "prizes")], Sampling())
    assert found.knowledge == ("moons note 3", "prizes note 9")


def test_an_explicit_reply_that_names_no_card_is_reported_and_asks_none() -> None:
    pool, llm = notes(), scripted(choose="the library")
    (found,) = top_down(pool, llm, ExplicitChoice(CARDS)).gather(questions("q"))
    assert pool.calls == []
    assert found.passages == ()
    assert "names no card" in found.notes[0]


def test_a_card_is_never_asked_twice_for_one_question() -> None:
    pool, llm = notes(), scripted(what="moons of the planets", need=[1.0, 1.0])
    (found,) = top_down(pool, llm, rounds=3).gather(questions("q"))
    assert [cards for _, cards, _ in pool.calls] == [("moons",), ("elections",), ("prizes",)]
    assert len(found.knowledge) == 3


def test_when_every_card_has_been_asked_the_llm_is_not_asked_whether_it_needs_more() -> None:
    llm = scripted(need=[1.0, 1.0])
    top_down(notes(), llm, rounds=9).gather(questions("q"))
    assert [r.kind for r in llm.requests] == ["what", "need", "what", "need", "what"]


def test_a_second_explicit_choice_of_the_same_card_is_told_and_ends_the_rounds() -> None:
    pool, llm = notes(), scripted(choose="moons", need=[1.0, 1.0])
    (found,) = top_down(pool, llm, ExplicitChoice(CARDS), rounds=3).gather(questions("q"))
    assert len(pool.calls) == 1
    assert "chose moons again" in found.notes[0]
    offered = [[card.name for card in r.choices] for r in llm.requests if r.kind == "choose"]
    assert offered == [["elections", "moons", "prizes"], ["elections", "prizes"]]


def test_later_rounds_ask_in_as_many_wordings_as_the_gate() -> None:
    llm = scripted(need=[1.0, 0.0, 0.2])
    replace(top_down(notes(), llm, rounds=2), templates=3).gather(questions("q"))
    assert [r.template for r in llm.requests if r.kind == "need"] == [0, 1, 2]
    assert [r.kind for r in llm.requests].count("what") == 1


def hybrid(pool: WrittenCards, llm: LLM, choice: CardChoice, rounds: int = 1) -> TopDown:
    step = BottomUp(pool, selectors(), Sampling(), floor=0)
    return TopDown(step, Sampling(), llm, choice, len(CARDS), max_iterations=rounds)


def test_hybrid_runs_bottom_up_over_the_nearest_cards() -> None:
    pool, llm = notes(), scripted(what="moons of the planets, winners of prizes")
    (found,) = hybrid(pool, llm, AutoChoice(CardRanker(SharedWords(), CARDS), most=2)).gather(
        questions("moons note")
    )
    assert pool.calls == [(("moons note",), ("prizes", "moons"), 3)]
    assert [r.kind for r in llm.requests] == ["what"]
    assert sum(p.pruned is not None for p in found.passages) == 5
    assert sum(p.kept for p in found.passages) == 3


def test_hybrid_asks_every_card_that_an_explicit_reply_names() -> None:
    pool, llm = notes(), scripted(choose="prizes and elections", need=[1.0])
    (found,) = hybrid(pool, llm, ExplicitChoice(CARDS, most=None), rounds=2).gather(questions("q"))
    assert pool.calls == [(("q",), ("prizes", "elections"), 3)]
    assert "again" in found.notes[0]
