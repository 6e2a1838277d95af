"""Loads that are simulated, against the least that any rule could have, which is searched for in small cases."""

import argparse
import random
from itertools import permutations

import pytest
from benchmarks.card_residency import Batches, before, least, measure, simulated, simulation


def searched(batches: Batches, room: int) -> int:
    """The least loads of all orders and evictions."""
    states = {frozenset[str](): 0}
    for batch in batches:
        found: dict[frozenset[str], int] = {}
        for held, loads in states.items():
            for order in permutations({name for names in batch for name in names}):
                inner = {held: loads}
                for name in order:
                    after: dict[frozenset[str], int] = {}
                    for there, cost in inner.items():
                        choices = [there] if name in there else [there | {name}]
                        if len(choices[0]) > room:
                            choices = [choices[0] - {out} for out in there]
                        for choice in choices:
                            price = cost + (name not in there)
                            after[choice] = min(price, after.get(choice, price))
                    inner = after
                for there, cost in inner.items():
                    found[there] = min(cost, found.get(there, cost))
        states = found
    return min(states.values())


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_never_above_the_least_that_is_possible(seed: int) -> None:
    drawn = random.Random(seed)
    room = drawn.choice([1, 2, 3])
    batches: Batches = [[(drawn.choice("abcd"),) for _ in range(drawn.randint(1, 5))] for _ in range(5)]
    best = searched(batches, room)
    assert least(batches, room) <= best <= simulated(batches, room)
    assert least(batches, room) >= len({name for batch in batches for (name,) in batch})


def test_bottom_up_loads_as_seldom_as_is_possible() -> None:
    batches: Batches = [[("a", "b", "c", "d")] * 2] * 4
    assert [searched(batches, room) for room in (1, 2, 3, 4)] == [13, 10, 7, 4]
    assert [simulated(batches, room) for room in (1, 2, 3, 4)] == [13, 10, 7, 4]
    assert before(batches, 2) == 20


def test_real_cards_load_as_often_as_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.card_residency.ROOMS", (2,))
    monkeypatch.setattr("benchmarks.card_residency.BATCHES", (8,))
    args = argparse.Namespace(cards=4, questions=32, seed=1)
    rows = simulation(args)
    measure(args, rows, lambda _: None)
    assert [row["measured"] for row in rows] == [row["kcard"] for row in rows]
    assert rows[0]["kcard"] == 4 + 3 * 2
