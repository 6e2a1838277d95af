"""A gate is judged by records that it was not fitted on; what is tuned is tuned on the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.api import gates as gating
from kcard.errors import UsageError
from kcard.evaluation.gates.calibration import cross_validate
from kcard.evaluation.gates.outcome import METRICS, GateOutcome, parse_fold_count, split_folds
from kcard.gates.base import Resources
from kcard.gates.records import Record, write_records
from kcard.gates.registry import load_gate
from tests.fakes import Says, questions
from tests.gates.unsaved_gates import Remembering


def drawn(count: int, seed: int = 0) -> list[Record]:
    random = np.random.default_rng(seed)
    ways = random.integers(0, 2, (count, 2))
    return [Record(f"q{i}", float(a), float(b)) for i, (a, b) in enumerate(ways)]


def test_figures_are_those_of_their_definitions() -> None:
    records = [
        Record("a", 1, 0),
        Record("b", 0, 1),
        Record("c", 0, 0),
        Record("d", 1, 1),
        Record("e", 0.25, 0.75),
    ]
    found = GateOutcome.of(records, np.array([True, True, True, False, False]))
    assert found.n == 5
    assert found.accuracy == pytest.approx((0 + 1 + 0 + 1 + 0.25) / 5)
    assert found.share == pytest.approx(3 / 5)
    assert (found.never, found.always, found.oracle) == pytest.approx((2.25 / 5, 2.75 / 5, 3.75 / 5))
    assert found.random_same_share == pytest.approx(0.4 * 0.45 + 0.6 * 0.55)
    assert found.beneficial_guidance == pytest.approx(1 / 3)
    assert (found.over_asking, found.under_asking) == pytest.approx((2 / 5, 1 / 5))
    assert GateOutcome.of([Record("a", 1, 1)], np.array([True])).beneficial_guidance is None


@pytest.mark.parametrize("count", [2, 5, None])
def test_every_record_is_held_out_once_and_the_same_seed_gives_the_same_folds(count: int | None) -> None:
    records = drawn(23)
    cut = split_folds(records, count, seed=3)
    assert sorted(i for fold in cut for i in fold.tolist()) == list(range(23))
    assert [fold.tolist() for fold in split_folds(records, count, seed=3)] == [fold.tolist() for fold in cut]
    assert len(cut) == (count or 23)


def test_records_of_one_kind_do_not_meet_in_one_fold() -> None:
    records = [Record(f"q{i}", float(i < 5), 1.0) for i in range(50)]
    assert [
        sum(record.knows for record in [records[i] for i in fold]) for fold in split_folds(records, 5)
    ] == [1] * 5


def test_folds_are_a_number_or_loo_and_what_is_neither_is_refused() -> None:
    assert (parse_fold_count("5"), parse_fold_count("loo")) == (5, None)
    for text in ("-1", "many", "2.5"):
        with pytest.raises(UsageError, match="folds"):
            parse_fold_count(text)
    for count in (1, 24):
        with pytest.raises(UsageError, match="23 records"):
            split_folds(drawn(23), count)


@pytest.mark.parametrize("count", [4, None])
def test_no_fold_is_fitted_on_what_it_is_judged_by(count: int | None) -> None:
    records = drawn(12)
    trial = cross_validate(records, Remembering, {}, Resources(), split_folds(records, count))
    assert (trial.scores == 12 - 12 // (count or 12)).all()


def test_eval_is_one_flat_object_with_the_settings(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl", drawn(20))
    found = gating.evaluate(tmp_path / "r.jsonl", "bm25").to_json()
    assert {"accuracy", "share", "beneficial_guidance", "random_same_share", *found["settings"]} <= set(found)
    assert (found["n"], found["folds"]) == (20, 5)


def test_always_and_never_need_no_fitting() -> None:
    records = drawn(20)
    for name, share in (("always", 1.0), ("never", 0.0)):
        found = gating.evaluate(records, name)
        assert (found.outcome.share, found.folds) == (share, None)
        assert found.outcome.accuracy == getattr(found.outcome, name)


def test_a_kept_gate_is_judged_as_it_is_and_asked_by_its_name(home: Path) -> None:
    records = drawn(20)
    fitted, path = gating.fit(records, "bm25")
    assert path == home / "gates" / "bm25"
    by_name, by_file = load_gate("bm25", Says()), load_gate(str(path), Says())
    assert by_name.name == by_file.name == "bm25"
    assert by_name.gate.threshold == by_file.gate.threshold == fitted.threshold
    found = gating.evaluate(records, str(path))
    np.testing.assert_allclose(
        found.outcome.share,
        (by_file.gate.knows(questions(*(r.question for r in records))) < fitted.threshold).mean(),
    )
    assert found.folds is None


def test_a_kind_that_was_never_fitted_can_not_be_asked_and_the_remedy_is_told() -> None:
    with pytest.raises(UsageError, match=r"must be fitted first: kcard gate fit .* --kind thrust"):
        load_gate("thrust", Says())
    with pytest.raises(UsageError, match="unknown gate 'nonsense'"):
        load_gate("nonsense", Says())


@pytest.mark.parametrize(
    ("records", "gate", "settings", "message"),
    [
        (drawn(20), "skr-knn", {"k": 21}, "k is 21"),
        (drawn(20), "nonsense", {}, "unknown gate 'nonsense'"),
        (drawn(20), "always", {"k": 3}, "takes no settings"),
        (drawn(20), "self-ask-ensemble", {}, "--llm"),
        (drawn(1), "bm25", {}, "a single record"),
    ],
)
def test_what_can_not_be_judged_is_one_line(
    records: list[Record], gate: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        gating.evaluate(records, gate, settings=settings)
    assert "\n" not in str(raised.value)


def test_answers_are_scored_in_four_ways() -> None:
    def scores(text: str, *accepted: str) -> dict[str, float]:
        return {name: score(text, accepted) for name, score in METRICS.items()}

    assert scores("It was Jane Austen.", "Jane Austen") == pytest.approx(
        {"substring": 1, "em": 0, "f1": 2 / 3, "accuracy": 0}
    )
    assert scores("A. Paris", "A")["accuracy"] == 1
    assert scores("Another", "A")["accuracy"] == 0
    assert scores("Yes, since it rains", "yes")["accuracy"] == 1
