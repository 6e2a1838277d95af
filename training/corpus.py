"""A corpus: files of text become passages, each with the file and line that it came from.

This file knows no model and no format (kcard.training.corpora has those). Passages are kept on disk while they are
read and used, so that a corpus may be larger than memory.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.boilerplate import why_boilerplate
from kcard.training.corpora import huggingface
from kcard.training.corpora.document import Document, Losses
from kcard.training.corpora.files import files_of
from kcard.training.corpora.formats import FORMATS, require
from kcard.training.duplicates import Fingerprints
from kcard.training.lazy import Lazy
from kcard.training.passages import cut
from kcard.training.spool import Spool

__all__ = ["Corpus", "read_corpus"]

ALIKE = 5  # skipped files that share a reason are listed up to here


@dataclass(frozen=True)
class Corpus:
    """Distinct passages in a stable order, read from disk as they are asked for.

    `sha256` is over their texts; `skipped`: (file, reason). `duplicates` counts passages that were there before,
    `dropped` everything else that was not taken, by reason. `notes` are sentences on how files were read.
    """

    path: Path
    passages: Sequence[Source]
    sha256: str
    skipped: tuple[tuple[str, str], ...] = ()
    duplicates: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> Sequence[str]:
        return Lazy(len(self.passages), lambda index: self.passages[index].text)

    def told(self) -> list[str]:
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
    """A corpus while it is read."""

    column: str | None
    spool: Spool = field(default_factory=Spool)
    prints: Fingerprints = field(default_factory=Fingerprints)
    losses: Losses = field(default_factory=Losses)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    prose: int = 0

    def take(self, document: Document, blocks: Iterable[Source], *, prose: bool = False) -> None:
        """Add the document's passages: all of them, or after a CorpusError none."""
        before = len(self.spool)
        try:
            for block in blocks:
                for text in cut(block.text):
                    self._add(Source(text, block.file, block.line), document, prose)
        except CorpusError:
            self.spool.truncate(before)
            self.prints.truncate(before)
            raise
        self.losses.add(document.losses)
        self.prose += prose
        if len(self.spool) == before:
            self.skipped.append((document.name, "no text in it"))

    def _add(self, passage: Source, document: Document, prose: bool) -> None:
        if reason := why_boilerplate(passage.text):
            document.losses.dropped[reason] += 1
            return
        self.prints.append(passage.text, self.prose, prose=prose)
        row = {"text": passage.text, "file": passage.file, "line": passage.line}
        self.spool.append(json.dumps(row, ensure_ascii=False).encode())

    def corpus(self, path: Path) -> Corpus:
        if not len(self.spool):
            raise CorpusError(f"{path} holds no text{_why(self)}: give it at least one passage")
        marks = self.prints.marks(self.prose)
        self.spool.keep(marks == 0)
        passages = Lazy(len(self.spool), self._passage)
        if repeated := int((marks == 2).sum()):
            self.losses.dropped["lines that most files repeat"] = repeated
        digest = hashlib.sha256()
        for number, passage in enumerate(passages):
            digest.update(b"\n" * (number > 0) + passage.text.encode())
        counts = {reason: count for reason, count in self.losses.dropped.items() if count}
        duplicates = int((marks == 1).sum())
        return Corpus(
            path,
            passages,
            digest.hexdigest(),
            tuple(self.skipped),
            duplicates,
            counts,
            tuple(self.losses.notes),
        )

    def _passage(self, index: int) -> Source:
        return Source(**json.loads(self.spool[index]))


def read_corpus(path: str | Path, field: str | None = None) -> Corpus:
    """Read a file, every file under a folder, or a data set.

    .txt: one statement a line, or prose; .md: paragraphs and list items without markup; .jsonl: objects with `text`
    (or passage, content, fact, ...); .csv and .parquet: rows with a column of text; .tsv: triples; .pdf, .html and
    .docx (with kcard[documents]); a folder that datasets saved; hf:owner/name[:split]. `field` names the column or
    key that holds the text, or is a sentence with {columns} in it.

    Lines above 60 words are cut on sentence borders. In a folder, hidden files are passed over, and files that can't
    be read, of other kinds, without text or about the folder (README, LICENSE) are skipped and listed. Raises
    CorpusError, naming file and line, for what is missing, empty or can't be read, and MissingExtra.
    """
    draft = _Draft(field)
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
    require(file for file, _ in files)
    if draft.column is not None and not any(FORMATS[file.suffix.lower()].columns for file, _ in files):
        kinds = ", ".join(suffix for suffix, kind in FORMATS.items() if kind.columns)
        raise CorpusError(f"field {draft.column!r} names a column, and {path} has none: it is for {kinds}")
    for file, name in files:
        kind = FORMATS[file.suffix.lower()]
        document = Document(file, name, draft.column)
        try:
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
