"""The table of the laptop benchmark, and the manual that it is measured with."""

from pathlib import Path

import pytest
from benchmarks import laptop


def test_the_manual_is_text_of_the_size_and_gives_other_questions_in_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laptop, "MANUAL", 50_000)
    manual = laptop.write_manual(tmp_path / "manual")
    assert 50_000 <= sum(path.stat().st_size for path in manual.iterdir()) < 100_000
    (first, page), (second, _) = (laptop.ask_about(manual, number) for number in (1, 2))
    assert len(first) == laptop.QUESTIONS + 1
    assert set(first).isdisjoint(second)
    assert (manual / page).is_file()


def test_the_table_shows_medians_and_ratios_of_the_processors_seconds() -> None:
    kcard, before, plain = [(2.0, 3.0), (1.0, 9.0), (4.0, 5.0)], [(8.0, 8.0)], [(5.0, 6.0)]
    report = {
        "processor": "A", "cores": 2, "isa": "avx2", "runs": 3, "manual": 600_000, "against": "v1",
        "seconds": {
            "kcard": {"index": kcard, "sync": kcard, "help": kcard}, "before": {"index": before, "sync": before},
            "plain": {"index": plain},
        },
    }  # fmt: skip
    assert laptop.table(report, ["index", "sync"]).splitlines() == [
        "| CPU s (wall s) | v1 | kcard | plain | kcard / v1 | kcard / plain |",
        "|---|---|---|---|---|---|",
        "| index | 8 (8) | 2 (5) | 5 (6) | 0.25 | 0.40 |",
        "| sync | 8 (8) | 2 (5) |  | 0.25 |  |",
        "",
        "A, 2 cores, instructions: avx2; medians of 3 runs; a manual of 600 kB",
    ]
