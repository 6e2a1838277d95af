"""Training ends where there is no more to learn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kcard.events import Event
from kcard.offline.recipe import Recipe
from kcard.offline.train import INSTANT, plan
from kcard.training.loop import SETTLED, Job, RunState


def job(loss: float, settled: float, steps: int = 200) -> Job:
    """One weight whose loss stays what it is."""
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    optimizer.param_groups[0]["initial_lr"] = 0.0

    def losses(batch: Sequence[int]) -> Iterator[tuple[Tensor, int]]:
        yield module(torch.zeros(1, 1)).sum() * 0 + loss, len(batch)

    return Job(
        {"model": module}, [optimizer], steps, lambda _: [[1, 2]] * 30, losses, lambda _: 1.0, settled=settled
    )


def test_training_ends_as_soon_as_the_mean_loss_is_low_enough(tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = job(0.001, 0.003).run(tmp_path, report=events.append)
    assert outcome.steps == SETTLED
    assert outcome.loss == pytest.approx(0.001)
    assert outcome.tokens == 2 * SETTLED
    notes = [event.message for event in events if event.is_note]
    assert (
        f"stopped after {SETTLED} of 200 steps: the loss is below 0.003, so nothing is left to learn" in notes
    )
    assert not [event for event in events if event.kind == "training" and event.done > SETTLED]


@pytest.mark.parametrize(("loss", "settled"), [(0.001, 0.0), (0.004, 0.003), (0.0, 0.0)])
def test_it_goes_on_to_the_last_step_otherwise(tmp_path: Path, loss: float, settled: float) -> None:
    assert job(loss, settled).run(tmp_path).steps == 200


def test_one_high_loss_among_the_last_keeps_it_going() -> None:
    state = RunState()
    for loss in [0.0] * (SETTLED - 1) + [1.0]:
        state.advance(loss)
    assert not state.is_settled(0.003)
    for _ in range(SETTLED):
        assert not state.is_settled(0.003)
        state.advance(0.0)
    assert state.is_settled(0.003)
    assert len(state.recent) == SETTLED


def test_a_card_that_has_learned_its_corpus_is_not_trained_on(tmp_path: Path) -> None:
    tiny = Recipe(width=32, layers=1, vocabulary=300, batch_tokens=256, epochs=100)
    outcomes = [
        plan(["Ada keeps the keys."], replace(tiny, settled=settled)).prepare().job.run(tmp_path)
        for settled in (100.0, 0.0)
    ]
    assert [outcome.steps for outcome in outcomes] == [SETTLED, 100]


def test_so_few_steps_that_they_are_over_at_once_are_not_estimated() -> None:
    few = Recipe(width=32, layers=1, vocabulary=300, batch_tokens=256, exposures=INSTANT - 20)
    texts = ["Ada keeps the keys."]
    assert plan(texts, few).estimate is None
    estimate = plan(texts, replace(few, exposures=INSTANT - 19)).estimate
    assert estimate is not None
    assert estimate.steps == INSTANT + 1
    assert estimate.seconds > 0
    assert plan(texts, few, measured=True).estimate is not None
