"""In-context examples: the built-in ones (examples.jsonl) or a user's own file of the same form."""

from pathlib import Path

from kcard.errors import UsageError
from kcard.json_values import build
from kcard.request import Example
from kcard.rows import Row, read_rows

__all__ = ["BUILT_IN", "load"]

BUILT_IN = Path(__file__).resolve().with_name("examples.jsonl")


def load(path: Path | str | None = None) -> tuple[Example, ...]:
    """The examples of a JSONL file, one object a line: kind, question, reply and, optionally, knowledge (a list).

    None: the built-in ones. Raises UsageError that names the file, the line and what is wrong with it.
    """
    path = BUILT_IN if path is None else Path(path)
    found = tuple(_example(row, where) for where, row in read_rows(path, "examples"))
    if not found:
        raise UsageError(
            f"examples {path} contains no examples: write one JSON object per line, or leave out --examples"
        )
    return found


def _example(row: Row, where: str) -> Example:
    try:
        example = build(Example, row)
    except TypeError as error:
        raise UsageError(f"{where}: {error}") from None
    for key in ("question", "reply"):
        if not getattr(example, key).strip():
            raise UsageError(f"{where}: {key!r} must be a non-empty text")
    return example
