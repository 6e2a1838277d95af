"""A corpus: files become passages, each with its headings and the file and line that it came from.

This file knows no model and no format (kcard.training.corpora has those). Blocks and passages are kept on disk while
they are read and used, so that a corpus may be larger than memory.
"""

import hashlib
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.answer import Source
from kcard.batches import batched
from kcard.errors import CorpusError
from kcard.machine import cores
from kcard.training.corpora import huggingface
from kcard.training.corpora.compressed import opened
from kcard.training.corpora.document import Document, Losses
from kcard.training.corpora.files import files_of
from kcard.training.corpora.formats import FORMATS, format_of
from kcard.training.digest import Digested, FileRead, digested, read_files
from kcard.training.documents import Documents
from kcard.training.duplicates import Fingerprints, fingerprint
from kcard.training.lazy import Lazy
from kcard.training.passages import passages
from kcard.training.pieces import Size, count_words, sentences
from kcard.training.readers import divided
from kcard.training.records import block_of, source_bytes, source_of
from kcard.training.spool import Spool
from kcard.words import passage_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Corpus", "corpus_digest", "goes_on", "is_known", "read_corpus", "statements"]

ALIKE = 5  # skipped files that share a reason are listed up to here
STATEMENT = Size(words=60, characters=480)
FEW = 12  # words
SAMPLE = 20_000  # passages, spread over the corpus, by which it is described
PIECE = 250  # passages or, before they are cut, blocks that a reader is handed at a time
WORTH = 20  # such pieces a reader, below which starting the processes takes longer than the work
SMALL = 1 << 25  # bytes of a file that is read whole by one of several readers
HANDFUL = 1 << 21  # bytes of such files at a time


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
    readers: int = 1

    @cached_property
    def statements(self) -> Sequence[Source]:
        """What a model learns to recite, 60 words at most: short lines as they are, the sentences of longer ones."""
        spool = Spool()
        readers = self.readers if len(self.passages) > WORTH * PIECE * self.readers else 1
        for records in divided(_statement_records, batched(self.passages, PIECE), readers):
            for record in records:
                spool.append(record)
        return Lazy(len(spool), lambda index: source_of(spool[index]))

    @property
    def texts(self) -> Sequence[str]:
        """Those of the statements."""
        return Lazy(len(self.statements), lambda index: self.statements[index].text)

    @cached_property
    def goes_on(self) -> Sequence[bool]:
        """See the function of that name."""
        return goes_on(self.statements)

    @cached_property
    def sample(self) -> Sequence[str]:
        """Texts of statements, of a large corpus those of some passages, spread over it."""
        if len(self.passages) <= SAMPLE:
            return self.texts
        spread = self.passages[:: len(self.passages) // SAMPLE]
        return [statement.text for statement in statements(spread)]

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
    """A corpus while it is read: the blocks of its files, until all are there and what they repeat is known.

    starts  the blocks with which documents begin
    cuts    blocks, every few hundred, before which the making of passages may be divided
    """

    column: str | None
    whole: bool = False
    readers: int = 1
    blocks: Spool = field(default_factory=Spool)
    starts: "array[int]" = field(default_factory=lambda: array("Q"))
    cuts: "array[int]" = field(default_factory=lambda: array("Q", [0]))
    lines: Fingerprints = field(default_factory=Fingerprints)
    losses: Losses = field(default_factory=Losses)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    prose: int = 0

    def take(self, document: Document, blocks: Iterable[Digested], *, prose: bool = False) -> None:
        """Add the document's blocks: all of them, or after a CorpusError none."""
        before, documents, cuts, text = len(self.blocks), len(self.starts), len(self.cuts), False
        try:
            for block in blocks:
                at = len(self.blocks)
                if block.begins:
                    self.starts.append(at)
                if (block.alone or at == before) and at - self.cuts[-1] >= PIECE:
                    self.cuts.append(at)
                text = text or block.text
                self.lines.append(block.printed, self.prose, line=block.line)
                self.blocks.append(block.record)
        except CorpusError:
            self.blocks.truncate(before)
            self.lines.truncate(before)
            del self.starts[documents:], self.cuts[cuts:]
            raise
        self.losses.add(document.losses)
        self.prose += prose
        if not text:
            self.skipped.append((document.name, "no text in it"))

    def corpus(self, path: Path) -> Corpus:
        found, prints = Spool(), Fingerprints()
        readers = self.readers if len(self.cuts) > WORTH * self.readers else 1
        for made in divided(_passage_records, self._pieces(), readers):
            for printed, record in made:
                prints.append(printed, 0, line=False)
                found.append(record)
        if not len(found):
            raise CorpusError(f"{path} holds no text{_why(self)}: add at least one passage")
        marks = prints.marks(1)
        found.keep(marks == 0)
        kept = Lazy(len(found), lambda index: source_of(found[index]))
        counts = {reason: count for reason, count in self.losses.dropped.items() if count}
        duplicates = int((marks == 1).sum())
        skipped, notes = tuple(self.skipped), tuple(self.losses.notes)
        documents = Documents(self.blocks, self.starts, self._repeated) if self.whole else None
        return Corpus(
            path, kept, corpus_digest(kept), skipped, duplicates, counts, notes, documents, self.readers
        )

    def _pieces(self) -> Iterator[list[bytes]]:
        """The blocks, without the lines that most documents repeat."""
        if count := int(self._repeated.sum()):
            self.losses.dropped["lines that most files repeat"] = count
        for first, end in pairwise([*self.cuts, len(self.blocks)]):
            yield [self.blocks[at] for at in range(first, end) if not self._repeated[at]]

    @cached_property
    def _repeated(self) -> "npt.NDArray[np.bool_]":
        """For each block, whether most files repeat it."""
        repeated: npt.NDArray[np.bool_] = self.lines.marks(self.prose) == 2
        return repeated


def _passage_records(blocks: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The passages of blocks, (fingerprint, record) of each; those of one document after the other."""
    found = []
    for name, group in groupby(map(block_of, blocks), key=lambda row: row[0]):
        for passage in passages((block for _, block in group), name):
            found.append((fingerprint(passage.in_context), source_bytes(passage)))
    return found


def _statement_records(found: list[Source]) -> list[bytes]:
    return [source_bytes(statement) for statement in statements(found)]


def statements(found: Iterable[Source]) -> Iterator[Source]:
    """The statements of passages. One of a few words has the innermost heading before it, or it would say little."""
    for passage in found:
        heading = passage.section.rpartition(" > ")[2] if " > " in passage.section else ""
        for text in sentences(passage.text, STATEMENT):
            named = f"{heading}: {text}" if heading and count_words(text) < FEW else text
            yield replace(passage, text=named, lines=())


def goes_on(found: Iterable[Source]) -> list[bool]:
    """Of each statement, whether the next one follows it in its passage."""
    places = ((statement.file, statement.line, statement.section) for statement in found)
    follows = [one == other for one, other in pairwise(places)]
    return [*follows, False]


def corpus_digest(passages: Iterable[Source], before: Sequence[str] = ()) -> str:
    """sha256 over the texts of a corpus, one a line; `before`: lines that precede them."""
    digest = hashlib.sha256()
    for number, text in enumerate(chain(before, (passage.text for passage in passages))):
        digest.update(b"\n" * (number > 0) + text.encode())
    return digest.hexdigest()


def is_known(passage: Source, digests: Collection[str]) -> bool:
    """Whether its digest (kcard.words.passage_digest) is among them, or that of each of its statements."""
    known = passage_digest(passage.text) in digests
    return known or all(passage_digest(part.text) in digests for part in statements([passage]))


def read_corpus(
    path: str | Path, field: str | None = None, *, whole: bool = False, readers: int | None = 1
) -> Corpus:
    """Read a file, every file under a folder, or a data set.

    .txt: one statement a line, or a document by its layout; .md, .rst, .html, .pdf, .docx, .info and man pages:
    paragraphs, lists, code and tables under their headings; .jsonl: objects with `text`
    (or passage, content, fact, ...); .csv and .parquet: rows with a column of text; .tsv: triples; a folder that
    datasets saved; hf:owner/name[:split]. Any of the files may be compressed (.gz). `field` names the column or key
    that holds the text, or is a sentence with {columns} in it. `whole`: with the documents that passages are cut from.
    `readers`: processes among which the work is divided, None for one a core; they change nothing of the result.

    In a folder, hidden files are passed over, and files that can't be read, of other kinds, without text, licences and
    lists of changes are skipped and listed. Raises CorpusError, naming file and line, for what is missing, empty or
    can't be read.
    """
    draft = _Draft(field, whole, readers or cores())
    given = str(path)
    if given.startswith(huggingface.PREFIX):
        local = Path(given.removeprefix(huggingface.PREFIX)).expanduser()
        if given == huggingface.PREFIX or not local.exists():
            named = Document(Path(given), given, field)
            draft.take(named, digested(named, huggingface.read(named), prose=False))
            return draft.corpus(Path(huggingface.repository(given)))
        path = local
    path = Path(path).expanduser()
    if path.is_dir() and huggingface.is_saved(path):
        saved = Document(path, path.name, field)
        draft.take(saved, digested(saved, huggingface.read_saved(saved), prose=False))
    else:
        _read_files(path, draft)
    return draft.corpus(path)


def _read_files(path: Path, draft: _Draft) -> None:
    files, draft.skipped = files_of(path)
    formats = [(file, name, kind) for file, name in files if (kind := format_of(file, named=file == path))]
    if draft.column is not None and not any(kind.columns for *_, kind in formats):
        kinds = ", ".join(suffix for suffix, kind in FORMATS.items() if kind.columns)
        raise CorpusError(f"field {draft.column!r} names a column, but {path} has none: use it with {kinds}")
    if path.is_file():
        _read_one(path, formats[0][1], draft)
        return
    files = [(file, name) for file, name, _ in formats]
    for divisible, group in groupby(files, key=lambda row: draft.readers > 1 and _is_small(row[0])):
        if divisible:
            for found in divided(read_files, _handfuls(group, draft.column), draft.readers):
                for read in found:
                    _take_whole(read, draft)
            continue
        for file, name in group:
            try:
                _read_one(file, name, draft)
            except CorpusError as error:
                draft.skipped.append((name, _reason(error, file, name)))


def _is_small(file: Path) -> bool:
    """Whether what was read of a file may be in memory whole."""
    return file.stat().st_size * (10 if file.suffix == ".gz" else 1) < SMALL


def _read_one(file: Path, name: str, draft: _Draft) -> None:
    """A file block by block, so that it may be larger than memory."""
    kind = format_of(file, named=True)
    assert kind is not None
    with opened(file) as plain:
        document = Document(plain, name, draft.column)
        draft.take(document, digested(document, kind.read(document), prose=kind.prose), prose=kind.prose)


def _handfuls(
    files: Iterable[tuple[Path, str]], column: str | None
) -> Iterator[list[tuple[Path, str, str | None]]]:
    """Files, a few megabytes of them at a time."""
    handful: list[tuple[Path, str, str | None]] = []
    size = 0
    for file, name in files:
        handful.append((file, name, column))
        size += file.stat().st_size
        if size > HANDFUL:
            yield handful
            handful, size = [], 0
    if handful:
        yield handful


def _take_whole(read: FileRead, draft: _Draft) -> None:
    if read.error is not None:
        draft.skipped.append((read.name, _reason(read.error, read.file, read.name)))
        return
    draft.take(Document(read.file, read.name, draft.column, read.losses), read.blocks, prose=read.prose)


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
