"""Records: how well each question was answered without cards and with them; what gates are fitted on and judged by.

One JSON object a line; the first three keys are enough, and keys that are not ours are passed over:

    {"question": "Who wrote Emma?", "correct_without": 0, "correct_with": 1,
     "answers": ["Jane Austen"], "relation": "author", "popularity": 4100}
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.gates.query import Query
from kcard.json_values import parse

__all__ = ["Record", "digest", "read_records", "write_records"]

REMEDY = "collect records with kcard gate collect"


@dataclass(frozen=True)
class Record:
    """A question that was answered both ways.

    correct_without  how right the answer without cards was, in [0, 1]
    correct_with     the same with cards
    answers          the accepted answers
    label            the class of the right answer, in a classification task (Thrust's l)
    relation         see Query
    popularity       see Query
    answer_without   what the LLM said without cards; "" where it is not known
    answer_with      the same with cards
    scores           further measures of both answers, such as {"f1_without": 0.5, "f1_with": 1.0}

    Raises ValueError, which names the field, for a value outside of its range.
    """

    question: str
    correct_without: float
    correct_with: float
    answers: tuple[str, ...] = ()
    label: str | None = None
    relation: str | None = None
    popularity: float | None = None
    answer_without: str = ""
    answer_with: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("question is empty")
        for name in ("correct_without", "correct_with"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number from 0 to 1")
        if self.popularity is not None and not (math.isfinite(self.popularity) and self.popularity >= 0):
            raise ValueError(f"popularity is {self.popularity}, expected a number of at least 0, or null")

    @property
    def query(self) -> Query:
        return Query(self.question, self.relation, self.popularity)

    @property
    def knows(self) -> bool:
        """Whether it belongs to D+: without cards the answer was as good, or better (SKR, section 3.1)."""
        return self.correct_without >= self.correct_with

    @property
    def seeks(self) -> bool:
        """Whether it belongs to D-: the cards helped."""
        return not self.knows

    @property
    def wrong_both_ways(self) -> bool:
        """SKR drops such records from fitting, since they tell nothing; every evaluation counts them."""
        return self.correct_without == 0 == self.correct_with

    def to_json(self) -> str:
        """One line, without the fields that are at their default."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        kept = {name: value for name, value in given.items() if value not in (None, "", (), {})}
        return json.dumps(kept, ensure_ascii=False)


def read_records(path: Path | str) -> tuple[Record, ...]:
    """The records of a JSONL file, in its order.

    Raises UsageError, naming file and line (and field), for what is missing, no UTF-8 text or malformed, and for a
    file without a record.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"records {path} can't be read: {error.strerror}: {REMEDY}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"records {path}: not UTF-8 text: {REMEDY}") from error
    # JSON strings may hold line separators that str.splitlines would cut at.
    lines = enumerate(text.split("\n"), start=1)
    found = tuple(_record(line, f"records {path}, line {number}") for number, line in lines if line.strip())
    if not found:
        raise UsageError(f"records {path}: it contains no records: {REMEDY}")
    return found


def write_records(path: Path | str, records: Iterable[Record]) -> None:
    """Write a JSONL file that `read_records` reads back as the same records."""
    with Path(path).open("w", encoding="utf-8") as stream:
        stream.writelines(record.to_json() + "\n" for record in records)


def digest(records: Sequence[Record]) -> str:
    """sha256, hexadecimal, of the records in their order; however their file writes them."""
    state = hashlib.sha256()
    for record in records:
        state.update(json.dumps(asdict(record), sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return state.hexdigest()


def _record(line: str, where: str) -> Record:
    try:
        given = parse(line)
        if not isinstance(given, dict):
            raise ValueError(f"expected an object, found {type(given).__name__}")
        return Record(**{name: _READ[name](given, name) for name in _READ if name in given or name in NEEDED})
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {_shown(given, name)}, expected a text")
    return value


def _number(given: Mapping[str, Any], name: str) -> float:
    """A number; true is 1 and false 0, as others write correctness."""
    value = given.get(name)
    if not isinstance(value, int | float) or abs(value) > 1e300:
        raise ValueError(f"{name} is {_shown(given, name)}, expected a number")
    return float(value)


def _optional_text(given: Mapping[str, Any], name: str) -> str | None:
    """A text; classes are often numbered."""
    value = given[name]
    return str(value) if type(value) is int else None if value is None else _text(given, name)


def _optional_number(given: Mapping[str, Any], name: str) -> float | None:
    return None if given[name] is None else _number(given, name)


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = given[name]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{name} is {_shown(given, name)}, expected a list of texts")
    return tuple(value)


def _numbers(given: Mapping[str, Any], name: str) -> Mapping[str, float]:
    value = given[name]
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_shown(given, name)}, expected an object of numbers")
    return {key: _number(value, key) for key in value}


def _shown(given: Mapping[str, Any], name: str) -> str:
    return json.dumps(given[name])[:40] if name in given else "missing"


NEEDED = ("question", "correct_without", "correct_with")
_READ: Mapping[str, Any] = {
    "question": _text,
    "correct_without": _number,
    "correct_with": _number,
    "answers": _texts,
    "label": _optional_text,
    "relation": _optional_text,
    "popularity": _optional_number,
    "answer_without": _text,
    "answer_with": _text,
    "scores": _numbers,
}
