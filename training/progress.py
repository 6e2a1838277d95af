"""The clock of a training run, and what it reports."""

import time
from collections.abc import Sequence

from kcard.events import Event, OnEvent, note


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
        on_event: OnEvent,
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
        self._steps, self._on_event = steps, on_event
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
        """OnEvent the progress, once a second, and after the first steps how long it will take."""
        now = time.monotonic()
        spent = now - self._begun
        done = self.done - self._first
        left = spent / done * (self._steps - self.done)
        if done == MEASURED_STEPS and self.done < self._steps and not self._timed:
            to_go = self._steps - self._first
            self._on_event(note(f"training takes about {duration(spent + left)}: {to_go} steps"))
        if now - self._reported < REPORT_SECONDS and self.done < self._steps:
            return
        mean = sum(self._recent) / len(self._recent)
        self._reported, self._recent = now, []
        minutes, seconds = divmod(round(left), 60)
        self._on_event(
            Event(
                "training",
                f"loss {mean:.3f}, {minutes}:{seconds:02d} left",
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
