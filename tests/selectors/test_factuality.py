"""Factuality: the paper's formula over a real checker and a real index."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from kcard import cache
from kcard.errors import UsageError
from kcard.interfaces import Array, Checker, Pair, Verdict
from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.factuality import CachedChecker, cached, draw, judge, support, verdicts
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.types import Passage, Source

FACTS = [
    "In the 2022 senate elections, Oregon elected Ron Wyden.",
    "In the 2022 senate elections, Washington elected Patty Murray.",
    "In the 2022 senate elections, Ohio elected J. D. Vance.",
]
EVIDENCE = {"senate": CorpusEvidence([Source(text, "facts.txt", i) for i, text in enumerate(FACTS, start=1)])}
TRUE = Passage("senate", "Ron Wyden won the 2022 senate race in Oregon.")
FALSE = Passage("senate", "Patty Murray won the 2022 senate race in Oregon.")


@dataclasses.dataclass
class Counted(Checker):
    """The real checker, with its calls kept."""

    calls: list[list[Pair]] = dataclasses.field(default_factory=list)

    def support(self, pairs: Sequence[Pair]) -> Array:
        self.calls.append(list(pairs))
        return MiniLMChecker().support(pairs)


def test_a_true_passage_scores_high_a_false_one_low_and_each_names_its_source() -> None:
    true, false = judge([TRUE, FALSE], EVIDENCE, MiniLMChecker(), with_summary=False)
    assert (true.faithfulness or 0) > 0.5 > (false.faithfulness or 1)
    assert true.evidence is not None
    assert (true.evidence.text, true.evidence.file, true.evidence.line) == (FACTS[0], "facts.txt", 1)
    assert true.evidence.score > 0


def test_faithfulness_is_the_mean_of_summary_and_best_evidence() -> None:
    checker = MiniLMChecker()
    text = f"{TRUE.text} {FALSE.text}"
    pruned = "Patty Murray won in Oregon."
    (judged,) = judge([Passage("senate", text, pruned=pruned)], EVIDENCE, checker)
    facts = checker.support([Pair(text, source.text) for source in EVIDENCE["senate"].find(text, 3)])
    (summary,) = checker.support([Pair(pruned, text)])
    assert judged.faithfulness == pytest.approx((float(summary) + float(facts.max())) / 2, abs=1e-5)
    (alone,) = judge([Passage("senate", text, pruned=pruned)], EVIDENCE, checker, with_summary=False)
    assert alone.faithfulness == pytest.approx(float(facts.max()), abs=1e-5)


@pytest.mark.parametrize("pruned", [None, TRUE.text])
def test_a_document_that_was_not_pruned_is_its_own_summary(pruned: str | None) -> None:
    passage = dataclasses.replace(TRUE, pruned=pruned)
    (with_summary,) = judge([passage], EVIDENCE, MiniLMChecker())
    (without,) = judge([passage], EVIDENCE, MiniLMChecker(), with_summary=False)
    assert with_summary.faithfulness == pytest.approx((1 + (without.faithfulness or 0)) / 2)


def test_no_evidence_is_unknown_and_asks_the_checker_nothing() -> None:
    checker = Counted()
    strangers = [Passage("senate", "Zanzibar qwertz."), Passage("other", TRUE.text), Passage("senate", "")]
    judged = judge([dataclasses.replace(p, faithfulness=0.3) for p in strangers], EVIDENCE, checker)
    assert [(p.faithfulness, p.evidence) for p in judged] == [(None, None)] * 3
    assert checker.calls == []


def test_all_passages_go_to_the_checker_in_one_call_and_no_pair_twice() -> None:
    checker = Counted()
    passages = [TRUE, FALSE, dataclasses.replace(TRUE, pruned="Ron Wyden won."), TRUE]
    judged = judge(passages, EVIDENCE, checker, k=2)
    (pairs,) = checker.calls
    assert len(pairs) == len(set(pairs)) == 5, "two texts for each of two passages, and a summary"
    assert judged[0] == judged[3]
    assert [p.text for p in judged] == [p.text for p in passages]


# A checker that remembers says the same as one that does not, and what is no score is refused, never kept.

PAIRS = [
    Pair("Ron Wyden won in Oregon.", "It rained. In the 2022 elections, Oregon elected Ron Wyden."),
    Pair("Patty Murray won in Oregon.", "In the 2022 elections, Oregon elected Ron Wyden. " * 40),
    Pair("", "Oregon."),
    Pair("Ron Wyden won in Oregon.", ""),
    Pair("月は地球を回る。", "月は地球の周りを回っている。"),
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    cache.memory.clear()
    yield
    cache.memory.clear()


@dataclasses.dataclass
class Fixed(Checker):
    """Says what it was told to, and counts."""

    scores: object
    sha256: str = "fixed"
    asked: int = 0

    def support(self, pairs: Sequence[Pair]) -> Array:
        self.asked += len(pairs)
        return self.scores  # type: ignore[return-value]


def test_scores_and_windows_are_the_checkers_own_to_the_bit() -> None:
    plain, remembering = MiniLMChecker(), cached(MiniLMChecker())
    assert isinstance(remembering, CachedChecker)
    assert remembering.sha256 == plain.sha256
    assert cached(remembering) is remembering
    expected = plain.support(PAIRS)
    for _ in ("computed", "in memory"):
        np.testing.assert_array_equal(remembering.support(PAIRS), expected)
        assert remembering.judge(PAIRS) == verdicts(plain, PAIRS)
    cache.memory.clear()
    np.testing.assert_array_equal(remembering.support(PAIRS), expected)
    assert remembering.judge(PAIRS) == verdicts(plain, PAIRS)


def test_a_pair_is_asked_once() -> None:
    checker = Fixed([0.5])
    remembering = cached(checker)
    for _ in range(3):
        assert support(remembering, PAIRS[:1] * 2).tolist() == [0.5, 0.5]
    assert checker.asked == 1


def test_another_digest_is_another_checker() -> None:
    assert cached(Fixed([0.25], "one")).support(PAIRS[:1]).tolist() == [0.25]
    assert cached(Fixed([0.75], "two")).support(PAIRS[:1]).tolist() == [0.75]


def test_a_checker_that_does_not_name_itself_is_not_remembered() -> None:
    class Nameless(Checker):
        def support(self, pairs: Sequence[Pair]) -> Array:
            return np.zeros(len(pairs), dtype=np.float32)

    checker = Nameless()
    assert cached(checker) is checker


def test_a_checker_without_windows_shows_the_whole_evidence() -> None:
    assert verdicts(Fixed([0.5]), PAIRS[:1]) == [Verdict(0.5, PAIRS[0].evidence)]


BAD = [
    pytest.param([math.nan, 0.5], r"the score nan \(number 1 of 2\)", id="nan"),
    pytest.param([0.5, math.inf], r"the score inf \(number 2 of 2\)", id="infinite"),
    pytest.param([0.5, 1.2], r"the score 1\.2.* lie in \[0, 1\]", id="above"),
    pytest.param([-0.1, 0.5], r"the score -0\.1", id="below"),
    pytest.param([0.5], r"shape \(1,\) where 2 were expected", id="too few"),
    pytest.param([[0.5, 0.5]], r"shape \(1, 2\)", id="rows"),
    pytest.param(0.5, r"shape \(\)", id="one number"),
    pytest.param(["high", "low"], "a list of numbers", id="words"),
    pytest.param(None, r"shape \(\)|the score nan", id="nothing"),
]


@pytest.mark.parametrize(("scores", "said"), BAD)
def test_what_is_no_score_is_refused_in_one_sentence_that_names_the_checker(
    scores: object, said: str
) -> None:
    for checker in (Fixed(scores), cached(Fixed(scores))):
        for ask in (support, verdicts):
            with pytest.raises(UsageError, match=f"checker Fixed (gave|did not return) .*({said})"):
                ask(checker, PAIRS[:2])
    assert cached(Fixed([0.5, 0.5])).support(PAIRS[:2]).tolist() == [0.5, 0.5]


def test_what_rounding_carried_over_the_bounds_is_put_back() -> None:
    assert support(Fixed(np.array([1.00001, -0.00001])), PAIRS[:2]).tolist() == [1.0, 0.0]


# Top-k factuality sampling: the paper's distribution, drawn without replacement and repeatably.

SCORES = [0.9, 0.1, 0.6, 0.3, 0.75, 0.2]


def test_a_seed_decides_the_draw() -> None:
    assert draw(SCORES, 3, 7) == draw(SCORES, 3, 7)
    assert len({tuple(draw(SCORES, 3, seed)) for seed in range(50)}) > 10


@pytest.mark.parametrize(
    ("scores", "count", "expected"),
    [
        pytest.param(SCORES, 6, [0, 4, 2, 3, 5, 1], id="as many as places"),
        pytest.param(SCORES, 7, [0, 4, 2, 3, 5, 1], id="fewer than places"),
        pytest.param(SCORES, 0, [], id="no place"),
        pytest.param([], 3, [], id="no item"),
        pytest.param([None, 0.2, None, 0.7], 3, [3, 1, 0], id="unknown ones fill the places left"),
        pytest.param([None, None], 1, [0], id="all unknown"),
        pytest.param([None, 0.0], 1, [1], id="unknown is not zero"),
    ],
)
def test_with_no_more_scores_than_places_the_best_come_first_and_then_unknown_ones(
    scores: list[float | None], count: int, expected: list[int]
) -> None:
    assert draw(scores, count, 0) == expected


def test_an_item_without_a_score_is_not_drawn_where_others_fill_the_places() -> None:
    assert all(0 not in draw([None, 0.1, 0.9, 0.5], 2, seed) for seed in range(50))


def test_of_equal_scores_the_earlier_takes_part() -> None:
    drawn = {i for seed in range(200) for i in draw([0.5] * 6, 2, seed, k=3)}
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize(("count", "k"), [(3, 2), (-1, None)])
def test_a_k_below_the_number_drawn_is_refused(count: int, k: int | None) -> None:
    with pytest.raises(UsageError, match="k must be at least"):
        draw(SCORES, count, 0, k)
