"""What the check of the simulation against real workers rests on."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.scale.calibration import fitted
from benchmarks.scale.placement import placement
from benchmarks.scale.real_fleet import started
from benchmarks.scale.real_worker import Batch, Setting, make_cards, memory_for
from benchmarks.scale.workload import poisson, zipf


def batches(sizes: list[int], hits: list[bool], slow: float = 1.0) -> list[Batch]:
    """Of 0.2 s and 0.1 s a question, one after the other; a load takes 0.5 s."""
    made, now = [], 0.0
    for size, hit in zip(sizes, hits, strict=True):
        seconds = slow * (0.2 + 0.1 * size + (0.0 if hit else 0.5))
        made.append(Batch(tuple(range(size)), hit, now, now + seconds))
        now += seconds
    return made


def test_calibration_finds_the_seconds_of_a_batch_of_a_question_and_of_a_load() -> None:
    alone = batches([1, 2, 4, 1, 3, 2], [True, True, True, False, True, False])
    found = fitted(alone, [])
    assert (found.fixed, found.each, found.load) == pytest.approx((0.2, 0.1, 0.5))
    costs = found.costs(seed=0)
    assert (costs.batch(5), costs.load(0), costs.load(1)) == pytest.approx((0.7, 0.0, 0.5))


def test_calibration_finds_how_much_busy_neighbours_slow_each_other_down() -> None:
    alone = batches([1, 2, 4, 3], [True] * 4)
    together = [batches([1] * 20, [True] * 20, slow=1.5), batches([2] * 15, [True] * 15, slow=1.5)]
    alone.append(Batch((0,), False, 9.0, 9.8))
    assert fitted(alone, together).interference == pytest.approx(1.5)


@pytest.mark.slow
def test_real_workers_answer_each_question_once_and_hold_as_many_cards_as_they_may(tmp_path: Path) -> None:
    folders = make_cards(tmp_path, 4, width=64, layers=1)
    setting = Setting(folders, memory_for(folders[0], 2), most=4, tokens=2)
    shares = zipf(4, 1.0)
    with started(setting, 2) as fleet:
        run = fleet.run(poisson(200.0, 60, shares, 0), placement("bounded", 2, shares))
        again = fleet.run(poisson(1.0, 20, shares, 1), placement("least-loaded", 2, shares), clients=3)
    for found, count in ((run, 60), (again, 20)):
        answered = [question for worker in found.batches for batch in worker for question in batch.questions]
        assert sorted(answered) == list(range(count))
    alternating = [batch.hit for worker in run.batches for batch in worker]
    assert {True, False} == set(alternating)
    assert all(np.diff([batch.started for batch in worker]).min() > 0 for worker in run.batches)
