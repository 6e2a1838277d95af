"""What an exam tells while it runs; the command line shows it as it likes."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Report", "StepProgress", "silent"]


@dataclass(frozen=True)
class StepProgress:
    """`done` of `total` items of the step `what`, such as "asking rivers"."""

    what: str
    done: int
    total: int


Report = Callable[[StepProgress], None]


def silent(progress: StepProgress) -> None:
    """A report that goes nowhere."""
