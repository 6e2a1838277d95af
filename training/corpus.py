"""A corpus: files become passages, each with its headings and the file and line that it came from.

This file knows no model and no format (kcard.training.corpora has those). Blocks and passages are kept on disk while
they are read and used, so that a corpus may be larger than memory.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import compress, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.boilerplate import why_boilerplate
from kcard.training.corpora import huggingface
from kcard.training.corpora.compressed import opened
from kcard.training.corpora.document import Block, Document, Losses
from kcard.training.corpora.files import files_of
from kcard.training.corpora.formats import FORMATS, format_of
from kcard.training.documents import Documents
from kcard.training.duplicates import Fingerprints
from kcard.training.lazy import Lazy
from kcard.training.passages import passages
from kcard.training.pieces import Size, count_words, sentences
from kcard.training.spool import Spool
from kcard.words import passage_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Corpus", "is_known", "read_corpus", "statements"]

ALIKE = 5  # skipped files that share a reason are listed up to here
STATEMENT = Size(words=60, characters=480)
FEW = 12  # words
LONGEST = 100_000  # characters of a document, so that none need be in memory whole: a longer one is parted


@dataclass(frozen=True)
class Corpus:
    """Distinct passages in a stable order, read from disk as they are asked for.

    `sha256` is over their texts; `skipped`: (file, reason). `duplicates` counts passages that were there before,
    `dropped` everything else that was not taken, by reason. `notes` are sentences on how files were read. `documents`
    are the whole texts, where they were asked for.
    """

    path: Path
    passages: Sequence[Source]
    sha256: str
    skipped: tuple[tuple[str, str], ...] = ()
    duplicates: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    documents: Documents | None = None

    @cached_property
    def statements(self) -> Sequence[Source]:
        """What a model learns to recite, 60 words at most: short lines as they are, the sentences of longer ones."""
        spool = Spool()
        for statement in statements(self.passages):
            spool.append(_record(statement))
        return Lazy(len(spool), lambda index: Source(**json.loads(spool[index])))

    @property
    def texts(self) -> Sequence[str]:
        """Those of the statements."""
        return Lazy(len(self.statements), lambda index: self.statements[index].text)

    def remarks(self) -> list[str]:
        """What a user should know of the reading, a sentence each: what was skipped, dropped and kept."""
        counts = {"duplicates": self.duplicates, **self.dropped}
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in counts.items() if count)
        return [
            *_skipped(self.skipped),
            *self.notes,
            *([f"left out: {dropped}"] if dropped else []),
            f"{len(self.passages):,} {'passages' if len(self.passages) > 1 else 'passage'} in {self.path}",
        ]


@dataclass
class _Draft:
    """A corpus while it is read: the blocks of its files, until all are there and what they repeat is known."""

    column: str | None
    whole: bool = False
    blocks: Spool = field(default_factory=Spool)
    starts: "array[int]" = field(default_factory=lambda: array("Q"))
    lines: Fingerprints = field(default_factory=Fingerprints)
    losses: Losses = field(default_factory=Losses)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    prose: int = 0

    def take(self, document: Document, blocks: Iterable[Block], *, prose: bool = False) -> None:
        """Add the document's blocks: all of them, or after a CorpusError none."""
        before, texts, documents = len(self.blocks), 0, len(self.starts)
        row: tuple[str | None, int] | None = None
        size = 0
        try:
            for block in blocks:
                if row != (row := _row(block, prose=prose)) or size > LONGEST:
                    self.starts.append(len(self.blocks))
                    size = 0
                size += len(block.text)
                written = block.kind in ("text", "item", "statement") and block.text
                if reason := why_boilerplate(written) if written else None:
                    document.losses.dropped[reason] += 1
                    continue
                texts += bool(block.text.strip())
                repeatable = prose and block.kind in ("text", "item", "statement")
                self.lines.append(block.text, self.prose, prose=repeatable)
                self.blocks.append(json.dumps([document.name, asdict(block)], ensure_ascii=False).encode())
        except CorpusError:
            self.blocks.truncate(before)
            self.lines.truncate(before)
            del self.starts[documents:]
            raise
        self.losses.add(document.losses)
        self.prose += prose
        if not texts:
            self.skipped.append((document.name, "no text in it"))

    def corpus(self, path: Path) -> Corpus:
        found, prints = Spool(), Fingerprints()
        for passage in self._passages():
            prints.append(passage.in_context, 0, prose=False)
            found.append(_record(passage))
        if not len(found):
            raise CorpusError(f"{path} holds no text{_why(self)}: add at least one passage")
        marks = prints.marks(1)
        found.keep(marks == 0)
        kept = Lazy(len(found), lambda index: Source(**json.loads(found[index])))
        digest = hashlib.sha256()
        for number, passage in enumerate(kept):
            digest.update(b"\n" * (number > 0) + passage.text.encode())
        counts = {reason: count for reason, count in self.losses.dropped.items() if count}
        duplicates = int((marks == 1).sum())
        skipped, notes = tuple(self.skipped), tuple(self.losses.notes)
        documents = Documents(self.blocks, self.starts, self._repeated) if self.whole else None
        return Corpus(path, kept, digest.hexdigest(), skipped, duplicates, counts, notes, documents)

    def _passages(self) -> Iterator[Source]:
        """Of one document after the other, without the lines that most of them repeat."""
        if count := int(self._repeated.sum()):
            self.losses.dropped["lines that most files repeat"] = count
        kept = compress(range(len(self.blocks)), ~self._repeated)
        rows: Iterator[Any] = (json.loads(self.blocks[at]) for at in kept)
        for name, group in groupby(rows, key=lambda row: row[0]):
            yield from passages((Block(**block) for _, block in group), name)

    @cached_property
    def _repeated(self) -> "npt.NDArray[np.bool_]":
        """For each block, whether most files repeat it."""
        repeated: npt.NDArray[np.bool_] = self.lines.marks(self.prose) == 2
        return repeated


def _row(block: Block, *, prose: bool) -> tuple[str | None, int]:
    """What blocks of one document have in common: a file of prose is one; of a table, a row."""
    return (block.file, 0 if prose or block.file else block.line)


def statements(found: Iterable[Source]) -> Iterator[Source]:
    """The statements of passages. One of a few words has the innermost heading before it, or it would say little."""
    for passage in found:
        heading = passage.section.rpartition(" > ")[2] if " > " in passage.section else ""
        for text in sentences(passage.text, STATEMENT):
            named = f"{heading}: {text}" if heading and count_words(text) < FEW else text
            yield replace(passage, text=named)


def is_known(passage: Source, digests: Collection[str]) -> bool:
    """Whether its digest (kcard.words.passage_digest) is among them, or that of each of its statements."""
    known = passage_digest(passage.text) in digests
    return known or all(passage_digest(part.text) in digests for part in statements([passage]))


def _record(passage: Source) -> bytes:
    return json.dumps(asdict(passage), ensure_ascii=False).encode()


def read_corpus(path: str | Path, field: str | None = None, *, whole: bool = False) -> Corpus:
    """Read a file, every file under a folder, or a data set.

    .txt: one statement a line, or a document by its layout; .md, .rst, .html, .pdf, .docx, .info and man pages:
    paragraphs, lists, code and tables under their headings; .jsonl: objects with `text`
    (or passage, content, fact, ...); .csv and .parquet: rows with a column of text; .tsv: triples; a folder that
    datasets saved; hf:owner/name[:split]. Any of the files may be compressed (.gz). `field` names the column or key
    that holds the text, or is a sentence with {columns} in it. `whole`: with the documents that passages are cut from.

    In a folder, hidden files are passed over, and files that can't be read, of other kinds, without text, licences and
    lists of changes are skipped and listed. Raises CorpusError, naming file and line, for what is missing, empty or
    can't be read.
    """
    draft = _Draft(field, whole)
    given = str(path)
    if given.startswith(huggingface.PREFIX):
        local = Path(given.removeprefix(huggingface.PREFIX)).expanduser()
        if given == huggingface.PREFIX or not local.exists():
            named = Document(Path(given), given, field)
            draft.take(named, huggingface.read(named))
            return draft.corpus(Path(huggingface.repository(given)))
        path = local
    path = Path(path).expanduser()
    if path.is_dir() and huggingface.is_saved(path):
        saved = Document(path, path.name, field)
        draft.take(saved, huggingface.read_saved(saved))
    else:
        _read_files(path, draft)
    return draft.corpus(path)


def _read_files(path: Path, draft: _Draft) -> None:
    files, draft.skipped = files_of(path)
    formats = [(file, name, kind) for file, name in files if (kind := format_of(file, named=file == path))]
    if draft.column is not None and not any(kind.columns for *_, kind in formats):
        kinds = ", ".join(suffix for suffix, kind in FORMATS.items() if kind.columns)
        raise CorpusError(f"field {draft.column!r} names a column, but {path} has none: use it with {kinds}")
    for file, name, kind in formats:
        try:
            with opened(file) as plain:
                document = Document(plain, name, draft.column)
                draft.take(document, kind.read(document), prose=kind.prose)
        except CorpusError as error:
            if path.is_file():
                raise
            draft.skipped.append((name, _reason(error, file, name)))


def _reason(error: CorpusError, file: Path, name: str) -> str:
    """The error without the file's name, which stands before it in a list."""
    said = str(error).removeprefix(str(file)).removeprefix(name)
    return re.sub(r"^:(\d+) ", r"line \1 ", said).strip()


def _why(draft: _Draft) -> str:
    found = [f"{name}: {reason}" for name, reason in draft.skipped if reason != "no text in it"][:1]
    found += [f"left out: {reason} {count}" for reason, count in draft.losses.dropped.items() if count]
    more = len(draft.skipped) - 1
    return f" ({', '.join(found)}{f', and {more} more files' if more > 0 else ''})" if found else ""


def _skipped(skipped: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A sentence a file, or one for many that share a reason."""
    files: dict[str, list[str]] = {}
    for file, reason in skipped:
        files.setdefault(reason, []).append(file)
    for reason, names in files.items():
        if len(names) > ALIKE:
            yield f"skipped {len(names)} files, such as {names[0]}: {reason}"
        else:
            yield from (f"skipped {name}: {reason}" for name in names)
