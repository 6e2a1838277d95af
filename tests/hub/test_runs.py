"""Evaluation runs in the hub's database: complete, in order, and nothing of an append that failed."""

from pathlib import Path

import pytest

from kcard.errors import HubError
from kcard.hub.pools import StoredResult
from kcard.hub.registry import Hub
from tests.effects import watch


def test_results_are_read_in_the_order_of_their_positions_whatever_the_order_they_came_in() -> None:
    runs = Hub().runs
    run = runs.create("{}", planned=3)
    runs.append(run.number, {2: StoredResult("third"), 0: StoredResult("first")})
    runs.append(run.number, {1: StoredResult("second", failed=True)})
    assert [(place, kept.record) for place, kept in runs.results(run.number)] == [
        (0, "first"),
        (1, "second"),
        (2, "third"),
    ]


def test_a_result_that_is_there_is_replaced_and_counted_once() -> None:
    runs = Hub().runs
    run = runs.create("{}", planned=1)
    runs.append(run.number, {0: StoredResult("no connection", failed=True)})
    assert (runs.get(run.number).answered, runs.get(run.number).failed) == (0, 1)
    runs.append(run.number, {0: StoredResult("Oregon")})
    assert (runs.get(run.number).answered, runs.get(run.number).failed) == (1, 0)


def test_an_append_is_stored_as_a_whole_or_not_at_all() -> None:
    runs = Hub().runs
    run = runs.create("{}", planned=2)

    def fail(effect: str) -> None:
        if effect == "commit":
            raise ZeroDivisionError

    end = watch(fail)
    with pytest.raises(ZeroDivisionError):
        runs.append(run.number, {0: StoredResult("first"), 1: StoredResult("second")})
    end()
    assert list(runs.results(run.number)) == []


def test_a_deleted_run_takes_its_results_and_its_number_with_it() -> None:
    runs = Hub().runs
    first, second = runs.create("{}", planned=1), runs.create("{}", planned=1)
    runs.append(second.number, {0: StoredResult("gone")})
    runs.delete(second.number)
    assert [run.number for run in runs.list()] == [first.number]
    third = runs.create("{}", planned=1)
    assert third.number > second.number
    assert list(runs.results(third.number)) == []


@pytest.mark.parametrize("call", ["get", "delete", "append", "results"])
def test_an_unknown_run_is_refused_with_the_command_that_lists_them(call: str) -> None:
    runs = Hub().runs
    with pytest.raises(HubError, match="run 7 not found: `kcard runs` lists the runs"):
        list(runs.results(7)) if call == "results" else getattr(runs, call)(
            7, *([{}] if call == "append" else [])
        )


def test_a_backup_brings_the_runs_along(tmp_path: Path) -> None:
    hub = Hub()
    run = hub.runs.create('{"seed": 0}', planned=1)
    hub.runs.append(run.number, {0: StoredResult("Oregon")})
    hub.backup(tmp_path / "hub.tar")
    other = Hub(tmp_path / "other")
    other.restore(tmp_path / "hub.tar")
    assert other.runs.get(run.number).plan == '{"seed": 0}'
    assert list(other.runs.results(run.number)) == [(0, StoredResult("Oregon"))]
    with pytest.raises(HubError, match="1 runs"):
        other.restore(tmp_path / "hub.tar")
