"""While a base learns to recite, it is asked questions as in an exam, which end training and choose its weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcard.cards.card import Card
from kcard.errors import TrainingInterrupted
from kcard.events import Event
from kcard.training.base_trainer import FineTuning
from kcard.training.embedded.recipe import train_tokenizer
from kcard.training.finetune import Options, prepare
from kcard.training.probe import RecallProbe, probe_questions
from kcard.training.train import train
from tests.training.bases import FACTS


@pytest.fixture
def any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes may take longer than training, as those of tiny models do."""
    monkeypatch.setattr("kcard.training.probe.MAX_TIME_SHARE", 1.0)


MOONS = [
    "Deimos is a moon of Mars.",
    "Phobos is a moon of Mars.",
    "Gerard Kuiper discovered Miranda in 1948.",
    "it is very large",
]


def test_the_questions_leave_a_gap_that_every_right_answer_fills() -> None:
    tokenizer = train_tokenizer(MOONS, 300)
    questions = probe_questions(MOONS, tokenizer, 300, 32, seed=0)
    assert len(questions) == 3
    assert probe_questions(MOONS, tokenizer, 300, 2, seed=0) == questions[:2]
    accepted = [set(question.answers) for question in questions]
    assert {"Deimos", "Phobos"} in accepted or {"Mars"} in accepted
    for question in questions:
        text = str(tokenizer.decode(list(question.prompt), skip_special_tokens=True))
        assert not any(answer in text for answer in question.answers)
        assert len(question.prompt) <= 100


def probe(*recalls: float) -> RecallProbe:
    return RecallProbe(None, None, [Any] * 32, 10, list(recalls))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("recalls", "reason"),
    [
        ((), ""),
        ((0.0, 0.97), ""),
        ((0.97, 0.9), ""),
        ((0.5, 0.97, 0.95), "the model recalls 95% of 32 held-out questions"),
        ((0.6, 0.5, 0.6, 0.6), ""),
        ((0.6,) * 9, ""),
    ],
)
def test_training_ends_where_recall_is_high(recalls: tuple[float, ...], reason: str) -> None:
    assert probe(*recalls).reason_to_end() == reason


class Dial(torch.nn.Module):
    """A model of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


@pytest.mark.usefixtures("any_time")
def test_the_weights_of_the_best_probe_are_kept_also_of_one_before_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, recalls = Dial(), [0.25, 0.75, 0.75, 0.5]
    monkeypatch.setattr(RecallProbe, "measure", lambda _: recalls[int(model.weight.item()) - 1])

    def go(probe: RecallProbe, steps: int) -> None:
        for _ in range(steps):
            with torch.no_grad():
                model.weight.add_(1)
            probe.step(is_last=False)

    first = replace(probe(), model=model, steps_a_pass=1)
    first.begin(tmp_path, [])
    go(first, 3)
    again = replace(probe(), model=model, steps_a_pass=1)
    again.begin(tmp_path, first.recalls)
    go(again, 1)
    assert again.recalls == recalls
    again.restore_best()
    assert model.weight.item() == 3
    assert again.record() == {"probe_questions": 32, "probe_recall": 0.75, "probes": recalls}
    again.begin(tmp_path, [])
    assert not [*tmp_path.iterdir()]


def test_a_probe_follows_each_pass_and_the_last_step_unless_probes_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    probed: list[int] = []

    def measure(_: RecallProbe) -> float:
        nonlocal now
        now += 10.0
        probed.append(step)
        return 0.0

    monkeypatch.setattr(RecallProbe, "measure", measure)
    asked = replace(probe(), model=Dial(), steps_a_pass=4)
    asked.begin(tmp_path, [])
    for step in range(1, 100):
        now += 10.0
        asked.step(is_last=step == 99)
    assert probed == [4, 23, 42, 61, 80, 99]


@pytest.mark.usefixtures("any_time")
def test_training_on_a_base_ends_once_it_recalls_the_corpus(bases: dict[str, Path], tmp_path: Path) -> None:
    events: list[Event] = []
    options = Options(
        str(bases["llama"]), "full", learning_rate=5e-3, epochs=400, batch_size=8, probe_questions=32
    )
    prepared = prepare(FACTS[:1], options)
    outcome = prepared.job.run(tmp_path, on_event=events.append)
    assert outcome.steps < prepared.job.steps
    recorded = prepared.check()
    assert recorded["probe_recall"] == 1
    assert recorded["probes"][-2:] == [1, 1]
    ended = (
        f"training ended after {outcome.steps} of 400 steps: the model recalls 100% of 1 held-out questions"
    )
    assert events[-1].message == ended
    assert isinstance(prepared.job, FineTuning)
    assert prepared.job.probe is not None
    assert prepared.job.probe.measure() == 1


@pytest.mark.usefixtures("any_time", "every_step")
def test_recall_is_shown_recorded_and_resumed(bases: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    options: dict[str, Any] = {
        "name": "x", "base": str(bases["opt"]), "kind": "model", "epochs": 3, "output": tmp_path / "card",
    }  # fmt: skip

    def stop(event: Event) -> None:
        if "recalls 0%" in event.message:
            raise KeyboardInterrupt

    with pytest.raises(TrainingInterrupted):
        train(corpus, on_event=stop, **options)
    train(corpus, on_event=events.append, resume=True, **options)
    assert any("recalls 0%" in event.message for event in events if event.kind == "training")
    recorded = Card.open(tmp_path / "card").manifest.training.hyperparameters
    assert (recorded["probe_recall"], recorded["probe_questions"]) == (0, 32)
    assert recorded["probes"] == [0, 0, 0]
