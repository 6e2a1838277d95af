"""Documents of a corpus, and the reader of each format.

A reader takes a Document and yields Blocks, each with the place where it begins: a line, a table's row, a PDF's page,
the number of a block in a Word document. It raises CorpusError for a file that it can't read. Readers are registered
by name and imported on first use, since some are heavy.
"""

import gzip
import os
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal

from kcard.errors import CorpusError

# Files compressed by gzip are decompressed into a temporary file.

MAX_UNPACKED_BYTES = 2_000_000_000  # bytes
CHUNK_BYTES = 1 << 20


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """Yield the file itself or, where its name ends in .gz, a temporary file with its decompressed content.

    Raises CorpusError if it can't be decompressed, holds more than 2 GB, or the disk is full.
    """
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kcard-") as folder:
        plain = Path(folder) / path.stem
        try:
            with gzip.open(path) as packed, plain.open("wb") as file:
                for part in iter(lambda: packed.read(CHUNK_BYTES), b""):
                    file.write(part)
                    if file.tell() > MAX_UNPACKED_BYTES:
                        raise CorpusError(
                            f"{path} holds more than {MAX_UNPACKED_BYTES // 10**9} GB: decompress and split it"
                        )
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(f"{path} can't be decompressed ({error}): is it damaged?") from error
        except OSError as error:
            room = shutil.disk_usage(plain.parent).free
            raise CorpusError(
                f"{path} can't be decompressed ({error.strerror or error}; {room // 10**6} MB are free in "
                f"{plain.parent})"
            ) from error
        try:
            yield plain
        except CorpusError as error:
            raise CorpusError(str(error).replace(str(plain), str(path))) from error


# The input and output of a reader: a document, its blocks, and what was skipped.

Kind = Literal["heading", "term", "text", "item", "code", "statement"]


CONTINUED_LEVEL = 1  # the level of a text that goes on with the paragraph of the block before


@dataclass(frozen=True)
class Block:
    """One piece of a document, in the order of the document.

    kind     heading: the title of what follows; `level` 1 is the highest. term: what the blocks after it define, up to
             the next term of its level; without text it ends a list of definitions. text: a paragraph, or a line that
             goes on with the paragraph of the block before (`level` CONTINUED_LEVEL). item: an entry of a list, a row
             of a table. code: lines that keep their breaks. statement: a text that stands alone, such as a line of a
             list of facts
    line     where it begins, counted from 1: a line, a row, a page or a paragraph, depending on the format
    file     the text's source, if it is not the document itself (when a card's passages are read again)
    section  its headings, likewise
    lines    where the text continues in other lines of the document: (words of the text before that, line number)
    """

    kind: Kind
    text: str
    line: int
    level: int = 0
    file: str | None = None
    section: str | None = None
    lines: tuple[tuple[int, int], ...] = ()


@dataclass
class SkipReport:
    """Counts of lines, rows and words that were skipped, by reason: nothing is lost without being counted here.

    `notes` are sentences for the user.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, other: "SkipReport") -> None:
        self.dropped.update(other.dropped)
        self.notes += other.notes


@dataclass(frozen=True)
class Document:
    """One file of a corpus, or one data set.

    `name` is how passages refer to it; `column` is the user's choice: a column, or a sentence with {columns} in it.
    """

    path: Path
    name: str
    column: str | None = None
    skips: SkipReport = field(default_factory=SkipReport)

    def content(self) -> bytes:
        with reading(self.path):
            return self.path.read_bytes()

    def statement(self, text: str, line: int) -> Block:
        return Block("statement", text, line)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert the OSError of a file that can't be opened into a CorpusError."""
    try:
        yield
    except OSError as error:
        raise CorpusError(f"{path} can't be read ({error.strerror}): check its permissions") from error


@dataclass(frozen=True)
class Format:
    """A file format and its reader.

    reader   module:function
    columns  whether a column may be chosen
    prose    whether its lines can be boilerplate that other files repeat; a table's rows can't
    """

    reader: str
    columns: bool = False
    prose: bool = False

    def read(self, document: Document) -> Iterator[Block]:
        module, function = self.reader.split(":")
        reader: Callable[[Document], Iterator[Block]] = getattr(import_module(module), function)
        return reader(document)


def _format(reader: str, **options: bool) -> Format:
    return Format(f"kcard.training.readers.{reader}", **options)


_PLAIN_TEXT = _format("text:read_plain", prose=True)
_MARKDOWN = _format("markup:read_markdown", prose=True)
_WEB = _format("web:read_web", prose=True)
_MAN = _format("manuals:read_man", prose=True)
_OPENDOCUMENT = _format("opendocument:read_opendocument", prose=True)
_ASCIIDOC = _format("asciidoc:read_asciidoc", prose=True)
_JSONL = _format("tables:read_jsonl", columns=True)

FORMATS: Mapping[str, Format] = {
    ".txt": _PLAIN_TEXT,
    ".text": _PLAIN_TEXT,
    ".md": _MARKDOWN,
    ".markdown": _MARKDOWN,
    ".rst": _format("rst:read_rst", prose=True),
    ".html": _WEB,
    ".htm": _WEB,
    ".xhtml": _WEB,
    ".pdf": _format("pdf:read", prose=True),
    ".docx": _format("word:read_word", prose=True),
    ".odt": _OPENDOCUMENT,
    ".rtf": _format("rtf:read_rtf", prose=True),
    ".pptx": _format("slides:read_slides", prose=True),
    ".odp": _OPENDOCUMENT,
    ".xlsx": _format("sheets:read_sheets"),
    ".ods": _OPENDOCUMENT,
    ".epub": _format("composites:read_book", prose=True),
    ".eml": _format("composites:read_mail", prose=True),
    ".ipynb": _format("composites:read_notebook", prose=True),
    ".tex": _format("latex:read_latex", prose=True),
    ".adoc": _ASCIIDOC,
    ".asciidoc": _ASCIIDOC,
    ".org": _format("org:read_org", prose=True),
    ".info": _format("manuals:read_info", prose=True),
    **{f".{section}": _MAN for section in range(1, 9)},
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".csv": _format("tables:read_delimited", columns=True),
    ".tsv": _format("triples:read", columns=True),
    ".parquet": _format("tables:read_parquet", columns=True),
}
GZIP = ".gz"
LANGUAGE = re.compile(  # index.html.en
    r"\.(?:ar|bg|ca|cs|da|de|el|en|eo|es|et|eu|fa|fi|fr|gl|he|hi|hr|hu|id|is|it|ja|ko|lt|lv|nb|nl|nn|no|pl|pt|ro|ru"
    r"|sk|sl|sr|sv|th|tr|uk|vi|zh)(?:[-_][A-Za-z]{2,4})?$"
)
NUMBERED_PART = re.compile(r"-\d+$")  # manual.info-1
NAMELESS = re.compile(r"(?:readme|news|faq|todo|hacking|install)(?:\.debian)?$", re.IGNORECASE)
BARE_NAME = re.compile(r"[^.]+(?:\.debian)?", re.IGNORECASE)


def format_of(path: Path, *, named: bool = False) -> Format | None:
    """Return the format of a file by its name, compressed by gzip or not; None if unknown.

    `named`: the user named this very file. Without a suffix, it is then plain text, such as LICENSE or GPL-3.
    """
    name = path.name.removesuffix(GZIP)
    for candidate in (name, LANGUAGE.sub("", name), NUMBERED_PART.sub("", name)):
        suffix = Path(candidate).suffix.lower()
        if suffix in FORMATS:
            return FORMATS[suffix]
    if NAMELESS.match(name) or (named and BARE_NAME.fullmatch(name)):
        return _PLAIN_TEXT
    return None


def known_formats() -> str:
    """List the known suffixes for a message."""
    words = [suffix for suffix in FORMATS if not suffix[1:].isdigit()]
    return f"{', '.join(words)}, man pages (.1 to .8), each also as {GZIP}"


# Which files of a folder are read, and why the others are not.

TEMPLATE_FILE = (
    "templates.tsv"  # templates for the triples of the same folder (kcard.training.readers.triples)
)
LEGAL = re.compile(r"(licen[cs]e|copying|copyright|notice)(\.txt|\.md|\.rst)?(\.gz)?", re.IGNORECASE)
CHANGES = re.compile(r"(changelog|changes)(\.debian)?(\.[a-z0-9]+)?(\.txt|\.md|\.rst)?(\.gz)?", re.IGNORECASE)

# Reasons to skip a file, and the kinds by which they are counted.
BROKEN_LINK = "a broken link"
FOLDER_LINK = "a link to a folder, not followed"
OUTSIDE_LINK = "a link that leads out of the corpus, not followed; copy the file to read it"
LICENCE = "a licence; name it to read it"
CHANGE_LOG = "a change log; name it to read it"
UNKNOWN_FORMAT = "not one of "
SKIPPED_KINDS = {
    BROKEN_LINK: "links",
    FOLDER_LINK: "links",
    OUTSIDE_LINK: "links",
    LICENCE: "licences",
    CHANGE_LOG: "change logs",
}

Skipped = list[tuple[str, str]]


def files_of(path: Path) -> tuple[list[tuple[Path, str]], Skipped]:
    """List the files to read, (file, its name within the corpus) sorted by name, and those to skip, (name, reason).

    Hidden files and folders are ignored without mention; links to folders, and to files elsewhere, are not followed, so
    that a corpus from elsewhere names no files of this machine. Raises CorpusError if
    `path` is missing, is neither a file nor a folder, or has an unsupported format.
    """
    with reading(path):
        if not path.exists():
            raise CorpusError(
                f"{path} does not exist: name a file or folder of documents or tables, or hf:owner/name"
            )
        if path.is_dir():
            return _walk(path)
    if not path.is_file():
        raise CorpusError(f"{path} is neither a file nor a folder: kcard reads {known_formats()}")
    if format_of(path, named=True) is None:
        raise CorpusError(f"{path} is a {path.suffix or 'hidden'} file: kcard reads {known_formats()}")
    return [(path, _readable(path.name))], []


def _walk(root: Path) -> tuple[list[tuple[Path, str]], Skipped]:
    """List the files below a folder, see files_of."""
    files: list[Path] = []
    skipped: Skipped = []
    inside = root.resolve()

    def note_error(error: OSError) -> None:
        skipped.append((_name(Path(error.filename), root), f"can't be read ({error.strerror})"))

    for folder, folders, names in os.walk(root, onerror=note_error):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        skipped += [(_name(here / name, root), FOLDER_LINK) for name in folders if (here / name).is_symlink()]
        for name in sorted(name for name in names if not name.startswith(".")):
            reason = _reason_to_skip(here / name, inside)
            if reason is None:
                files.append(here / name)
            elif reason:
                skipped.append((_name(here / name, root), reason))
    return [(file, _name(file, root)) for file in sorted(files)], sorted(skipped)


def _reason_to_skip(file: Path, folder: Path) -> str | None:
    """Return why a file of a folder is not read: None for one that is, "" for the templates of another file."""
    if file.is_symlink() and not file.exists():
        return BROKEN_LINK
    if not file.is_file():
        return "not a regular file"
    if leads_out(file, folder):
        return OUTSIDE_LINK
    if file.name == TEMPLATE_FILE:
        return ""
    if LEGAL.fullmatch(file.name):
        return LICENCE
    if CHANGES.fullmatch(file.name):
        return CHANGE_LOG
    if format_of(file) is None:
        return f"{UNKNOWN_FORMAT}{known_formats()}"
    return None


def leads_out(file: Path, folder: Path) -> bool:
    """Return whether a file is a link that leads out of a folder, which has no links in its path."""
    return file.is_symlink() and not file.resolve().is_relative_to(folder)


def _name(file: Path, root: Path) -> str:
    return _readable(file.relative_to(root).as_posix())


def _readable(name: str) -> str:
    """Return the name as valid UTF-8: file systems allow other bytes."""
    return os.fsencode(name).decode("utf-8", "replace")
