"""Top-k factuality sampling: the paper's distribution, drawn without replacement and repeatably."""

import itertools
import math
from collections import Counter

import pytest

from kcard.errors import UsageError
from kcard.selectors.factuality import draw
from kcard.types import derive_seed

SCORES = [0.9, 0.1, 0.6, 0.3, 0.75, 0.2]


def exact(scores: list[float], k: int, count: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered draw, by going through all of them."""
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]
    chances = {}
    for order in itertools.permutations(best, count):
        chance, left = 1.0, set(best)
        for i in order:
            chance *= math.exp(scores[i]) / sum(math.exp(scores[j]) for j in left)
            left.remove(i)
        chances[order] = chance
    return chances


@pytest.mark.parametrize(("count", "k"), [(1, None), (2, None), (2, 3), (3, 5)])
def test_draws_follow_the_exact_distribution(count: int, k: int | None) -> None:
    chances = exact(SCORES, k or 2 * count, count)
    draws = 20_000
    seen = Counter(tuple(draw(SCORES, count, derive_seed("test", i), k)) for i in range(draws))
    assert seen.keys() <= chances.keys()
    statistic = sum((seen[o] - draws * p) ** 2 / (draws * p) for o, p in chances.items())
    freedom = len(chances) - 1
    # Wilson-Hilferty: the 0.9999 quantile of chi-square
    limit = freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < limit


def test_only_the_k_best_are_ever_drawn_and_none_twice() -> None:
    for seed in range(300):
        chosen = draw(SCORES, 2, seed, k=3)
        assert set(chosen) <= {0, 4, 2}
        assert len(set(chosen)) == 2


def test_a_seed_decides_the_draw() -> None:
    assert draw(SCORES, 3, 7) == draw(SCORES, 3, 7)
    assert len({tuple(draw(SCORES, 3, seed)) for seed in range(50)}) > 10


@pytest.mark.parametrize("count", [6, 7])
def test_with_no_more_items_than_places_all_stay(count: int) -> None:
    assert draw(SCORES, count, 0) == [0, 4, 2, 3, 5, 1]


def test_of_equal_scores_the_earlier_takes_part() -> None:
    drawn = {i for seed in range(200) for i in draw([0.5] * 6, 2, seed, k=3)}
    assert drawn == {0, 1, 2}


def test_items_without_a_score_fill_places_that_known_ones_leave() -> None:
    assert draw([None, 0.2, None, 0.7], 3, 0) == [3, 1, 0]
    assert draw([None, None], 1, 0) == [0]
    assert all(0 not in draw([None, 0.1, 0.9, 0.5], 2, seed) for seed in range(50))


def test_an_unknown_score_is_not_taken_for_zero() -> None:
    assert draw([None, 0.0], 1, 0) == [1]


def test_drawing_nothing_gives_nothing() -> None:
    assert draw(SCORES, 0, 0) == []
    assert draw([], 3, 0) == []


@pytest.mark.parametrize(("count", "k"), [(3, 2), (-1, None)])
def test_a_k_below_the_number_drawn_is_refused(count: int, k: int | None) -> None:
    with pytest.raises(UsageError, match="k must be at least"):
        draw(SCORES, count, 0, k)
