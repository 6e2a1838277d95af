"""What an exam tells while it runs; the command line shows it as it likes."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Report", "silent"]


@dataclass(frozen=True)
class Progress:
    """`done` of `total` items of the step `what`, such as "asking rivers"."""

    what: str
    done: int
    total: int


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """A report that goes nowhere."""
