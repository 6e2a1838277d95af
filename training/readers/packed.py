"""Documents that are XML in a zip, such as those of office programs and e-books.

Here are their parts, the relations between these, and their metadata.
"""

import posixpath
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile, ZipFile

from kcard.errors import CorpusError
from kcard.training.readers.files import Block, Document
from kcard.training.readers.markup import front_fields

TEXT_PARTS = (".xml", ".rels", ".opf", ".xhtml", ".html", ".htm")
MAX_TEXT_BYTES = 100_000_000  # that these parts have unpacked
# What zipfile, expat, lxml and mammoth raise: RuntimeError for a part with a password, SyntaxError for no XML.
PARSER_ERRORS = (
    BadZipFile, zlib.error, ExpatError, SyntaxError, LookupError, ValueError, OSError, EOFError, RuntimeError,
    AttributeError,
)  # fmt: skip
RELATION_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
# What the fields of front matter are called here.
PROPERTIES = {
    "title": "title",
    "initial-creator": "author",
    "creator": "author",
    "publisher": "publisher",
    "created": "created",
    "creation-date": "created",
    "modified": "lastmod",
    "date": "date",
    "description": "description",
    "keywords": "keywords",
    "keyword": "keywords",
}
# What programs write where the author wrote nothing; the metadata of a template say nothing.
DEFAULTS = {"word document", "powerpoint presentation", "microsoft office user", "unknown", "user"}
TEMPLATE_AUTHORS = {"python-docx", "openpyxl"}


@dataclass(frozen=True)
class PackedDocument:
    """The parts of a document, by their names; `noun` is what it should be, with its article, for messages."""

    archive: ZipFile
    noun: str

    def read(self, name: str) -> bytes | None:
        """Return a part; None if it is missing."""
        try:
            return self.archive.read(name)
        except KeyError:
            return None

    def tree(self, name: str) -> Any:
        """Return the root of a part in XML; None if it is missing. Entities, and what lies elsewhere, are not read."""
        data = self.read(name)
        if data is None:
            return None
        return parse_xml(data)

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return what a part refers to: by id, the last word of its type and the name of the other part."""
        folder, _, file = name.rpartition("/")
        root = self.tree(f"{folder}/_rels/{file}.rels")
        targets: dict[str, tuple[str, str]] = {}
        if root is None:
            return targets
        for relation in root:
            kind = relation.get("Type", "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target", "")))
            targets[relation.get("Id", "")] = (kind, target.lstrip("/"))
        return targets

    def properties(self, name: str, line: int = 1) -> Iterator[Block]:
        """Yield the title of the document as a heading, and its author, dates and the like as lines, from the part with
        its metadata."""
        root = self.tree(name)
        if root is not None:
            yield from front_fields(property_values(root), line)


def property_values(root: Any) -> dict[str, str]:
    """Return metadata by the names of the fields of front matter."""
    values: dict[str, list[str]] = {}
    for element in root.iter("{*}*"):
        name = PROPERTIES.get(local_name(element))
        text = " ".join((element.text or "").split())
        if name == "author" and text in TEMPLATE_AUTHORS:
            return {}
        if name and text and text.lower() not in DEFAULTS and not text.startswith("generated "):
            day, is_moment, _ = text.partition("T")
            if name in ("created", "lastmod", "date") and is_moment:
                text = day
            values.setdefault(name, []).append(text)
    if local_name(root) == "document-meta":  # OpenDocument's, whose date is that of the last change
        values["lastmod"] = values.pop("date", [])
    # The last editor is no author, where the first one is known.
    if root.find(".//{*}initial-creator") is not None:
        values["author"] = [element.text or "" for element in root.iter("{*}initial-creator")]
    return {name: ", ".join(dict.fromkeys(texts)) for name, texts in values.items() if texts}


@contextmanager
def unpack(document: Document, noun: str) -> Iterator[PackedDocument]:
    """Open a document. Raises CorpusError if it is no such one, is damaged or unpacks to too much; within the context,
    also for the errors of libraries that did not expect what they read."""
    try:
        with document.path.open("rb") as stream, ZipFile(stream) as archive:
            size = sum(part.file_size for part in archive.infolist() if part.filename.endswith(TEXT_PARTS))
            if size > MAX_TEXT_BYTES:
                raise CorpusError(
                    f"{document.path} unpacks to {size // 10**6} MB of text and styles: split it or leave it out"
                )
            yield PackedDocument(archive, noun)
    except PermissionError as error:
        raise CorpusError(
            f"{document.path} can't be read ({error.strerror}): check its permissions"
        ) from error
    except RecursionError:
        raise
    except PARSER_ERRORS as error:
        raise CorpusError(f"{document.path} is not {noun}, or a damaged one") from error


def parse_xml(data: bytes) -> Any:
    """Return the root of XML, without entities and DTDs. Raises lxml's XMLSyntaxError, a SyntaxError."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(data, parser)


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; "" for a comment or an instruction."""
    if not isinstance(element.tag, str):
        return ""
    return element.tag.rpartition("}")[2]


def count_words(element: Any, path: str) -> int:
    """Count the words in the elements of a name, such as "{*}t", below an element."""
    return sum(len((text.text or "").split()) for text in element.iter(path))


def attribute(element: Any, name: str) -> str:
    """Return an attribute by its name, in whatever namespace; "" if it is missing."""
    own = element.get(name)
    if own is not None:
        return str(own)
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def is_on(value: str) -> bool:
    """Return whether an attribute switches something on."""
    return value.lower() in ("1", "true", "on")
