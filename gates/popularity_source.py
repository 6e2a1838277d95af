"""Where the popularity of a question's subject comes from, by name: file:PATH, or NAME:REST of a user's own source.

Sources are found through the entry-point group `kcard.popularity`, and made with what stands after the colon.
"""

import math
from collections.abc import Callable
from pathlib import Path

from kcard import plugins
from kcard.errors import UsageError
from kcard.rows import Row, read_rows

__all__ = ["GROUP", "PopularityFile", "checked", "find"]

GROUP = "kcard.popularity"


def find(name: str) -> Callable[[str], float | None]:
    """The source of that name, from a question to its subject's popularity; UsageError lists the ones there are."""
    kind, _, given = name.partition(":")
    made: Callable[[str], float | None] = plugins.load(GROUP, kind)(given)
    return made


def checked(value: float, question: str) -> float:
    """The value, if it is a popularity: finite and at least 0. Raises UsageError."""
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(
            f"popularity of {question[:60]!r} is {value}, expected a number of at least 0: correct its source"
        )
    return value


class PopularityFile:
    """A JSONL file, one object a line with `question` and `popularity`, such as a file of records.

    Raises UsageError, naming file and line, for what can't be read.
    """

    def __init__(self, path: str) -> None:
        if not path:
            raise UsageError("popularity source file: name the file, as in file:popularity.jsonl")
        self._known = dict(
            _entry(row, where) for where, row in read_rows(Path(path).expanduser(), "popularity file")
        )

    def __call__(self, question: str) -> float | None:
        return self._known.get(_key(question))


def _entry(row: Row, where: str) -> tuple[str, float]:
    if not isinstance(row.get("question"), str):
        raise UsageError(f"{where}: an object with a question and its popularity was expected")
    value = row.get("popularity")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e300:
        raise UsageError(f"{where}: popularity is {value!r:.40}, expected a number of at least 0")
    return _key(row["question"]), float(value)


def _key(question: str) -> str:
    return " ".join(question.lower().split())
