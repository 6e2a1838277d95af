"""Pools: named sets of cards, what they follow and what they pin."""

from pathlib import Path

import pytest
from sqlalchemy import func, select

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.db.models import StoredResult
from kcard.hub.registry import Hub
from tests.command import Kcard
from tests.effects import watch
from tests.hub.stand import seal_card


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    hub = Hub(home)
    for number, alias in ((1, "stable"), (2, "next")):
        hub.publish(seal_card(tmp_path / "a", "oncology", str(number)), aliases=[alias])
    hub.publish(seal_card(tmp_path / "b", "hearts"))
    return hub


def names(hub: Hub, *selection: str) -> list[str]:
    return [version.reference for version in hub.resolve(selection)]


def test_a_pool_follows_pins_or_takes_an_alias(hub: Hub, tmp_path: Path) -> None:
    hub.pools.create("follows", ["oncology", "hearts"])
    hub.pools.create("pins", ["oncology@v1"])
    hub.pools.create("alias", ["oncology@stable"])
    hub.pools.create("digest", [f"oncology@{hub.get('oncology@v1').sha256[:8]}"])
    assert hub.pools.get("digest").references == ("oncology@v1",)
    hub.publish(seal_card(tmp_path / "a", "oncology", "3"))
    hub.alias("oncology@v2", "stable")
    assert names(hub, "pool:follows") == ["oncology@v3", "hearts@v1"]
    assert names(hub, "pool:pins") == ["oncology@v1"]
    assert names(hub, "pool:alias") == ["oncology@v2"]
    assert names(hub, "hearts", "pool:pins") == ["hearts@v1", "oncology@v1"]


def test_a_card_is_in_a_pool_once_and_keeps_its_place(hub: Hub) -> None:
    hub.pools.create("clinic", ["oncology", "hearts"])
    assert hub.pools.add("clinic", ["oncology@v1", "hearts"]).references == ("oncology@v1", "hearts")
    assert hub.pools.remove("clinic", ["oncology"]).references == ("hearts",)
    assert hub.pools.add("clinic", ["oncology"]).references == ("hearts", "oncology")
    with pytest.raises(UsageError, match="same card"):
        hub.pools.add("clinic", ["oncology@v1", "oncology@v2"])
    assert [(p.name, p.references) for p in hub.pools.list()] == [("clinic", ("hearts", "oncology"))]


def test_what_a_pool_cant_do_is_said_and_changes_nothing(hub: Hub) -> None:
    hub.pools.create("clinic", ["hearts"])
    with pytest.raises(HubError, match="kcard pool add clinic"):
        hub.pools.create("clinic")
    with pytest.raises(UsageError, match="lower-case"):
        hub.pools.create("Big Pool")
    with pytest.raises(UnknownCard, match="'livers'"):
        hub.pools.create("other", ["hearts", "livers"])
    with pytest.raises(UnknownCard, match="'livers'"):
        hub.pools.add("clinic", ["oncology", "livers"])
    with pytest.raises(UnknownCard, match=r"'oncology' is not in pool 'clinic', which has hearts"):
        hub.pools.remove("clinic", ["hearts", "oncology"])
    for gone in (hub.pools.get, hub.pools.delete):
        with pytest.raises(HubError, match="pool 'other' not found: the hub has clinic"):
            gone("other")
    with pytest.raises(HubError, match="pool 'other' not found"):
        hub.resolve(["pool:other"])
    assert [(p.name, p.references) for p in hub.pools.list()] == [("clinic", ("hearts",))]


def test_a_pool_says_what_it_misses_and_has_it_again_when_it_is_published_again(
    hub: Hub, tmp_path: Path
) -> None:
    hub.pools.create("clinic", ["oncology", "hearts"])
    hub.remove("hearts")
    with pytest.raises(UnknownCard, match=r"pool 'clinic': .*'hearts'.*kcard pool show clinic"):
        hub.resolve(["pool:clinic"])
    hub.publish(seal_card(tmp_path / "b", "hearts"))
    assert names(hub, "pool:clinic") == ["oncology@v2", "hearts@v1"]
    hub.pools.remove("clinic", ["oncology", "hearts"])
    with pytest.raises(UnknownCard, match="empty: add cards with `kcard pool add clinic"):
        hub.resolve(["pool:clinic"])


def test_the_command_line_has_a_twin_of_each(hub: Hub, kcard: Kcard) -> None:
    steps = [
        (["create", "clinic", "oncology@v1"], 0, "clinic: oncology@v1"),
        (["add", "clinic", "hearts"], 0, "clinic: oncology@v1, hearts"),
        (["show", "clinic"], 0, "hearts  hearts@v1  Tumours"),
        (["list", "--json"], 0, '[{"name": "clinic", "cards": ["oncology@v1", "hearts"]}]'),
        (["remove", "clinic", "hearts"], 0, "clinic: oncology@v1"),
        (["create", "clinic"], 1, "pool 'clinic' already exists"),
        (["delete", "clinic"], 0, "deleted the pool clinic"),
        (["list"], 0, "no pool yet"),
    ]
    for arguments, code, words in steps:
        done = kcard("pool", *arguments)
        assert done.code == code, arguments
        assert words in done.out + done.err, arguments
    assert hub.pools.list() == []


# Evaluation runs in the hub's database: complete, in order, and nothing of an append that failed.


def test_results_are_read_in_the_order_of_their_positions_and_replaced_ones_count_once() -> None:
    runs = Hub().runs
    run = runs.create("{}", planned=3)
    runs.append(run.number, {2: StoredResult(record="third"), 0: StoredResult(record="failed", failed=True)})
    assert (runs.get(run.number).answered, runs.get(run.number).failed) == (1, 1)
    runs.append(run.number, {1: StoredResult(record="second", failed=True), 0: StoredResult(record="first")})
    assert (runs.get(run.number).answered, runs.get(run.number).failed) == (2, 1)
    records = [(place, result.record) for place, result in runs.results(run.number)]
    assert records == [(0, "first"), (1, "second"), (2, "third")]


def test_long_records_are_stored_compressed() -> None:
    hub = Hub()
    run = hub.runs.create("{}", planned=1)
    hub.runs.append(run.number, {0: StoredResult(record="word " * 10_000)})
    with hub.database.read() as session:
        assert session.scalar(select(func.length(StoredResult.record) < 1000))
    assert [result.record for _, result in hub.runs.results(run.number)] == ["word " * 10_000]


def test_an_append_is_stored_as_a_whole_or_not_at_all() -> None:
    runs = Hub().runs
    run = runs.create("{}", planned=2)

    def fail(effect: str) -> None:
        if effect == "commit":
            raise ZeroDivisionError

    end = watch(fail)
    with pytest.raises(ZeroDivisionError):
        runs.append(run.number, {0: StoredResult(record="first"), 1: StoredResult(record="second")})
    end()
    assert list(runs.results(run.number)) == []


def test_a_deleted_run_takes_its_results_and_its_number_with_it() -> None:
    runs = Hub().runs
    first, second = runs.create("{}", planned=1), runs.create("{}", planned=1)
    runs.append(second.number, {0: StoredResult(record="gone")})
    runs.delete(second.number)
    assert [run.number for run in runs.list()] == [first.number]
    third = runs.create("{}", planned=1)
    assert third.number > second.number
    assert list(runs.results(third.number)) == []


def test_an_unknown_run_is_refused_with_the_command_that_lists_them() -> None:
    runs = Hub().runs
    for call in (
        runs.get,
        runs.delete,
        lambda run: runs.append(run, {}),
        lambda run: list(runs.results(run)),
    ):
        with pytest.raises(HubError, match="run 7 not found: `kcard runs` lists the runs"):
            call(7)
