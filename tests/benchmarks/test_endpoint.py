"""The questions of the endpoint's benchmark: some come once, others again and again."""

from collections import Counter
from itertools import islice

from benchmarks.endpoint import POPULATION, again, once

ASKED = ["Who discovered Triton?", "Who found Nereid?"]


def test_questions_that_come_once_are_all_different_also_those_of_another_load() -> None:
    first, second = (list(islice(once(ASKED, seed), 10_000)) for seed in ("once1", "once32"))
    assert len({*first, *second}) == 20_000
    assert first == list(islice(once(ASKED, "once1"), 10_000))


def test_questions_that_come_again_follow_zipfs_law() -> None:
    counts = Counter(islice(again(ASKED, "again", 32), 50_000))
    assert len(counts) <= POPULATION
    (_, most), (_, second), *_ = counts.most_common()
    assert 1.6 < most / second < 2.4
    assert 0.09 < most / 50_000 < 0.13  # 1 / the sum of 1 / r
