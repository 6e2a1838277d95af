"""The benchmark of cards that take turns on a GPU, tried on a CPU with tiny models."""

import json
import sys

import pytest
from benchmarks import card_residency_gpu


@pytest.mark.slow
def test_every_way_writes_the_same_and_counts_where_cards_come_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--cards 3 --room 1 --host 1 --questions 2 --documents 1 --tokens 2 --batches 2"
    monkeypatch.setattr(sys, "argv", ["", "--device", "cpu", "--shape", "tiny", "--json", *sizes.split()])
    card_residency_gpu.main()
    ways = json.loads(capsys.readouterr().out)["ways"]
    assert {name: (way["files"], way["copies"]) for name, way in ways.items()} == {
        "files": (4, 0),
        "files, ahead": (4, 0),
        "host": (2, 2),
        "host, ahead": (2, 2),
    }
