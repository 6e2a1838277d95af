"""The blocks of a document as a corpus keeps them: as bytes, with what tells whether others repeat them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.boilerplate import why_boilerplate
from kcard.training.corpora.compressed import opened
from kcard.training.corpora.document import Block, Document, Losses
from kcard.training.corpora.formats import format_of
from kcard.training.duplicates import could_be_repeated, fingerprint
from kcard.training.records import block_bytes

__all__ = ["Digested", "FileRead", "digested", "read_files"]

LONGEST = 100_000  # characters of a document, so that none need be in memory whole: a longer one is parted
WRITTEN = ("text", "item", "statement")


@dataclass(frozen=True)
class Digested:
    """A block that is kept.

    begins  whether a document begins with it: a file of prose is one; of a table, a row
    alone   whether nothing before it in the file bears on it, so that reading may be divided here
    line    whether it could be a header or footer that other files repeat
    """

    record: bytes
    printed: bytes
    begins: bool
    alone: bool
    line: bool
    text: bool


@dataclass(frozen=True)
class FileRead:
    """A file that was read as a whole; `error`: why it could not be."""

    file: Path
    name: str
    prose: bool
    blocks: Sequence[Digested]
    losses: Losses
    error: CorpusError | None = None


def digested(document: Document, blocks: Iterable[Block], *, prose: bool) -> Iterator[Digested]:
    """The blocks without boilerplate, which is counted in the document's losses."""
    row: tuple[str | None, int] | None = None
    size, structured, begins = 0, False, False
    for block in blocks:
        if row != (row := _row(block, prose=prose)) or size > LONGEST:
            begins, size = True, 0
        size += len(block.text)
        written = block.text if block.kind in WRITTEN else ""
        if reason := why_boilerplate(written) if written else None:
            document.losses.dropped[reason] += 1
            continue
        structured = structured or block.kind in ("heading", "term")
        yield Digested(
            block_bytes(document.name, block),
            fingerprint(block.text),
            begins,
            block.kind == "statement" and not structured,
            prose and block.kind in WRITTEN and could_be_repeated(block.text),
            bool(block.text.strip()),
        )
        begins = False


def read_files(files: Sequence[tuple[Path, str, str | None]]) -> list[FileRead]:
    """Files, each with its name within the corpus and the column that was chosen, read whole."""
    return [_read(*file) for file in files]


def _read(file: Path, name: str, column: str | None) -> FileRead:
    kind = format_of(file)
    assert kind is not None
    losses = Losses()
    try:
        with opened(file) as plain:
            document = Document(plain, name, column, losses)
            found = [*digested(document, kind.read(document), prose=kind.prose)]
    except CorpusError as error:
        return FileRead(file, name, kind.prose, (), losses, error)
    return FileRead(file, name, kind.prose, found, losses)


def _row(block: Block, *, prose: bool) -> tuple[str | None, int]:
    """What blocks of one document have in common."""
    return (block.file, 0 if prose or block.file else block.line)
