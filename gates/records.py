"""Records of questions answered with and without cards, on which gates are fitted.

One JSON object per line; the first three keys suffice, and unknown keys are ignored:

    {"question": "Who wrote Emma?", "correct_without": 0, "correct_with": 1,
     "answers": ["Jane Austen"], "relation": "author", "popularity": 4100}

Keys of other projects' files are understood, too: "gold" for answers, and "em_without" and "em_with" for scores. The
file may be compressed (.gz).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.io import Row, build, read_rows
from kcard.types import Question

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Query:
    """A question to be scored, with what is known besides its text; None: unknown.

    relation    what it asks about its subject, such as "director"
    popularity  of its subject, such as monthly page views, at least 0
    answer      the LLM's answer without cards
    draft       what the LLM writes before and with that answer, reasoning included
    draft_log_probability  mean over the tokens of either, 0 or less
    origin      the question, if it is being answered: a gate that asks the LLM makes its requests with it
    """

    question: str
    relation: str | None = None
    popularity: float | None = None
    answer: str | None = None
    draft: str | None = None
    draft_log_probability: float | None = None
    origin: Question | None = field(default=None, compare=False, repr=False)

    @property
    def to_ask(self) -> Question:
        """The question with which requests to the LLM are made."""
        return self.origin or Question(self.question)


REMEDY = "collect records with kcard gate collect"
TEXT_FIELDS = ("answer_without", "answer_with", "draft")  # null is the same as leaving it out
NUMBER_FIELDS = ("correct_without", "correct_with", "popularity", "draft_log_probability")
FOREIGN_SCORES = ("em_without", "em_with")
RECALL = "recall@1"  # a score: 1 if the first passage contains an accepted answer


@dataclass(frozen=True)
class Record:
    """A question that was answered both ways.

    correct_without  correctness of the answer without cards, in [0, 1]
    correct_with     correctness of the answer with cards
    answers          the accepted answers
    label            the class of the right answer, in a classification task (Thrust's l)
    relation         see Query
    popularity       see Query
    answer_without   the LLM's answer without cards; "" if unknown
    answer_with      the LLM's answer with cards
    scores           further measures of both answers, such as {"f1_without": 0.5, "f1_with": 1.0}

    Raises ValueError, which names the field, for a value out of range.
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
    draft: str = ""
    draft_log_probability: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("question is empty")
        for name in ("correct_without", "correct_with"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number from 0 to 1")
        if self.popularity is not None and not (math.isfinite(self.popularity) and self.popularity >= 0):
            raise ValueError(f"popularity is {self.popularity}, expected a number of at least 0, or null")
        sure = self.draft_log_probability
        if sure is not None and not (math.isfinite(sure) and sure <= 0):
            raise ValueError(f"draft_log_probability is {sure}, expected a number of at most 0, or null")

    @property
    def query(self) -> Query:
        return Query(
            self.question,
            self.relation,
            self.popularity,
            self.answer_without or None,
            self.draft or None,
            self.draft_log_probability,
        )

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
        """Whether neither answer is right. SKR excludes such records from fitting; evaluations count them."""
        return self.correct_without == 0 == self.correct_with

    def to_json(self) -> str:
        """Return one line of JSON, without fields at their default."""
        changed = {}
        for own in fields(self):
            value = getattr(self, own.name)
            if value not in (None, "", (), {}):
                changed[own.name] = value
        return json.dumps(changed, ensure_ascii=False)


def read_records(path: Path | str) -> tuple[Record, ...]:
    """Read the records of a JSONL file, or of the .jsonl and .jsonl.gz files of a folder, sorted by name.

    Raises UsageError, which names file, line and field, for what is missing, not UTF-8 or malformed, and for a file or
    folder without records.
    """
    path = Path(path).expanduser()
    files = [path]
    if path.is_dir():
        files = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    records = []
    for file in files:
        for where, row in read_rows(file, "records", REMEDY):
            records.append(_record(row, where))
    if not records:
        raise UsageError(f"records {path}: it contains no records: {REMEDY}")
    return tuple(records)


def write_records(path: Path | str, records: Iterable[Record]) -> None:
    """Write a JSONL file that `read_records` reads back as the same records."""
    with Path(path).open("w", encoding="utf-8") as stream:
        stream.writelines(record.to_json() + "\n" for record in records)


def split_records(records: Sequence[Record], kind: str) -> tuple[list[Record], Bools]:
    """Return the records of D+ and D-, in their order, and which belong to D+; those wrong both ways are excluded.

    Raises UsageError if either is empty: then there is nothing to tell apart, and the paper's rule (SKR, section 3.2)
    would call everything known, or nothing.
    """
    usable = [record for record in records if not record.wrong_both_ways]
    is_known = np.array([record.knows for record in usable], dtype=bool)
    missing = ""
    if is_known.all():
        missing = "better with cards"
    elif not is_known.any():
        missing = "as well without cards"
    if missing:
        raise UsageError(
            f"gate {kind}: of {len(records)} records none has a question that was answered {missing}: add such "
            "records, or use the gate never or always"
        )
    return usable, is_known


def digest(records: Sequence[Record]) -> str:
    """Return the sha256, hexadecimal, of the records in their order, independent of how their file writes them."""
    state = hashlib.sha256()
    for record in records:
        state.update(json.dumps(asdict(record), sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return state.hexdigest()


def _record(row: Row, where: str) -> Record:
    """Make a record of a row, in which correctness may be true or false, and a label a number."""
    values = {f.name: row[f.name] for f in fields(Record) if f.name in row}
    if "answers" not in values and "gold" in row:
        values["answers"] = row["gold"]
        if isinstance(row["gold"], str):
            values["answers"] = [row["gold"]]
    for name in TEXT_FIELDS:
        if values.get(name, "") is None:
            del values[name]
    if "scores" not in values:
        scores = {name: row[name] for name in FOREIGN_SCORES if name in row}
        if scores:
            values["scores"] = scores
    try:
        for name in NUMBER_FIELDS:
            if name in values:
                values[name] = _real(values[name])
        if isinstance(values.get("scores"), dict):
            values["scores"] = {name: _real(value) for name, value in values["scores"].items()}
        if type(values.get("label")) is int:
            values["label"] = str(values["label"])
        return build(Record, values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def _real(value: Any) -> Any:
    """Convert integers and booleans to floats, so that equal records have equal digests."""
    if isinstance(value, int) and abs(value) < 1e300:
        return float(value)
    return value
