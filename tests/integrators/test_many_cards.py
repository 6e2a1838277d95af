"""Of a pool's cards only those are opened that were chosen."""

from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.errors import DamagedCard, UsageError
from kcard.hub.registry import Hub

ABOUT = {
    "moons": ("moons of the planets and their discoverers", "Giovanni Cassini discovered the moon Tethys."),
    "bridges": ("bridges and their builders", "Lucius Lacer built the bridge of Alcantara."),
    "kings": ("kings of Wales and their years", "Hywel ruled Wales until 950."),
}
QUESTION = "Who discovered the moon Tethys?"


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    for name, (description, text) in ABOUT.items():
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(text)
        kcard.publish(kcard.train(corpus, kind="retrieval", description=description).folder)
    return Hub()


def laid_out(hub: Hub) -> list[str]:
    return sorted(path.name for path in (hub.home / "hub" / "snapshots").glob("*"))


@pytest.mark.parametrize(
    "options", [{"mode": "top-down"}, {"mode": "bottom-up", "max_cards": 1}], ids=["top-down", "bottom-up"]
)
def test_only_the_chosen_card_is_laid_out(hub: Hub, options: dict[str, Any]) -> None:
    answer = kcard.ask(QUESTION, gate="always", **options)
    assert answer.answer == "Giovanni Cassini"
    assert answer.cards == ("moons",)
    assert laid_out(hub) == ["moons"]


def test_none_is_where_the_gate_sees_no_need(hub: Hub) -> None:
    kcard.Pipeline(mode="bottom-up")(["What is the capital of France?"])
    assert laid_out(hub) == []


def test_a_card_that_was_not_chosen_may_be_damaged(hub: Hub) -> None:
    for name in ("kings", "moons"):
        blob = hub.blobs.where(hub.get(name).manifest.files["passages.jsonl"])
        Path(blob).chmod(0o600)
        Path(blob).write_text("{}")
    with pytest.raises(DamagedCard, match="moons"):
        kcard.ask(QUESTION, gate="always")
    answer = kcard.ask("Who built the bridge of Alcantara?", gate="always", max_cards=1)
    assert answer.cards == ("bridges",)


def test_a_pool_of_many_cards_means_the_newest_version_of_each(hub: Hub, tmp_path: Path) -> None:
    names = [f"stones-{n}" for n in range(40)]
    for name in names:
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(f"Nobody weighed {name}.")
        kcard.publish(kcard.train(corpus, kind="retrieval", description=f"weights of {name}").folder)
    hub.pools.create("all", [*names, "moons@v1", "kings"])
    chosen = hub.select(["pool:all"])
    assert [version.reference for version in chosen.versions] == [
        f"{n}@v1" for n in [*names, "moons", "kings"]
    ]
    answer = kcard.ask(QUESTION, gate="always", cards=["pool:all"], mode="bottom-up", max_cards=2)
    assert "moons" in answer.cards
    assert answer.notes == ("only the 2 of 42 cards nearest to the question were used (--max-cards)",)


@pytest.mark.parametrize("option", ["shortlist", "max_cards"])
def test_no_card_at_all_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=option.replace("_", "-")):
        kcard.Pipeline(**{option: 0})  # type: ignore[arg-type]
