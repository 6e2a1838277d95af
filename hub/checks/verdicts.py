"""Verdicts: results of content checks as values, which another process can return and a table can keep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kcard.hub.checks.content import check_content
from kcard.hub.checks.file_kinds import Form
from kcard.hub.refusals import Dangerous, Invalid, TooLarge

__all__ = ["Candidate", "Verdict", "judge", "opened"]

REFUSALS = {refusal.__name__: refusal for refusal in (Invalid, Dangerous, TooLarge)}
PATH = "{path}"


@dataclass(frozen=True)
class Candidate:
    """Content to check for a form; `open` returns it as a seekable stream, and can be pickled."""

    sha256: str
    size: int
    form: Form
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class Verdict:
    """What a check found, whatever the path: nothing, or the name of a refusal and its reason."""

    refusal: str = ""
    reason: str = ""

    def enforce(self, path: str) -> None:
        """Raise the refusal, if any, for a file at that path."""
        if self.refusal:
            raise REFUSALS[self.refusal](self.reason.replace(PATH, path))


def opened(path: Path) -> BinaryIO:
    """A file on this machine, for `Candidate.open`."""
    return path.open("rb")


def judge(candidates: Sequence[Candidate]) -> list[Verdict]:
    """The verdict on each candidate."""
    return [_judged(candidate) for candidate in candidates]


def _judged(candidate: Candidate) -> Verdict:
    try:
        check_content(PATH, candidate.size, candidate.form, candidate.open)
    except (Invalid, TooLarge) as error:
        return Verdict(type(error).__name__, str(error))
    return Verdict()
