"""What training tells while it runs: values for a callback, which the command line shows as it likes."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "EmbeddingProgress",
    "Event",
    "Note",
    "Report",
    "TeacherProgress",
    "TrainingProgress",
    "duration",
    "silent",
]


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
    """So many passages of the index are embedded."""

    done: int
    passages: int


@dataclass(frozen=True)
class TeacherProgress:
    """The teacher has answered so many questions (objective distil)."""

    done: int
    questions: int


@dataclass(frozen=True)
class Note:
    """A sentence for the user: a default that was chosen, a file that was skipped, the time it will take."""

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
