"""A checker that remembers says the same as one that does not, and what is no score is refused, never kept."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from kcard import cache
from kcard.errors import UsageError
from kcard.interfaces import Array, Pair, Verdict
from kcard.offline.checker import MiniLMChecker
from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.factuality import CachedChecker, cached, judge, support, verdicts
from kcard.types import Passage, Source

PAIRS = [
    Pair("Ron Wyden won in Oregon.", "It rained. In the 2022 elections, Oregon elected Ron Wyden."),
    Pair("Patty Murray won in Oregon.", "In the 2022 elections, Oregon elected Ron Wyden. " * 40),
    Pair("", "Oregon."),
    Pair("Ron Wyden won in Oregon.", ""),
    Pair("月は地球を回る。", "月は地球の周りを回っている。"),
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    cache._memory.clear()
    yield
    cache._memory.clear()


@dataclasses.dataclass
class Fixed:
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
    cache._memory.clear()
    np.testing.assert_array_equal(remembering.support(PAIRS), expected)
    assert remembering.judge(PAIRS) == verdicts(plain, PAIRS)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="measured on AVX-512 only")
def test_scores_are_the_same_in_any_company_to_the_bit() -> None:
    together = MiniLMChecker().support(PAIRS)
    alone = np.concatenate([MiniLMChecker().support([pair]) for pair in PAIRS])
    np.testing.assert_array_equal(together, alone)


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
    class Nameless:
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


@pytest.mark.parametrize(("scores", "said"), BAD)
def test_it_decides_no_factuality_either(scores: object, said: str) -> None:
    sources = [
        Source("Oregon elected Ron Wyden.", "f.txt", 1),
        Source("Oregon elected a governor.", "f.txt", 2),
    ]
    passage = Passage("senate", "Ron Wyden won in Oregon.")
    with pytest.raises(UsageError, match=f"checker Fixed (gave|did not return) .*({said})"):
        judge([passage], {"senate": CorpusEvidence(sources)}, Fixed(scores))


def test_what_rounding_carried_over_the_bounds_is_put_back() -> None:
    assert support(Fixed(np.array([1.00001, -0.00001])), PAIRS[:2]).tolist() == [1.0, 0.0]
