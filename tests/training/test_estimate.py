"""Training tells how long it will take before it begins, and measuring that changes nothing."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcard.training import embedded
from kcard.training.embedded import plan
from kcard.training.estimate import Estimate, seconds_to_embed
from kcard.training.loop import run
from kcard.training.progress import Event, Note, TrainingProgress, duration
from kcard.training.recipe import Recipe

FACTS = [f"{name} carried {place}." for name, place in zip("ABCDEFGH", "ijklmnop", strict=True)]
SMALL = Recipe(style="encoder-prefix", width=32, layers=1, vocabulary=300, floor=200)


def test_the_time_is_told_once_and_before_the_first_step(tmp_path: Path) -> None:
    events: list[Event] = []
    planned = plan(FACTS, SMALL, report=events.append)
    assert planned.estimate is not None
    made = planned.prepare()
    said = planned.estimate.note().text
    assert "on one core" in said
    assert f"to embed {8 * 65} questions" in said
    assert f"{made.job.steps} steps" in said
    begun = time.monotonic()
    run(made.job, tmp_path / "ck", report=events.append)
    taken = time.monotonic() - begun
    assert isinstance(events[-1], TrainingProgress)
    assert not any(isinstance(event, Note) for event in events)
    # A machine that does other things meanwhile is no reason to fail; a wrong unit is.
    assert taken / 20 < made.hyperparameters["estimated_seconds"] < 20 * taken + 20


def test_measuring_the_time_leaves_the_weights_as_they_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> dict[str, torch.Tensor]:
        made = plan(FACTS, SMALL).prepare()
        run(replace(made.job, steps=3), tmp_path / "ck")
        return made.job.modules["model"].state_dict()

    measured = trained()
    monkeypatch.setattr(embedded, "INSTANT", 10**9)
    unmeasured = trained()
    assert all(torch.equal(measured[name], unmeasured[name]) for name in measured)


def test_a_sample_stands_for_all_questions() -> None:
    def embed(rows: list[str]) -> None:
        time.sleep(len(rows) * 2e-4)

    assert 0.9 < seconds_to_embed(["question"] * 5000, embed) / (5000 * 2e-4) < 3  # type: ignore[arg-type]
    assert seconds_to_embed([], embed) == 0  # type: ignore[arg-type]


def test_times_are_said_as_people_say_them() -> None:
    assert [duration(s) for s in (42, 240, 9000)] == ["42 seconds", "4 minutes", "2.5 hours"]
    note = Estimate(questions=0, embedding=0, steps=600, stepping=55).note()
    assert note.text == "training takes about 55 seconds on one core: 600 steps"
