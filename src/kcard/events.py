"""What long operations report to whoever called them: one kind of event, one callback `on_event`."""

from collections.abc import Callable
from dataclasses import dataclass

NOTE = "note"


@dataclass(frozen=True)
class Event:
    """A sentence for the user, or how far an operation is.

    kind         "note", or what is counted: training (steps), index (passages), asking (questions), cards, and so on
    message      the sentence; of progress, further words such as "loss 0.31, 1:20 left"
    done, total  of progress; `total` is None for a note
    loss         of training: the mean since the last event
    seconds      of training: wall time spent
    left         of training: wall time left, estimated from the second step on
    tokens       of training: trained on so far
    """

    kind: str
    message: str = ""
    done: int = 0
    total: int | None = None
    loss: float | None = None
    seconds: float | None = None
    left: float | None = None
    tokens: int | None = None

    @property
    def is_note(self) -> bool:
        return self.kind == NOTE


OnEvent = Callable[[Event], object]


def note(message: str) -> Event:
    """Return an event with a sentence for the user, such as a default that was chosen or an estimated time."""
    return Event(NOTE, message)


def ignore(event: Event) -> None:
    """Discard the event."""
