"""Read a corpus: the files of a folder or a data set as distinct passages.

Models and file formats are handled elsewhere (kcard.training.readers). Blocks and passages are kept on disk, so that a
corpus may be larger than memory.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from kcard.batching import batched, batched_by_size
from kcard.config import settings
from kcard.errors import CorpusError
from kcard.system import cores
from kcard.text import passage_digest
from kcard.training.documents import Documents, NamedBlock
from kcard.training.duplicates import DigestedBlock, Fingerprints, digest_blocks, fingerprint
from kcard.training.epochs import Lazy, Spool, parallel_map, spool_of
from kcard.training.passages import Size, count_words, passages, sentences
from kcard.training.readers import data_sets
from kcard.training.readers.files import (
    FORMATS,
    GZIP,
    SKIPPED_KINDS,
    TEMPLATE_FILE,
    UNKNOWN_FORMAT,
    Document,
    SkipReport,
    files_of,
    format_of,
    plain_file,
)
from kcard.training.readers.process import end_idle_processes, read_blocks, read_digested
from kcard.types import Source
from kcard.version import __version__

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kcard.selectors.local_corpus import LocalCorpus


@dataclass(frozen=True)
class FileRead:
    """The blocks of a file that was read whole; `error`: why it could not be read."""

    file: Path
    name: str
    prose: bool
    blocks: Sequence[DigestedBlock]
    skips: SkipReport
    error: CorpusError | None = None


def read_files(files: Sequence[tuple[Path, str, str | None]]) -> list[FileRead]:
    """Read files whole, each given as (file, its name within the corpus, the column that was chosen)."""
    contents = []
    for file, name, column in files:
        kind = format_of(file)
        assert kind is not None
        skips, blocks, failure = SkipReport(), list[DigestedBlock](), None
        try:
            with plain_file(file) as plain:
                blocks += read_digested(Document(plain, name, column, skips), kind)
        except CorpusError as error:
            blocks, failure = [], error
        contents.append(FileRead(file, name, kind.prose, blocks, skips, failure))
    return contents


MAX_NAMED_FILES = 5  # up to this many skipped files with the same reason are named
STATEMENT = Size(words=60, characters=480)
MIN_LONE_WORDS = 12  # words
MAX_SAMPLE_PASSAGES = 20_000  # passages, spread over the corpus, by which it is described
PIECE_BLOCKS = 250  # passages or, before these are cut, blocks that a reader gets at a time
MIN_PIECES_A_READER = 20  # pieces per reader, below which starting the processes takes longer than the work
MAX_WHOLE_FILE_BYTES = 1 << 25  # bytes of a file up to which it is read whole by one of several readers
FILES_AT_ONCE_BYTES = 1 << 21  # bytes of such files that a reader gets at a time


@dataclass(frozen=True)
class Corpus:
    """Distinct passages in a stable order, read from disk on access.

    sha256      over their texts
    skipped     (file, reason) of each file that was not read
    duplicates  number of passages left out as equal to an earlier one
    dropped     number of everything else that was left out, by reason
    notes       sentences for the user on how files were read
    documents   the whole texts, if requested
    readers     worker processes
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
        """The texts that a model learns to recite, 60 words at most: short lines whole, longer ones by sentence."""
        spool = spool_of(Source)
        readers = self.readers
        if len(self.passages) <= MIN_PIECES_A_READER * PIECE_BLOCKS * readers:
            readers = 1
        for part in parallel_map(list_statements, batched(self.passages, PIECE_BLOCKS), readers):
            for statement in part:
                spool.append(statement)
        return spool

    @property
    def texts(self) -> Sequence[str]:
        """The texts of the statements."""
        return Lazy(len(self.statements), lambda index: self.statements[index].text)

    @cached_property
    def continuations(self) -> Sequence[bool]:
        """See the function of that name."""
        return continuations(self.statements)

    @cached_property
    def sample(self) -> Sequence[str]:
        """The texts of statements; of a large corpus, those of passages spread over it."""
        if len(self.passages) <= MAX_SAMPLE_PASSAGES:
            return self.texts
        spread = self.passages[:: len(self.passages) // MAX_SAMPLE_PASSAGES]
        return [statement.text for statement in statements(spread)]

    @property
    def left_out(self) -> Mapping[str, int]:
        """What was left out, by kind, a noun in the plural: files, duplicates and everything else."""
        counts = Counter[str]()
        for file, reason in self.skipped:
            counts[kind_of_skipped(file, reason)] += 1
        counts["duplicates"] = self.duplicates
        counts.update(self.dropped)
        return {kind: count for kind, count in counts.items() if count}

    def remarks(self) -> list[str]:
        """Return sentences for the user on what was skipped, left out and read."""
        files: dict[str, list[str]] = {}
        for file, reason in self.skipped:
            files.setdefault(reason, []).append(file)
        remarks: list[str] = []
        for reason, names in files.items():
            named = ", ".join(names)
            if len(names) > MAX_NAMED_FILES:
                named = f"{len(names)} files, such as {names[0]}"
            remarks.append(f"skipped {named}: {reason}")
        remarks += self.notes
        left_out = [number_of(kind, count) for kind, count in self.left_out.items()]
        if left_out:
            remarks.append(f"left out: {', '.join(left_out)}")
        noun = "passages" if len(self.passages) > 1 else "passage"
        remarks.append(f"{len(self.passages):,} {noun} in {self.path}")
        return remarks


SUFFIX = re.compile(r"\.\w{1,6}")  # by which skipped files are counted
NO_TEXT = "no text in it"  # the reason why a file is skipped


def kind_of_skipped(file: str, reason: str) -> str:
    """Return the kind of a skipped file, a noun in the plural, by the reason."""
    if reason == NO_TEXT:
        return "empty files"
    if reason.startswith(UNKNOWN_FORMAT):
        suffix = PurePath(file).suffix
        if SUFFIX.fullmatch(suffix) is None:
            return "other files"
        return suffix
    return SKIPPED_KINDS.get(reason, "unreadable files")


def number_of(kind: str, count: int) -> str:
    """Return a count and its noun, such as "2 broken rows" and "1 broken row"."""
    if count == 1:
        kind = re.sub(r"^([\w-]+ ?\w*?)s\b", r"\1", kind)
    return f"{count:,} {kind}"


@dataclass
class _CorpusBuilder:
    """A builder that collects the blocks of all files into a Corpus without lines that most files repeat.

    starts  the blocks with which documents begin
    cuts    blocks, every few hundred, before which the making of passages may be divided
    """

    column: str | None
    whole: bool = False
    readers: int = 1
    blocks: Spool[NamedBlock] = field(default_factory=lambda: spool_of(NamedBlock))
    starts: "array[int]" = field(default_factory=lambda: array("Q"))
    cuts: "array[int]" = field(default_factory=lambda: array("Q", [0]))
    lines: Fingerprints = field(default_factory=Fingerprints)
    skips: SkipReport = field(default_factory=SkipReport)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    prose: int = 0

    def take(self, document: Document, blocks: Iterable[DigestedBlock], *, prose: bool = False) -> None:
        """Add the document's blocks: all of them or, after a CorpusError, none."""
        before, documents, cuts, text = len(self.blocks), len(self.starts), len(self.cuts), False
        try:
            for block in blocks:
                at = len(self.blocks)
                if block.begins:
                    self.starts.append(at)
                if (block.alone or at == before) and at - self.cuts[-1] >= PIECE_BLOCKS:
                    self.cuts.append(at)
                text = text or block.text
                self.lines.append(block.printed, self.prose, line=block.line)
                self.blocks.append(NamedBlock(document.name, [*vars(block.block).values()]))
        except CorpusError:
            self.blocks.truncate(before)
            self.lines.truncate(before)
            del self.starts[documents:], self.cuts[cuts:]
            raise
        self.skips.add(document.skips)
        self.prose += prose
        if not text:
            self.skipped.append((document.name, NO_TEXT))

    def corpus(self, path: Path) -> Corpus:
        """Cut the blocks into passages, without lines that most files repeat, and keep the distinct ones. Raises
        CorpusError if none is left."""
        # Cut the blocks into passages, in several processes if that pays.
        distinct, prints = spool_of(Source), Fingerprints()
        readers = self.readers if len(self.cuts) > MIN_PIECES_A_READER * self.readers else 1
        repeated = int(self._repeated.sum())
        if repeated:
            self.skips.dropped["lines that most files repeat"] = repeated
        for piece in parallel_map(cut_passages, self._pieces(), readers):
            for printed, passage in piece:
                prints.append(printed, 0, line=False)
                distinct.append(passage)
        if not distinct:
            raise CorpusError(f"{path} holds no text{self._why_empty()}: add at least one passage")
        # Keep the first of equal passages.
        marks = prints.marks(1)
        distinct.keep(marks == 0)
        documents = None
        if self.whole:
            documents = Documents(self.blocks, self.starts, self._repeated)
        return Corpus(
            path,
            distinct,
            corpus_digest(distinct),
            skipped=tuple(self.skipped),
            duplicates=int((marks == 1).sum()),
            dropped=+self.skips.dropped,
            notes=tuple(self.skips.notes),
            documents=documents,
            readers=self.readers,
        )

    def _pieces(self) -> Iterator[list[NamedBlock]]:
        """Yield the blocks between cuts, without those that most files repeat."""
        for first, end in pairwise([*self.cuts, len(self.blocks)]):
            yield [self.blocks[at] for at in range(first, end) if not self._repeated[at]]

    def _why_empty(self) -> str:
        """Return, in brackets, the first reason why a file was skipped, and what was left out."""
        reasons = []
        for name, reason in self.skipped:
            if reason != NO_TEXT:
                reasons.append(f"{name}: {reason}")
                break
        for kind, count in self.skips.dropped.items():
            if count:
                reasons.append(f"left out: {number_of(kind, count)}")
        if not reasons:
            return ""
        more = f", and {len(self.skipped) - 1} more files" if len(self.skipped) > 1 else ""
        return f" ({', '.join(reasons)}{more})"

    @cached_property
    def _repeated(self) -> "npt.NDArray[np.bool_]":
        """Whether most files repeat a block, for each block."""
        repeated: npt.NDArray[np.bool_] = self.lines.marks(self.prose) == 2
        return repeated


def cut_passages(blocks: Sequence[NamedBlock]) -> list[tuple[bytes, Source]]:
    """Cut blocks into passages by document; return each with its fingerprint."""
    cut: list[tuple[bytes, Source]] = []
    for name, group in groupby(blocks, key=lambda row: row.document):
        for passage in passages((row.block for row in group), name):
            cut.append((fingerprint(passage.in_context), passage))
    return cut


def list_statements(sources: Sequence[Source]) -> list[Source]:
    return [*statements(sources)]


def statements(sources: Iterable[Source]) -> Iterator[Source]:
    """Yield the statements of passages. The innermost heading precedes one of a few words, to give it context."""
    for passage in sources:
        _, mark, heading = passage.section.rpartition(" > ")
        for text in sentences(passage.text, STATEMENT):
            if mark and heading and count_words(text) < MIN_LONE_WORDS:
                text = f"{heading}: {text}"
            yield replace(passage, text=text, lines=())


def continuations(sources: Iterable[Source]) -> list[bool]:
    """Return, for each statement, whether the next one follows it in the same passage."""
    places = ((statement.file, statement.line, statement.section) for statement in sources)
    follows = [one == other for one, other in pairwise(places)]
    return [*follows, False]


def corpus_digest(passages: Iterable[Source], before: Sequence[str] = ()) -> str:
    """Return the sha256 over the texts of a corpus, one per line; `before`: lines that precede them."""
    digest = hashlib.sha256()
    for number, text in enumerate(chain(before, (passage.text for passage in passages))):
        digest.update(b"\n" * (number > 0) + text.encode())
    return digest.hexdigest()


def is_known(passage: Source, digests: Collection[str]) -> bool:
    """Return whether `digests` (kcard.text.passage_digest) contain the passage, or each of its statements."""
    return passage_digest(passage.text) in digests or all(
        passage_digest(part.text) in digests for part in statements([passage])
    )


def read_corpus(
    path: str | Path, field: str | None = None, *, whole: bool = False, readers: int | None = 1
) -> Corpus:
    """Read a file, every file under a folder, or a data set.

    .txt: a list of facts, notes by paragraph, or a document by its layout; .md, .rst, .html, .pdf, .docx and the other
    documents of docs/corpora.md: paragraphs, lists, code and tables under their headings; .jsonl and .ndjson: objects
    with `text` (or passage, content, fact, ...); .csv and .parquet: rows with a column of text; .tsv: triples; a folder
    that datasets saved; hf:owner/name[:split]. Any of the files may be compressed (.gz). `field` names the column or
    key that holds the text, or is a sentence with {columns} in it. `whole`: with the documents that passages are cut
    from. `readers`: worker processes, None for one per core; the result does not depend on their number.

    In a folder, hidden files are ignored; unreadable, unsupported and empty files, licences and change logs are skipped
    and listed. Raises CorpusError, naming file and line, for what is missing, empty or
    can't be read.
    """
    draft = _CorpusBuilder(field, whole, readers or cores())
    spec = str(path)
    if spec.startswith(data_sets.PREFIX):
        local = Path(spec.removeprefix(data_sets.PREFIX)).expanduser()
        if spec == data_sets.PREFIX or not local.exists():
            named = Document(Path(spec), spec, field)
            draft.take(named, digest_blocks(named, data_sets.read_huggingface(named), prose=False))
            return draft.corpus(Path(data_sets.repository(spec)))
        path = local
    path = Path(path).expanduser()
    if path.is_dir() and data_sets.is_saved(path):
        saved = Document(path, path.name, field)
        draft.take(saved, digest_blocks(saved, data_sets.read_saved(saved), prose=False))
    else:
        _read_files(path, draft)
    return draft.corpus(path)


def _read_files(path: Path, draft: _CorpusBuilder) -> None:
    """Read a file, or every file below a folder, into the draft; small ones in several processes."""
    files, draft.skipped = files_of(path)
    formats = [format_of(file, named=file == path) for file, _ in files]
    if draft.column is not None and not any(kind is not None and kind.columns for kind in formats):
        kinds = ", ".join(suffix for suffix, kind in FORMATS.items() if kind.columns)
        raise CorpusError(f"field {draft.column!r} names a column, but {path} has none: use it with {kinds}")
    if path.is_file():
        _read_one(path, files[0][1], draft)
        return

    def is_small(row: tuple[Path, str]) -> bool:
        """Return whether a file may be read whole by one of several processes."""
        size = row[0].stat().st_size
        if row[0].suffix == GZIP:
            size *= 10
        return draft.readers > 1 and size < MAX_WHOLE_FILE_BYTES

    for small, group in groupby(files, key=is_small):
        if small:
            rows = ((file, name, draft.column) for file, name in group)
            batches = batched_by_size(rows, lambda row: row[0].stat().st_size, FILES_AT_ONCE_BYTES)
            for batch in parallel_map(read_files, batches, draft.readers, threads=True):
                for read in batch:
                    if read.error is not None:
                        draft.skipped.append((read.name, _reason(read.error, read.file, read.name)))
                    else:
                        document = Document(read.file, read.name, draft.column, read.skips)
                        draft.take(document, read.blocks, prose=read.prose)
            continue
        for file, name in group:
            try:
                _read_one(file, name, draft)
            except CorpusError as error:
                draft.skipped.append((name, _reason(error, file, name)))
    end_idle_processes(keep=1)


def _read_one(file: Path, name: str, draft: _CorpusBuilder) -> None:
    """Read a file block by block, so that it may be larger than memory."""
    kind = format_of(file, named=True)
    assert kind is not None
    with plain_file(file) as plain:
        document = Document(plain, name, draft.column)
        draft.take(document, read_digested(document, kind), prose=kind.prose)


def _reason(error: CorpusError, file: Path, name: str) -> str:
    """Return the error's message without the file's name, which is listed before it."""
    message = str(error).removeprefix(str(file)).removeprefix(name)
    return re.sub(r"^:(\d+) ", r"line \1 ", message).strip()


# A local corpus as evidence, in every format that a card can be trained on: the entry point `corpus` of evidence.

READING_VERSION = 11  # version of how files are read; increase it with every change


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a corpus as training reads them, in passages."""

    root: Path

    @property
    def version(self) -> str:
        return f"{__version__} {READING_VERSION}"

    def list(self) -> tuple[Sequence[tuple[Path, str]], Sequence[tuple[str, str]]]:
        """See Files. Raises CorpusError."""
        listed, skipped = files_of(self.root)
        return listed, skipped

    def beside(self, file: Path) -> Sequence[Path]:
        """Return the templates that turn a file of triples into sentences."""
        templates = file.with_name(TEMPLATE_FILE)
        if file.suffix.lower() != ".tsv" or not templates.is_file():
            return []
        return [templates]

    def read(self, file: Path, name: str) -> Iterator[Source]:
        """See Files; names of columns are found as in training."""
        kind = format_of(file, named=file == self.root)
        if kind is not None:
            with plain_file(file) as plain:
                yield from passages(read_blocks(Document(plain, name), kind), name)


def open_corpus(path: str) -> "LocalCorpus":
    """Open a file or folder as evidence; its index is in evidence/ under the kcard home.

    Raises CorpusError if it is missing, empty or can't be read.
    """
    from kcard.selectors.local_corpus import LocalCorpus

    root = Path(path).expanduser().absolute()
    if not root.exists():
        raise CorpusError(f"evidence {path} does not exist: name a file or folder of documents or tables")
    name = root.name or "corpus"
    place = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return LocalCorpus.open(
        CorpusFiles(root), settings().home / "evidence" / f"{slug or 'corpus'}-{place}", name
    )
