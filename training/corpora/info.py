"""Info files, GNU's manuals: nodes of laid-out text. Menus and indices, which only point elsewhere, are left out."""

import re
from collections.abc import Iterable, Iterator

from kcard.errors import CorpusError
from kcard.training.corpora import layout
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

__all__ = ["blocks", "read"]

NODE = re.compile(r"File: .*?,\s+Node: (.*?),")
MENU = re.compile(r"\* Menu:\s*$")
ENTRY = re.compile(r"\* [^:]+:[:.]?|\s{10,}\S|\s*$")
TABLES = ("Tag Table:", "Indirect:", "Local Variables:", "END-INFO-DIR-ENTRY", "START-INFO-DIR-ENTRY")
REFERENCE = re.compile(r"\*[Nn]ote\s+([^:]+?)(?:::|:\s+[^.,]+(?=[.,]))")


def read(document: Document) -> Iterator[Block]:
    """Blocks by lines. Manuals from before UTF-8 are in Latin-1."""
    try:
        for _ in lines(document.path, nul=True):
            pass
        encoding = "utf-8"
    except CorpusError as error:
        if not isinstance(error.__context__, UnicodeDecodeError):
            raise
        encoding = "latin-1"
    yield from blocks(lines(document.path, nul=True, encoding=encoding), document)


def blocks(numbered: Iterable[tuple[int, str]], document: Document) -> Iterator[Block]:
    yield from layout.blocks(_text(numbered, document))


def _text(numbered: Iterable[tuple[int, str]], document: Document) -> Iterator[tuple[int, str]]:
    """The lines without what leads from node to node; a node begins after a blank line."""
    header, menu, skipped = True, False, False
    for number, line in numbered:
        if line.startswith("\x1f"):
            header, menu, skipped = True, False, False
            yield number, ""
        elif header:
            header = False
            skipped = not NODE.match(line)  # a table of the file, or its preamble
        elif skipped or line.startswith(TABLES):
            continue
        elif MENU.match(line):
            menu = True
        elif menu and ENTRY.match(line):
            document.losses.dropped["lines of menus"] += bool(line.strip())
            yield number, ""
        elif "\0" not in line:  # a mark of an index
            menu = False
            yield number, REFERENCE.sub(r"\1", line)
