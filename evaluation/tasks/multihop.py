"""Questions that take several paragraphs to answer, in the layouts of HotpotQA, 2WikiMultihopQA and MuSiQue."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.entries import entries
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import Placed, gathered
from kcard.evaluation.tasks.task import TaskData
from kcard.rows import Row

__all__ = ["read_multihop"]

COLUMNS = Columns(id=("id", "_id"), group=("type",), passages=("texts",))


def read_multihop(name: str, path: Path) -> TaskData:
    """F1; the group is the type of question, the passages are its paragraphs, each under its title.

    Questions that MuSiQue marks as not answerable are left out.
    """
    return gathered(name, "f1", path, _items(name, path))


def _items(name: str, path: Path) -> Iterator[Placed]:
    for where, row in entries(path, name):
        if row.get("answerable") is False:
            continue
        answers = row.get("answers") or [row.get("answer"), *(row.get("answer_aliases") or ())]
        yield where, COLUMNS.item({**row, "answers": answers, "texts": _paragraphs(row, where)}, where)


def _paragraphs(row: Row, where: str) -> list[str]:
    """ "paragraphs" of {title, text}, or HotpotQA's "context": [[title, [sentences]], ...], also as two lists."""
    try:
        if "paragraphs" in row:
            return [
                f"{one['title']}\n{one.get('text') or one['paragraph_text']}" for one in row["paragraphs"]
            ]
        return [f"{title}\n{_joined(sentences)}" for title, sentences in _context(row.get("context") or [])]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f'{where}: expected "paragraphs" of {{title, text}} or a "context" of [title, [sentences]] pairs'
        ) from error


def _context(context: Any) -> Any:
    return zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context


def _joined(sentences: Any) -> str:
    return " ".join(sentence.strip() for sentence in sentences)
