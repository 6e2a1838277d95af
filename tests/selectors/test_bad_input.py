"""The whole chain of selectors on what cards and users may throw at it: nothing, other scripts, far too much."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from kcard.errors import UsageError
from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.pool_views import Selectors
from kcard.interfaces import Array, Checker, Pair
from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.factuality import Unchecked
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.selectors.pruning import Extractive, Unpruned
from kcard.selectors.relevance import Chance, Cosine, MiniLMRelevance
from kcard.types import Choice, Passage, Sampling, Source
from tests.fakes import WrittenCards, questions

QUESTION = "Who won the 2022 senate race in Oregon?"
TRUE = "In the 2022 elections, Oregon elected Ron Wyden to the Senate."
SCRIPTS = [
    "俄勒冈州在二零二二年选举了罗恩·怀登。他是参议员。",
    "Рон Уайден победил на выборах в Орегоне. Он сенатор.",
    "فاز رون وايدن في ولاية أوريغون. هو عضو في مجلس الشيوخ.",
    "रॉन वाइडन ओरेगन में जीते। वे सीनेटर हैं।",
    "ロン・ワイデンがオレゴン州で勝った。彼は上院議員だ。",
    "🗳️🏛️ 🇺🇸",
    "\u202e\u200b\u0301\ufffd\x00",
]
SENTENCES = [f"Candidate {name} won the race of district {i} in 2022." for i, name in enumerate("ABCDEFGHIJ")]
LONG = (" ".join(SENTENCES) + " ") * 110
ONE_WORD = "x" * 50_000
NO_STOPS = "word " * 10_000
EVIDENCE = CorpusEvidence(
    [Source(TRUE, "facts.txt", 1), Source("Ohio elected J. D. Vance in 2022.", "facts.txt", 2)]
)


def ready(texts: Sequence[str]) -> WrittenCards:
    """A pool whose card has written these texts."""
    return WrittenCards(
        [Choice("senate", "the senate")], lambda card, _: [Passage(card, text) for text in texts]
    )


OFFLINE = Selectors(MiniLMRelevance(), Extractive(), MiniLMChecker(), {"senate": EVIDENCE})
NONE = Selectors(Chance(), Unpruned(), Unchecked(), {"senate": EVIDENCE})


def gathered(
    texts: Sequence[str], selectors: Selectors = OFFLINE, question: str = QUESTION, floor: float = 0.0
) -> list[Passage]:
    run = BottomUp(ready(texts), selectors, Sampling(seed=1), n1=len(texts), n2=8, n3=3, floor=floor)
    (found,) = run.gather(questions(question))
    return list(found.passages)


@pytest.mark.parametrize("selectors", [OFFLINE, NONE], ids=["offline", "none"])
def test_empty_documents_fall_out_before_anything_is_asked(selectors: Selectors) -> None:
    assert gathered(["", " ", "\n\t"], selectors) == []
    assert [p.text for p in gathered(["", TRUE, " \n"], selectors)] == [TRUE]


def test_documents_in_other_scripts_are_scored_and_none_is_emptied() -> None:
    found = gathered([*SCRIPTS, TRUE])
    assert {p.text for p in found} == {*SCRIPTS, TRUE}
    assert all(p.relevance is not None and -1 <= p.relevance <= 1 for p in found)
    assert all(p.pruned and p.pruned.strip() for p in found if p.pruned is not None)
    assert all(p.support is None or 0 <= p.support <= 1 for p in found)
    assert next(p for p in found if p.text == TRUE).faithfulness == 1.0
    assert sum(p.kept for p in found) == 3


def test_questions_in_other_scripts_are_as_good() -> None:
    for question in SCRIPTS:
        assert sum(p.kept for p in gathered([TRUE, *SCRIPTS], question=question)) == 3


@pytest.mark.parametrize(
    "text", [LONG, ONE_WORD, NO_STOPS, "。" * 50_000], ids=["prose", "word", "no stops", "stops"]
)
def test_documents_of_50_kilobytes_go_through(text: str) -> None:
    assert len(text) >= 50_000
    long = next(p for p in gathered([text, TRUE]) if p.text == text)
    assert long.relevance is not None
    assert long.pruned
    assert text != LONG or len(long.pruned) < 500
    assert long.factuality is None or 0 <= long.factuality <= 1


@dataclass(frozen=True)
class Gives(Checker):
    """A selector of someone's that gives what it was told to."""

    given: Any

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question, texts
        return np.array(self.given)

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        del question, texts
        return list(self.given)

    def support(self, pairs: Sequence[Pair]) -> Array:
        del pairs
        return np.array(self.given)


@pytest.mark.parametrize(
    ("part", "given", "said"),
    [
        ("relevance", [math.nan, 0.1], "relevance Gives gave the score nan"),
        ("relevance", [0.1], r"relevance Gives gave scores of shape \(1,\) where 2"),
        ("relevance", [0.1, 7.0], r"relevance Gives gave the score 7.0 .* lie in \[-1, 1\]"),
        ("pruner", ["one"], "pruner Gives returned 1 texts for 2"),
        ("checker", [math.nan, 0.1], "checker Gives gave"),
        ("checker", [0.1] * 9, r"checker Gives gave scores of shape \(9,\)"),
        ("checker", [2.0, 0.1], "checker Gives gave"),
    ],
)
def test_a_selector_that_breaks_its_protocol_is_refused_by_a_sentence_that_names_it(
    part: str, given: list[Any], said: str
) -> None:
    changed: dict[str, Any] = {part: Gives(given)}
    with pytest.raises(UsageError, match=said):
        gathered([TRUE, "Ohio elected Ron Wyden."], replace(OFFLINE, **changed))


def test_selectors_that_do_nothing_leave_the_choice_to_chance_and_repeat_it() -> None:
    texts = [f"{sentence} It rained." for sentence in SENTENCES]
    found = gathered(texts, NONE, floor=0.75)
    assert found == gathered(texts, NONE, floor=0.75)
    assert all(p.pruned == p.text for p in found[:8])
    assert {p.factuality for p in found[:8]} <= {None, 1.0}
    orders = {tuple(p.text for p in gathered(texts, NONE, f"question {i}") if p.kept) for i in range(20)}
    assert len(orders) > 10
    near = Cosine().scores(QUESTION, texts)
    assert not np.allclose(np.argsort(near), np.argsort(Chance().scores(QUESTION, texts)))
