"""Calibrating: what beats nothing is not recommended, what does is, and many tries are minded."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.api import gates as calibrating
from kcard.config import settings
from kcard.errors import UsageError
from kcard.evaluation.gates.calibration import (
    Calibration,
    GateCandidate,
    best_baseline,
    calibration_data,
    compare_gates,
    fit_chosen_gate,
    recommend,
)
from kcard.evaluation.gates.outcome import best_within_budget, cost_curve
from kcard.evaluation.metrics import holm
from kcard.gates import registry
from kcard.gates.base import Resources
from kcard.gates.records import Query, Record, write_records
from tests.gates.unsaved_gates import Popular


def records(count: int, told: float, seed: int = 0) -> list[Record]:
    """The LLM knows what is popular, cards the rest, as surely as `told` says (0: neither has to do with it)."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        popularity = float(random.random())
        above = told * (popularity - 0.5)
        without, with_ = random.random(2) < (0.5 + above, 0.5 - above)
        found.append(Record(f"q{i}", float(without), float(with_), popularity=popularity))
    return found


def compared(given: Sequence[Record], **options: Any) -> Calibration:
    return compare_gates(given, [GateCandidate("popular", Popular, {}, Resources())], **options)


def test_a_gate_that_ranks_rightly_is_recommended_with_its_gain() -> None:
    found = compared(records(200, 0.9))
    choice = recommend(found)
    assert choice.gate is found.rows[0]
    assert choice.text.startswith("use popular")
    assert found.rows[0].p_holm < 0.01
    assert found.rows[0].difference_low > 0


@pytest.mark.parametrize("seed", range(5))
def test_a_gate_that_tells_nothing_is_not_recommended(seed: int) -> None:
    random = np.random.default_rng(seed)
    ways = random.random((150, 2)) < (0.4, 0.7)
    given = [
        Record(f"q{i}", float(a), float(b), popularity=float(random.random()))
        for i, (a, b) in enumerate(ways)
    ]
    choice = recommend(compared(given))
    assert choice.gate is None
    assert choice.text.startswith("no gate beats always here")


@pytest.mark.parametrize("budget", [0.0, 0.2, 0.4])
def test_the_budget_is_kept(budget: float) -> None:
    given = [Record(f"q{i}", 0.0, 1.0, popularity=i / 100) for i in range(100)]
    found = compared(given, budget=budget)
    assert found.rows[0].outcome.share <= budget + 0.05
    assert found.reference.accuracy == pytest.approx(budget)
    assert found.reference.name == (f"random {budget:.0%}" if budget else "never")


def test_a_budget_outside_of_0_to_1_is_refused() -> None:
    with pytest.raises(UsageError, match=r"budget is 1\.5"):
        compared(records(20, 0), budget=1.5)


def test_what_needs_no_gate_is_the_better_of_never_and_always_and_never_of_equals() -> None:
    assert best_baseline([Record("a", 0, 1)]).name == "always"
    assert best_baseline([Record("a", 1, 0)]).name == "never"
    assert best_baseline([Record("a", 1, 1)]).name == "never"


def test_the_curve_is_that_of_brute_force() -> None:
    given = records(30, 0.3)
    scores = np.round(np.random.default_rng(1).random(30), 1)
    for point in cost_curve(given, scores):
        seeks = scores < point.threshold
        assert point.share == pytest.approx(seeks.mean())
        right = [r.correct_with if s else r.correct_without for r, s in zip(given, seeks, strict=True)]
        assert point.accuracy == pytest.approx(np.mean(right))
    assert {round(p.share, 9) for p in cost_curve(given, scores)} >= {0.0, 1.0}


def test_of_equally_good_points_the_cheapest_is_taken() -> None:
    given = [Record("a", 0, 1), Record("b", 1, 1), Record("c", 1, 0)]
    assert best_within_budget(cost_curve(given, np.array([0.1, 0.2, 0.3]))).share == pytest.approx(1 / 3)


def test_holm_is_holms() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_a_gate_is_deployed_with_a_threshold_of_its_own_scale() -> None:
    given = records(200, 0.9)
    found = compared(given)
    gate = fit_chosen_gate(given, GateCandidate("popular", Popular, {}, Resources()), found.rows[0], found)
    # Scores grow with the records fitted on: by 200 / 160 from the folds to all records.
    assert gate.threshold == pytest.approx(found.rows[0].threshold * 200 / 160, rel=0.03)


def test_gates_that_can_not_be_fitted_are_told_and_the_others_compared(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl", [Record(f"what is {i}?", 1.0, 0.0) for i in range(20)])
    found = calibrating.calibrate(tmp_path / "r.jsonl", gates=["bm25", "skr-knn", "self-ask"])
    assert [row.gate for row in found.comparison.rows] == ["bm25"]
    assert [name for name, _ in found.comparison.skipped] == ["skr-knn", "self-ask"]
    assert found.gate == "never"


def test_what_is_kept_is_asked_for_by_the_config_and_rescored_alike(home: Path) -> None:
    given = [
        Record(f"{'who wrote' if i % 2 else 'where is'} thing{i}?", float(i % 2), float(1 - i % 2))
        for i in range(40)
    ]
    found = calibrating.calibrate(given, gates=["skr-classifier"])
    assert found.gate == "skr-classifier"
    value, config = calibrating.keep(found)
    assert settings().found["ask.gate"].value == value == str(home / "gates" / "calibrated-skr-classifier")
    assert config == home / "config.toml"
    fitted = registry.load(value)
    assert fitted.settings["gate"] == "skr-classifier"
    low, high = fitted.scores([Query("where is thing99?"), Query("who wrote thing98?")])
    assert low < fitted.threshold <= high


def test_where_no_gate_is_worth_it_the_config_says_always(home: Path) -> None:
    found = calibrating.calibrate([Record(f"what is {i}?", 0, 1) for i in range(20)], gates=["bm25"])
    assert calibrating.keep(found)[0] == "always"
    assert not (home / "gates").exists()


def test_a_budget_without_a_worthy_gate_keeps_the_random_one() -> None:
    given = [Record(f"what is {i}?", 0, 1) for i in range(40)]
    found = calibrating.calibrate(given, gates=["bm25"], budget=0.25)
    assert found.gate == "random 25%"
    fitted = registry.load(calibrating.keep(found)[0])
    assert (fitted.kind, fitted.threshold) == ("random", 0.25)


def test_a_gate_that_needs_more_than_the_question_is_named_but_not_chosen() -> None:
    given = [
        Record(f"who is {i}?", float(i % 2), float(1 - i % 2), popularity=1000.0 * (i % 2) + 1, relation="r")
        for i in range(60)
    ]
    found = calibrating.calibrate(given, gates=["popularity"])
    assert found.choice.gate is None
    assert "popularity" in found.choice.text
    assert "can't be used yet" in found.choice.text


def test_data_are_json() -> None:
    found = calibration_data(compared(records(40, 0.5)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["gates"][0]["curve"][0][0] == 0


def test_the_report_and_the_picture_are_whole_and_equal_calibrations_give_equal_bytes(tmp_path: Path) -> None:
    from kcard.evaluation.gates.calibration import write_page, write_plot

    found = compared(records(40, 0.5))
    for name in ("p.png", "again.png"):
        write_plot(found, tmp_path / name)
    assert (tmp_path / "p.png").read_bytes() == (tmp_path / "again.png").read_bytes()
    page = write_page(found, recommend(found), tmp_path / "p.html").read_text(encoding="utf-8")
    drawn = re.search(r'<img src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert drawn is not None
    assert b"popular" in base64.b64decode(drawn[1])
    assert "popular" in page
    with pytest.raises(UsageError, match="can't write the plot"):
        write_plot(found, tmp_path / "nowhere" / "p.png")
