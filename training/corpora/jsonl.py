"""JSON lines: an object a line, with its text under one of the usual keys."""

from collections.abc import Iterator
from typing import Any

from kcard.cards.format.passages import lines_of
from kcard.errors import CorpusError
from kcard.json_values import parse
from kcard.training.corpora.columns import NAMES, Template, heading
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

__all__ = ["read"]


def read(document: Document) -> Iterator[Block]:
    """The text of every object, with its "section" or "title". "file" and "line", where both are there, are kept, so
    that a card's own passages that are read again are still traced to where they came from.
    """
    template = None if document.column is None else Template(document.column)
    for number, line in lines(document.path, whole=True):
        if line.strip():
            row = _object(line, f"{document.path}:{number}")
            text = _text(row, template, f"{document.path}:{number}")
            file, at = row.get("file"), row.get("line")
            section = heading(row)
            if isinstance(file, str) and type(at) is int:
                yield Block("statement", text, at, file=file, section=section, lines=lines_of(row))
            else:
                yield from (Block("statement", part, number, section=section) for part in text.splitlines())


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse(line)
    except ValueError as error:
        raise CorpusError(f"{where} is not JSON ({error}): expected one object per line") from None
    return row if isinstance(row, dict) else {}


def _text(row: dict[str, Any], template: Template | None, where: str) -> str:
    if template is not None:
        missing = [column for column in template.columns if column not in row]
        if missing:
            raise CorpusError(f"{where} has no {missing[0]!r}: its keys are {', '.join(row) or 'none'}")
        return template.fill(row) or ""
    for key in NAMES:
        if isinstance(row.get(key), str):
            return str(row[key])
    raise CorpusError(
        f"{where} has no string under {', '.join(NAMES)}: give it one of them, or name another (--field)"
    )
