"""Events that training reports to a callback, such as the command line's progress display."""

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
