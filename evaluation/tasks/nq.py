"""Natural Questions (Kwiatkowski et al., 2019): questions typed into a search engine.

NQ-open ({question, answer: [...]} a line), the same with the paragraph as "context", or the simplified form of the
original ({question_text, document_text, annotations}), of which only questions with a short answer count.
"""

from pathlib import Path
from typing import Any

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData
from kcard.rows import Row

__all__ = ["read"]

COLUMNS = Columns(
    question=("question", "question_text"),
    answers=("answers", "answer", "short_answers"),
    id=("id", "example_id"),
    passages=("context",),
)


def read(path: Path) -> TaskData:
    """Exact match."""
    return from_rows("nq", "em", path, COLUMNS, _with_short_answers)


def _with_short_answers(row: Row) -> Row | None:
    """Short answers are spans of the document's tokens, of each annotator."""
    if "annotations" not in row or not isinstance(row.get("document_text"), str):
        return row
    tokens = row["document_text"].split(" ")
    texts = [" ".join(tokens[start:end]) for start, end in map(_span, _spans(row["annotations"]))]
    return {**row, "short_answers": texts} if any(texts) else None


def _spans(annotations: Any) -> list[Any]:
    found = annotations if isinstance(annotations, list) else []
    return [span for one in found if isinstance(one, dict) for span in one.get("short_answers") or ()]


def _span(span: Any) -> tuple[int, int]:
    given = span if isinstance(span, dict) else {}
    start, end = given.get("start_token"), given.get("end_token")
    return (start, end) if isinstance(start, int) and isinstance(end, int) else (0, 0)
