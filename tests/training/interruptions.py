"""Ctrl-C at chosen moments of training."""

import signal
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import TrainingInterrupted
from kcard.events import Event, OnEvent
from kcard.training.train import train


def stop_at(step: int | None = None) -> OnEvent:
    """Press Ctrl-C at this step, or at the first one that is reported."""

    def report(event: Event) -> None:
        if event.kind == "training" and step in (None, event.done):
            signal.raise_signal(signal.SIGINT)

    return report


def stop_at_estimate(event: Event) -> None:
    """Press Ctrl-C after the first steps, when it is told how long the others take."""
    if event.is_note and event.message.endswith(" steps"):
        raise KeyboardInterrupt


def interrupted(corpus: Path, message: str | None = None, **options: Any) -> None:
    """Train until the first step that is reported, where Ctrl-C ends it with this message."""
    with pytest.raises(TrainingInterrupted, match=message):
        train(corpus, on_event=stop_at(), **options)
