"""A training run: its clock, its interruption, its checkpoints, its outcome, and what is made of it."""

import json
import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from kcard.errors import CardError, UsageError
from kcard.events import Event, OnEvent, ignore, note
from kcard.manifest import Base, Prompt

CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 0.05  # of the time at most goes into checkpoints
REPORT_SECONDS = 1.0
TIMED_STEPS = 20  # after which a run that was not timed before says how long it takes
LONG_TRAINING = 1800.0  # seconds from which the user is told how to shorten it
RECENT_STEPS = 50


def duration(seconds: float) -> str:
    """Format a duration: "45 seconds", "4 minutes", "1.6 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class Clock:
    """Counts steps, tokens, losses and time of a run, reports them, and says when a checkpoint is due.

    seconds, tokens, losses  where a resumed run goes on; a loss of each step
    timed   whether the user knows already how long it takes; else the first steps are measured, and reported
    limit   seconds after which the run ends though steps are left
    """

    def __init__(
        self,
        steps: int,
        on_event: OnEvent,
        seconds: float = 0.0,
        tokens: int = 0,
        losses: Sequence[float] = (),
        *,
        timed: bool = False,
        limit: float | None = None,
    ) -> None:
        self.tokens = tokens
        self.losses = list(losses)
        self.limit = limit
        self._first = len(losses)
        self._steps, self._on_event = steps, on_event
        # The estimate that was reported holds for the whole run, not for the rest of one that is resumed.
        self._timed = timed and not losses
        self._begun = self._reported = self._saved = time.monotonic()
        self._pause = CHECKPOINT_SECONDS
        self._first_step_end = self._begun
        self._before = seconds
        self._reported_steps = self._first

    @property
    def done(self) -> int:
        """The number of steps taken."""
        return len(self.losses)

    @property
    def seconds(self) -> float:
        """Wall time of all sittings."""
        return self._before + time.monotonic() - self._begun

    @property
    def recent_loss(self) -> float | None:
        """The mean loss of the last 50 steps; None before."""
        recent = self.losses[-RECENT_STEPS:]
        return sum(recent) / RECENT_STEPS if len(recent) == RECENT_STEPS else None

    @property
    def last_loss(self) -> float:
        """The mean loss of the last tenth of the steps, or of the last 50 of a run that ended before."""
        losses = self.losses[int(self._steps * 0.9) :] or self.losses[-RECENT_STEPS:]
        return sum(losses) / len(losses) if losses else math.nan

    def step(self, loss: float, tokens: int) -> None:
        """Count a step and its tokens."""
        if self.done == self._first:
            self._first_step_end = time.monotonic()
        self.losses.append(loss)
        self.tokens += tokens

    def report(self, recall: float | None = None) -> None:
        """Report the progress, once a second, and after the first steps how long it will take at most.

        recall  of the last probe, where there was one
        """
        now = time.monotonic()
        spent = now - self._begun
        done, to_go = self.done - self._first, self._steps - self.done
        # The first step takes longer than the others, of which it says nothing.
        left = None if to_go else 0.0
        if to_go and done > 1:
            left = (now - self._first_step_end) / (done - 1) * to_go
            if self.limit is not None:
                left = max(0.0, min(left, self.limit - self._before - spent))
        if left is not None and done == TIMED_STEPS and to_go and not self._timed:
            steps = self._steps - self._first
            forecast = f"training takes about {duration(spent + left)}: {steps} steps"
            if self.limit is None and spent + left > LONG_TRAINING:
                forecast += "; with --minutes it ends sooner, and recalls less"
            self._on_event(note(forecast))
        if now - self._reported < REPORT_SECONDS and to_go:
            return
        unreported = self.losses[self._reported_steps :]
        mean = sum(unreported) / len(unreported)
        self._reported, self._reported_steps = now, self.done
        progress = f"loss {mean:.3f}"
        if recall is not None:
            progress += f", recalls {recall:.0%}"
        if left is not None:
            minutes, seconds = divmod(round(left), 60)
            progress += f", {minutes}:{seconds:02d} left"
        self._on_event(
            Event(
                "training",
                progress,
                self.done,
                self._steps,
                mean,
                self._before + spent,
                left,
                self.tokens,
            )
        )

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() - self._saved > self._pause

    def note_checkpoint(self, seconds: float) -> None:
        """Record a checkpoint's duration: slow ones are written less often."""
        self._saved = time.monotonic()
        self._pause = max(CHECKPOINT_SECONDS, seconds / CHECKPOINT_SHARE)


class Interrupt:
    """While open, the first Ctrl-C only sets `is_requested`; the second has its usual effect.

    An optimizer stopped halfway leaves weights that can't be resumed. Signals reach only the main thread; in another
    thread this does nothing.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            self.is_requested = True
            self._restore()

        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


STATE = "trainer_state.json"  # the last file that transformers' Trainer writes into a checkpoint


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder."""
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{STATE}")]
    return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)


def steps_of(folder: Path) -> int | None:
    """Return how many steps the run of the last checkpoint takes in all; None without a checkpoint.

    Raises UsageError if it can't be read.
    """
    last = last_checkpoint(folder)
    if last is None:
        return None
    try:
        return int(json.loads((last / STATE).read_text(encoding="utf-8"))["max_steps"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise unreadable(last, error) from error


def unreadable(checkpoint: Path, error: Exception) -> UsageError:
    """Return the error of a checkpoint that can't be read."""
    return UsageError(f"the checkpoint {checkpoint} can't be read: {error}; train without resume")


def unwritable(folder: Path, error: Exception) -> CardError:
    """Return the error of a checkpoint for which there is no room; torch hides the operating system's message."""
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    reason = (getattr(cause, "strerror", None) or str(cause)).partition("\n")[0]
    return CardError(
        f"the checkpoint can't be written to {folder}: {reason}; free some space and train again"
    )


@dataclass(frozen=True)
class TrainingOutcome:
    """A run's outcome. `loss`: mean of the last tenth of steps, or last 50; `seconds`: wall time, all sittings."""

    steps: int
    tokens: int
    seconds: float
    loss: float
    epochs: int


class TrainingRun(ABC):
    """A training that is prepared, of `steps` steps (kcard.training.trainer)."""

    steps: int

    @abstractmethod
    def run(
        self,
        checkpoint: Path,
        *,
        resume: bool = False,
        on_event: OnEvent = ignore,
        remedy: str = "call train again with resume=True",
    ) -> TrainingOutcome:
        """Train, writing checkpoints into the folder `checkpoint`, or go on from the last one there with `resume`.

        A checkpoint is written every minute, or less often if that takes long. Ctrl-C ends the step at hand, writes a
        checkpoint and raises TrainingInterrupted with `remedy`. Raises UsageError for the checkpoint of another run,
        and CardError where there is no room for one.
        """


Run = TypeVar("Run", bound=TrainingRun, covariant=True)


@dataclass(frozen=True)
class Preparation(Generic[Run]):
    """A prepared training run, and what follows it.

    save    writes the model files and the tokenizer into a folder, once, and may release them
    method  of the card's manifest: full or lora
    check   measures, after training, what is recorded with the hyperparameters, such as a held-out loss
    device  where training runs
    """

    job: Run
    save: Callable[[Path], None]
    method: str
    base: Base
    prompt: Prompt
    hyperparameters: Mapping[str, Any]
    libraries: tuple[str, ...] = ("torch", "transformers", "tokenizers")
    check: Callable[[], Mapping[str, Any]] = field(default=dict)
    device: str = "cpu"


def cosine(steps: int, warm: int, floor: float = 0.05) -> Callable[[int], float]:
    """Return a schedule: linear warm-up over `warm` steps, then a half cosine down to `floor`."""

    def rate(step: int) -> float:
        wave = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, (step + 1) / max(1, warm)) * (floor + (1 - floor) * wave)

    return rate


def linear(steps: int, warm: int) -> Callable[[int], float]:
    """Return a schedule: linear warm-up over `warm` steps, then a straight line down to zero."""

    def rate(step: int) -> float:
        return min((step + 1) / max(1, warm), max(0.0, (steps - step) / max(1, steps - warm)), 1.0)

    return rate
