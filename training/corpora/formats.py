"""The formats of corpora: what reads each. A new format is one row of FORMATS.

A reader takes a Document and yields Blocks, each with the place where it begins: a line, a table's row, a PDF's page,
the number of a block in a Word document. It raises CorpusError for a file that it can't read. Readers are
named, not imported, so that nothing heavy is loaded for a format that is not there.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from kcard.training.corpora.document import Block, Document

__all__ = ["FORMATS", "Format", "format_of", "known"]


@dataclass(frozen=True)
class Format:
    """What reads a format.

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


def _format(module: str, **options: bool) -> Format:
    return Format(f"kcard.training.corpora.{module}:read", **options)


_PLAIN = _format("plain", prose=True)
_MARKDOWN = _format("markdown", prose=True)
_WEB = _format("web", prose=True)
_MAN = _format("man", prose=True)

FORMATS: Mapping[str, Format] = {
    ".txt": _PLAIN,
    ".text": _PLAIN,
    ".md": _MARKDOWN,
    ".markdown": _MARKDOWN,
    ".rst": _format("rst", prose=True),
    ".html": _WEB,
    ".htm": _WEB,
    ".xhtml": _WEB,
    ".pdf": _format("pdf", prose=True),
    ".docx": _format("word", prose=True),
    ".info": _format("info", prose=True),
    **{f".{section}": _MAN for section in range(1, 9)},
    ".jsonl": _format("jsonl", columns=True),
    ".csv": _format("delimited", columns=True),
    ".tsv": _format("triples", columns=True),
    ".parquet": _format("parquet", columns=True),
}
GZIP = ".gz"
LANGUAGE = re.compile(  # index.html.en
    r"\.(?:ar|bg|ca|cs|da|de|el|en|eo|es|et|eu|fa|fi|fr|gl|he|hi|hr|hu|id|is|it|ja|ko|lt|lv|nb|nl|nn|no|pl|pt|ro|ru"
    r"|sk|sl|sr|sv|th|tr|uk|vi|zh)(?:[-_][A-Za-z]{2,4})?$"
)
PART = re.compile(r"-\d+$")  # manual.info-1
NAMELESS = re.compile(r"(?:readme|news|faq|todo|hacking|install)(?:\.debian)?$", re.IGNORECASE)
UNSUFFIXED = re.compile(r"[^.]+(?:\.debian)?", re.IGNORECASE)


def format_of(path: Path, *, named: bool = False) -> Format | None:
    """The format of a file by its name, compressed by gzip or not; None where the name tells none.

    `named`: the user named this very file. Without a suffix it is plain text then, such as LICENSE or GPL-3.
    """
    name = path.name.removesuffix(GZIP)
    for candidate in (name, LANGUAGE.sub("", name), PART.sub("", name)):
        if found := FORMATS.get(Path(candidate).suffix.lower()):
            return found
    return _PLAIN if NAMELESS.match(name) or (named and UNSUFFIXED.fullmatch(name)) else None


def known() -> str:
    """The suffixes, as a sentence names them."""
    words = [suffix for suffix in FORMATS if not suffix[1:].isdigit()]
    return f"{', '.join(words)}, man pages (.1 to .8), each also as {GZIP}"
