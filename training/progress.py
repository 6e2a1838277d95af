"""Events that training reports to a callback, such as the command line's progress display."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingProgress:
    """After `step` of `steps`. `loss`: mean since the last report; `seconds` spent and `left`, wall time;
    `tokens`: trained on so far."""

    step: int
    steps: int
    loss: float
    seconds: float
    left: float
    tokens: int


@dataclass(frozen=True)
class EmbeddingProgress:
    """The number of passages of the index that are embedded."""

    done: int
    passages: int


@dataclass(frozen=True)
class TeacherProgress:
    """The number of questions that the teacher has answered (objective distil)."""

    done: int
    questions: int


@dataclass(frozen=True)
class Note:
    """A sentence for the user, such as a default that was chosen, a file that was skipped, or an estimated time."""

    text: str


Event = TrainingProgress | EmbeddingProgress | TeacherProgress | Note
Report = Callable[[Event], None]


def silent(event: Event) -> None:
    """Discard the event."""


def duration(seconds: float) -> str:
    """Format a duration: "45 seconds", "4 minutes", "1.6 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 0.05  # of the time at most goes into checkpoints
REPORT_SECONDS = 1.0
MEASURED_STEPS = 20


class Clock:
    """Counts steps, tokens, losses and time of a run, reports them, and says when a checkpoint is due.

    step, seconds, tokens, losses  where a resumed run goes on
    timed   whether the user knows already how long it takes; else the first steps are measured, and reported
    """

    def __init__(
        self,
        steps: int,
        report: Report,
        step: int = 0,
        seconds: float = 0.0,
        tokens: int = 0,
        losses: Sequence[float] = (),
        *,
        timed: bool = False,
    ) -> None:
        self.tokens = tokens
        self.losses = list(losses)  # of the last tenth of the steps
        self.done = self._first = step
        self._steps, self._report = steps, report
        # The estimate that was reported holds for the whole run, not for the rest of one that is resumed.
        self._timed = timed and step == 0
        self._begun = self._reported = self._saved = time.monotonic()
        self._pause = CHECKPOINT_SECONDS
        self._before = seconds
        self._recent: list[float] = []

    @property
    def seconds(self) -> float:
        """Wall time of all sittings."""
        return self._before + time.monotonic() - self._begun

    def step(self, loss: float, tokens: int) -> None:
        """Count a step and its tokens."""
        self.done += 1
        self.tokens += tokens
        self._recent.append(loss)
        if self.done > self._steps * 0.9:
            self.losses.append(loss)

    def report(self) -> None:
        """Report the progress, once a second, and after the first steps how long it will take."""
        now = time.monotonic()
        spent = now - self._begun
        done = self.done - self._first
        left = spent / done * (self._steps - self.done)
        if done == MEASURED_STEPS and self.done < self._steps and not self._timed:
            to_go = self._steps - self._first
            self._report(Note(f"training takes about {duration(spent + left)}: {to_go} steps"))
        if now - self._reported < REPORT_SECONDS and self.done < self._steps:
            return
        mean = sum(self._recent) / len(self._recent)
        self._reported, self._recent = now, []
        self._report(TrainingProgress(self.done, self._steps, mean, self._before + spent, left, self.tokens))

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() - self._saved > self._pause

    def note_checkpoint(self, seconds: float) -> None:
        """Record a checkpoint's duration: slow ones are written less often."""
        self._saved = time.monotonic()
        self._pause = max(CHECKPOINT_SECONDS, seconds / CHECKPOINT_SHARE)
