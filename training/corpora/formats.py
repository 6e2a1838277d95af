"""The formats of corpora: what reads each. A new format is one row of FORMATS.

A reader takes a Document and yields Sources: blocks of text, each with the line it begins on (a table's row, a
PDF's page, a web page's or a Word document's paragraph). It raises CorpusError for a file that it can't read.
Readers are named, not imported, so that nothing heavy is loaded for a format that is not there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kcard.answer import Source
from kcard.errors import MissingExtra
from kcard.training.corpora.document import Document

__all__ = ["FORMATS", "Format", "known", "require"]


@dataclass(frozen=True)
class Format:
    """`reader`: module:function. `package`: what it imports from the extra `documents`, if anything.

    `columns`: whether a column may be chosen. `prose`: whether its lines can be boilerplate that other files
    repeat; a table's rows can't.
    """

    reader: str
    package: str | None = None
    columns: bool = False
    prose: bool = False

    def read(self, document: Document) -> Iterator[Source]:
        module, function = self.reader.split(":")
        reader: Callable[[Document], Iterator[Source]] = getattr(import_module(module), function)
        return reader(document)


_HERE = "kcard.training.corpora"
_WEB = Format(f"{_HERE}.web:read", package="trafilatura", prose=True)

FORMATS: Mapping[str, Format] = {
    ".txt": Format(f"{_HERE}.plain:read", prose=True),
    ".md": Format(f"{_HERE}.markdown:read", prose=True),
    ".jsonl": Format(f"{_HERE}.jsonl:read", columns=True),
    ".csv": Format(f"{_HERE}.delimited:read", columns=True),
    ".tsv": Format(f"{_HERE}.triples:read", columns=True),
    ".parquet": Format(f"{_HERE}.parquet:read", columns=True),
    ".pdf": Format(f"{_HERE}.pdf:read", package="pypdf", prose=True),
    ".html": _WEB,
    ".htm": _WEB,
    ".docx": Format(f"{_HERE}.word:read", package="docx", prose=True),
}


def known() -> str:
    """The suffixes, as a sentence names them."""
    return ", ".join(FORMATS)


def require(files: Iterable[Path]) -> None:
    """MissingExtra where a package that one of the files needs can't be imported."""
    needed: dict[str, Path] = {}
    for file in files:
        package = FORMATS[file.suffix.lower()].package
        if package:
            needed.setdefault(package, file)
    for package, file in needed.items():
        try:
            _: Any = import_module(package)
        except ImportError as error:
            raise MissingExtra(
                f"{file.name} can't be read without {package} ({_first_line(error)}): "
                "pip install 'kcard[documents]'"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
