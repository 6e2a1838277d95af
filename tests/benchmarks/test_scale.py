"""The simulation of a fleet of workers against what queueing and caching theory say."""

import numpy as np
import pytest
from benchmarks.scale.cache import Tiers
from benchmarks.scale.equilibrium import che, filled
from benchmarks.scale.placement import POLICIES, placement
from benchmarks.scale.ring import Ring
from benchmarks.scale.simulate import Answered, simulate
from benchmarks.scale.worker import BatchWorker, ContinuousWorker, Costs, Worker
from benchmarks.scale.workload import poisson, zipf

from kcard.cards.lm.memory import Memory

FREE = Costs(batch=lambda _: 1.0, load=lambda _: 0.0)
ONE = zipf(1, 1.0)


def exponential(seed: int) -> Costs:
    rng = np.random.default_rng(seed)
    return Costs(batch=lambda _: float(rng.exponential()), load=lambda _: 0.0)


def alone(worker: Worker, rate: float, seed: int = 0, questions: int = 60_000) -> Answered:
    return simulate(poisson(rate, questions, ONE, seed), [worker], placement("hashing", 1, ONE))


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_one_worker_with_exponential_times_is_an_m_m_1_queue(utilisation: float) -> None:
    worker = BatchWorker(exponential(1), Tiers([1]), most=1)
    found = alone(worker, utilisation)
    seconds = found.answered - found.arrived
    assert seconds.mean() == pytest.approx(1 / (1 - utilisation), rel=0.06)
    assert np.percentile(seconds, 95) == pytest.approx(np.log(20) / (1 - utilisation), rel=0.08)
    assert worker.busy / found.answered[-1] == pytest.approx(utilisation, rel=0.02)


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_one_worker_with_equal_times_is_an_m_d_1_queue(utilisation: float) -> None:
    found = alone(BatchWorker(FREE, Tiers([1]), most=1), utilisation)
    expected = 1 + utilisation / (2 * (1 - utilisation))
    assert (found.answered - found.arrived).mean() == pytest.approx(expected, rel=0.04)


def test_continuous_batching_without_gain_is_processor_sharing() -> None:
    """M/D/1 with processor sharing has the mean of M/M/1: only the mean of the work counts."""
    shared = Costs(batch=lambda questions: float(questions), load=lambda _: 0.0)
    found = alone(ContinuousWorker(shared, Tiers([1]), most=10_000), 0.6)
    assert (found.answered - found.arrived).mean() == pytest.approx(2.5, rel=0.06)


def test_continuous_batching_at_no_cost_makes_nobody_wait() -> None:
    found = alone(ContinuousWorker(FREE, Tiers([1]), most=10_000), 5.0, questions=2_000)
    assert (found.answered - found.arrived) == pytest.approx(np.ones(2_000))


def test_two_clients_of_two_busy_neighbours_are_answered_as_slowly_as_these_interfere() -> None:
    trace = poisson(1.0, 100, zipf(2, 0.0), 0)
    workers = [BatchWorker(FREE, Tiers([2]), most=1) for _ in range(2)]
    policy = placement("least-loaded", 2, zipf(2, 0.0))
    found = simulate(trace, workers, policy, clients=2, machine=2, interference=1.5)
    assert found.figures().throughput == pytest.approx(2 / 1.5, rel=0.02)


def test_a_neighbour_that_begins_slows_down_what_is_under_way() -> None:
    trace = poisson(1.0, 2, zipf(2, 0.0), 0)
    trace = type(trace)(np.array([0.0, 0.5]), np.array([0, 1]))
    workers = [BatchWorker(FREE, Tiers([2]), most=1) for _ in range(2)]
    found = simulate(trace, workers, placement("least-loaded", 2, zipf(2, 0.0)), machine=2, interference=2.0)
    # Half of the first is left when the second comes, and takes twice as long; then half of the second is left.
    assert found.answered == pytest.approx([1.5, 2.0])


def test_a_batch_holds_the_questions_of_one_card_unless_it_may_be_mixed() -> None:
    trace = poisson(1.0, 4, zipf(2, 0.0), 0)
    trace = type(trace)(np.array([0.0, 0.1, 0.2, 0.3]), np.array([0, 0, 1, 0]))
    policy = placement("hashing", 1, zipf(2, 0.0))
    by_card = simulate(trace, [BatchWorker(FREE, Tiers([2]), most=8)], policy)
    mixed = simulate(trace, [BatchWorker(FREE, Tiers([2]), most=8, mixed=True)], policy)
    assert by_card.answered == pytest.approx([1, 2, 3, 2])
    assert mixed.answered == pytest.approx([1, 2, 2, 2])


@pytest.mark.parametrize("exponent", [0.6, 1.0])
def test_hits_of_lru_are_those_of_ches_approximation(exponent: float) -> None:
    shares = zipf(2_000, exponent)
    cards = poisson(1.0, 120_000, shares, 3).cards.tolist()
    tiers = Tiers([100, 300])
    found = np.array([tiers.get(card) for card in cards][40_000:])
    assert (found == 0).mean() == pytest.approx((shares * che(shares, 100)).sum(), abs=0.01)
    assert (found <= 1).mean() == pytest.approx((shares * che(shares, 400)).sum(), abs=0.01)


def test_a_cache_that_starts_in_equilibrium_hits_as_often_as_one_that_has_run_for_long() -> None:
    shares = zipf(2_000, 0.8)
    tiers = filled([200], False, np.arange(2_000), shares, np.random.default_rng(0))
    found = np.array([tiers.get(card) for card in poisson(1.0, 20_000, shares, 1).cards.tolist()])
    expected = (shares * che(shares, 200)).sum()
    assert (found[:5_000] == 0).mean() == pytest.approx(expected, abs=0.02)
    assert (found[5_000:] == 0).mean() == pytest.approx(expected, abs=0.02)


def test_the_tiers_hold_each_card_once_and_pass_the_oldest_down() -> None:
    tiers = Tiers([2, 1])
    assert [tiers.get(card) for card in (1, 2, 3, 3, 1, 2, 9, 1)] == [2, 2, 2, 0, 1, 1, 2, 1]


def test_by_frequency_the_card_used_least_often_leaves() -> None:
    tiers = Tiers([2], frequency=True)
    assert [tiers.get(card) for card in (1, 1, 2, 3, 1, 3, 3, 2, 1)] == [1, 0, 1, 1, 0, 0, 0, 1, 1]


def test_by_frequency_memory_holds_what_kcards_own_memory_holds() -> None:
    tiers, memory = Tiers([10], frequency=True), Memory(budget=10)
    hits = []
    for card in poisson(1.0, 3_000, zipf(40, 1.0), 0).cards.tolist():
        memory.get("group"), memory.get(("writer", card))  # what else a card's use counts
        held = memory.get(card) is not None
        if not held:
            memory.make_room(1)
            memory.put(card, card + 1, 1)
        hits.append((held, tiers.get(card) == 0))
    real, simulated = np.array(hits[500:]).mean(axis=0)
    assert simulated == pytest.approx(real, abs=0.02)


def test_a_ring_spreads_cards_evenly_and_moves_only_those_that_a_new_worker_takes() -> None:
    before, after = (Ring.of(range(n)).owners(200_000) for n in (50, 51))
    counts = np.bincount(before, minlength=50)
    assert counts.max() / counts.mean() < 1.35
    moved = before != after
    assert set(after[moved]) == {50}
    assert moved.mean() == pytest.approx(1 / 51, rel=0.35)


def test_the_workers_of_all_cards_are_those_clockwise_of_each() -> None:
    ring = Ring.of(range(7))
    expected = [list(ring.clockwise(card))[:5] for card in range(50)]
    assert ring.clockwise_of_all(50, 5).T.tolist() == expected


def test_no_worker_has_more_than_its_bound() -> None:
    shares = zipf(500, 1.0)
    policy = placement("bounded", 20, shares, slack=0.25)
    load = np.zeros(20, dtype=np.int64)
    for card in poisson(1.0, 2_000, shares, 0).cards.tolist():
        load[policy.choose(card, load)] += 1
        assert load.max() <= np.ceil(1.25 * load.sum() / 20)


def test_a_hot_card_has_as_many_workers_as_its_share_needs() -> None:
    shares = np.array([0.5, 0.3, 0.1, 0.1])
    policy = placement("replicated", 10, shares)
    load = np.zeros(10, dtype=np.int64)
    used = set()
    for _ in range(40):
        load[chosen := policy.choose(0, load)] += 1
        used.add(chosen)
    assert len(used) == 10
    homes = policy.homes()
    assert homes is not None
    assert np.bincount(homes.cards).tolist() == [10, 7, 3, 3]  # 1 + 2 x, of ten workers
    assert set(homes.workers[homes.cards == 0]) == used


@pytest.mark.parametrize("policy", POLICIES)
def test_a_simulation_repeats_by_its_seed(policy: str) -> None:
    def run(seed: int) -> object:
        shares = zipf(300, 1.0)
        workers = [BatchWorker(exponential(seed + n), Tiers([20]), most=4) for n in range(5)]
        trace = poisson(4.0, 2_000, shares, seed)
        return simulate(trace, workers, placement(policy, 5, shares, seed=seed)).answered.tolist()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_placing_by_card_hits_more_often_than_placing_at_random() -> None:
    shares = zipf(1_000, 0.9)
    hits = {}
    for policy in ("random", "bounded"):
        workers = [BatchWorker(FREE, Tiers([60]), most=1) for _ in range(10)]
        found = simulate(poisson(5.0, 20_000, shares, 0), workers, placement(policy, 10, shares))
        hits[policy] = found.figures().hits
    assert hits["bounded"] > hits["random"] + 0.15
