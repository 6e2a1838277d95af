"""Training tells how long it will take before it begins, and takes as many steps as fit; measuring changes nothing."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcard.events import Event, ignore
from kcard.training.embedded.recipe import Recipe
from kcard.training.embedded.train import INSTANT_STEPS, plan
from kcard.training.estimates import Estimate, seconds_to_embed, spread
from kcard.training.run import RECENT_STEPS, TIMED_STEPS, Clock

FACTS = [f"{name} carried {place}." for name, place in zip("ABCDEFGH", "ijklmnop", strict=True)]
SMALL = Recipe(style="encoder-prefix", width=32, layers=1, vocabulary=300, exposures=200)


def test_the_time_is_told_once_and_before_the_first_step(tmp_path: Path) -> None:
    events: list[Event] = []
    planned = plan(FACTS, SMALL)
    assert planned.estimate is not None
    prepared = planned.prepare()
    text = planned.estimate.note().message
    assert "on one core" in text
    assert f"to embed {8 * 17} questions" in text
    assert f"{prepared.job.steps} steps" in text
    begun = time.monotonic()
    prepared.job.run(tmp_path / "ck", on_event=events.append)
    taken = time.monotonic() - begun
    assert events[-1].kind == "training"
    assert not any(event.is_note for event in events)
    # A machine that does other things meanwhile is no reason to fail; a wrong unit is.
    assert taken / 20 < prepared.hyperparameters["estimated_seconds"] < 20 * taken + 20


def test_measuring_the_time_leaves_the_weights_as_they_would_be(tmp_path: Path) -> None:
    measured = plan(FACTS, SMALL)
    assert measured.estimate is not None
    unmeasured = plan(FACTS, SMALL, steps=measured.estimate.needed)
    assert unmeasured.estimate is None
    weights = []
    for planned in (measured, unmeasured):
        job = planned.prepare().job
        replace(job, steps=2).run(tmp_path / "ck")
        weights.append(job.model.state_dict())
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


@pytest.mark.parametrize(
    ("minutes", "steps", "enough"),
    [(None, 1000, True), (20.0, 1000, True), (10.0, 530, True), (5.0, 260, False), (0.001, 1, False)],
)
def test_as_many_steps_are_taken_as_fit_into_the_minutes(
    minutes: float | None, steps: int, enough: bool
) -> None:
    estimate = Estimate(
        1000, 300, 1.0, 0.1, lambda steps: 100 if steps < 500 else 100 + steps // 1000, minutes
    )
    assert (estimate.steps, estimate.is_enough) == (steps, enough)
    assert minutes is None or steps == 1 or estimate.seconds <= 0.9 * 60 * minutes
    assert estimate.minutes_needed == 19
    assert replace(estimate, minutes=19.0).steps == 1000


@pytest.mark.parametrize(
    ("estimate", "note"),
    [
        (Estimate(600, 200, 55 / 600), "about 55 seconds on one core: 600 steps"),
        (Estimate(600, 200, 0.4), "about 4 minutes on one core: 600 steps"),
        (Estimate(600, 200, 15.0), "about 2.5 hours on one core: 600 steps"),
        (
            Estimate(1000, 300, 1.0, minutes=10.0),
            "about 9 minutes on one core: 540 steps of the 1,000 that the corpus needs (--minutes 19 gives all)",
        ),
    ],
)
def test_times_are_said_as_people_say_them_with_the_minutes_that_would_do(
    estimate: Estimate, note: str
) -> None:
    assert estimate.note().message == f"training takes {note}"


def test_minutes_in_which_little_is_learned_are_refused_with_those_that_would_do() -> None:
    assert Estimate(1000, 300, 1.0, minutes=3.0).refusal() == (
        "in 3 minutes a model would learn less than half of it (162 of 1,000 steps): --minutes 19 is enough here"
    )


def test_the_plan_of_a_card_is_cut_to_its_minutes_unless_epochs_are_given() -> None:
    short = plan(FACTS, SMALL, minutes=0.002)
    assert short.estimate is not None
    assert short.estimate.steps < short.estimate.needed
    prepared = short.prepare()
    assert prepared.job.steps == short.estimate.steps
    assert prepared.hyperparameters["steps_needed"] == short.estimate.needed
    assert prepared.hyperparameters["minutes"] == 0.002
    whole = plan(FACTS, replace(SMALL, epochs=150), minutes=0.002)
    assert whole.estimate is not None
    assert whole.estimate.steps == whole.estimate.needed == 150 * len(whole.prepare().job.epochs(0))


def test_a_sample_stands_for_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def embed(rows: list[str]) -> None:
        nonlocal now
        now += len(rows) * 2e-4

    assert seconds_to_embed(["question"] * 5000, embed) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert seconds_to_embed([], embed) == 0  # type: ignore[arg-type]


def test_the_first_of_a_spread_order_lie_far_from_each_other() -> None:
    assert spread(range(8)) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert spread("abcde") == ["a", "e", "c", "b", "d"]
    assert spread([]) == []


def test_the_recent_loss_is_the_mean_of_the_last_steps_and_the_final_one_that_of_the_last_tenth() -> None:
    clock = Clock(100, ignore)
    for loss in range(1, 100):
        clock.step(float(loss), 2)
        assert (clock.recent_loss is None) == (loss < RECENT_STEPS)
    assert clock.recent_loss == sum(range(50, 100)) / RECENT_STEPS
    assert clock.last_loss == 95
    assert (clock.done, clock.tokens) == (99, 198)
    resumed = Clock(1000, ignore, losses=clock.losses)
    assert resumed.last_loss == clock.recent_loss


def test_the_time_left_is_that_of_steps_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now, events = [0.0], list[Event]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(4, events.append, timed=True)
    for seconds in (30, 2, 2, 2):
        now[0] += seconds
        clock.step(1.0, 1)
        clock.report()
    assert [event.left for event in events] == [None, 4.0, 2.0, 0.0]
    assert [event.message for event in events[:2]] == ["loss 1.000", "loss 1.000, 0:04 left"]


@pytest.mark.parametrize(
    ("steps", "limit", "is_long"), [(1_000, None, False), (4_000, None, True), (4_000, 3_600.0, False)]
)
def test_who_faces_a_long_training_is_told_how_to_end_it_sooner(
    monkeypatch: pytest.MonkeyPatch, steps: int, limit: float | None, is_long: bool
) -> None:
    now, events = [0.0], list[Event]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(steps, events.append, limit=limit)
    for _ in range(TIMED_STEPS):
        now[0] += 1.0
        clock.step(1.0, 1)
        clock.report()
    [message] = [event.message for event in events if event.message.startswith("training takes about")]
    assert ("--minutes" in message) == is_long


def test_a_card_that_has_learned_its_corpus_is_not_trained_on(tmp_path: Path) -> None:
    tiny = Recipe(width=32, layers=1, vocabulary=300, batch_tokens=256, epochs=100)
    texts, events = ["Ada keeps the keys."], list[Event]()
    settled = plan(texts, replace(tiny, settled=100.0)).prepare().job
    outcome = settled.run(tmp_path, on_event=events.append)
    assert outcome.steps == outcome.epochs == RECENT_STEPS
    reason = "the mean loss of 50 steps is below 100.0, so nothing is left to learn"
    assert events[-1].message == f"training ended after {RECENT_STEPS} of 100 steps: {reason}"
    assert plan(texts, replace(tiny, settled=0.0)).prepare().job.run(tmp_path).steps == 100


def test_so_few_steps_that_they_are_over_at_once_are_not_estimated() -> None:
    few = Recipe(width=32, layers=1, vocabulary=300, batch_tokens=256, exposures=INSTANT_STEPS - 20)
    texts = ["Ada keeps the keys."]
    assert plan(texts, few).estimate is None
    estimate = plan(texts, replace(few, exposures=INSTANT_STEPS - 19)).estimate
    assert estimate is not None
    assert estimate.steps == INSTANT_STEPS + 1
    assert estimate.seconds > 0
    assert plan(texts, few, measured=True).estimate is not None
