"""Documents that consist of web pages, Markdown and plain text: e-mails (.eml), e-books (.epub) and notebooks (.ipynb).

A passage's line is the number of the part: of the chapter or of the cell; the lines of an e-mail are those of its text.
"""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from email import message_from_binary_file, policy
from email.errors import MessageError
from email.message import EmailMessage, Message
from itertools import islice
from typing import Any
from urllib.parse import unquote

from kcard.errors import CorpusError
from kcard.io import parse
from kcard.training.readers import layout
from kcard.training.readers.encodings import decode_page
from kcard.training.readers.files import Block, Document, reading
from kcard.training.readers.markup import HIDDEN_WORDS, markdown_blocks
from kcard.training.readers.packed import unpack
from kcard.training.readers.web import web_blocks

# E-mails.

FIELDS = ("From", "To", "Cc", "Date")
MAX_FIELD_CHARACTERS = 500
MAX_PARTS = 1000


def read_mail(document: Document) -> Iterator[Block]:
    """Read the subject, who wrote to whom and when, and the text; where it comes in several forms, the last.
    Attachments that are not text are counted."""
    with reading(document.path), document.path.open("rb") as stream:
        try:
            message = message_from_binary_file(stream, policy=policy.default)
        except (MessageError, ValueError, RecursionError) as error:
            raise CorpusError(f"{document.path} is not an e-mail (.eml), or a damaged one") from error
    if not any(name in message for name in (*FIELDS, "Subject", "Message-ID", "Received")):
        raise CorpusError(f"{document.path} is not an e-mail (.eml), or a damaged one")
    yield from message_blocks(message, document)


def message_blocks(message: Message, document: Document) -> Iterator[Block]:
    yield Block("heading", header_of(message, "Subject"), 1, 1)
    for name in FIELDS:
        value = header_of(message, name)
        if value:
            yield Block("text", f"{name}: {value}", 1)
    for block in body_blocks(message, document):
        yield deeper(block)


def deeper(block: Block) -> Block:
    """Return a block below the title of the whole document."""
    if block.kind != "heading":
        return block
    return replace(block, level=block.level + 1)


def body_blocks(message: Message, document: Document) -> Iterator[Block]:
    for part in shown_parts(message):
        kind = part.get_content_type()
        if kind == "message/rfc822":
            for inner in parts_of(part):
                yield from message_blocks(inner, document)
        elif kind == "text/html":
            data = part.get_payload(decode=True)
            page = text_of(data, part.get_content_charset())
            if page.strip():
                yield from web_blocks(page, document.path, document.skips)
        elif kind == "text/plain":
            text = text_of(part.get_payload(decode=True), part.get_content_charset() or "utf-8")
            yield from layout.blocks(plain_lines(text))
        else:
            document.skips.dropped["attachments"] += 1


def header_of(message: Message, name: str) -> str:
    """Return a header in words; "" if it is missing or malformed."""
    try:
        value = str(message.get(name, ""))
    except (MessageError, ValueError, IndexError, AttributeError, TypeError):  # all that its parser raises
        return ""
    return " ".join(value.split())[:MAX_FIELD_CHARACTERS]


def shown_parts(message: Message) -> Iterator[Any]:
    """Yield the parts that are shown, in order; of alternatives, only the last one that is text."""
    if not message.is_multipart() or message.get_content_type() == "message/rfc822":
        yield message
        return
    parts = parts_of(message)
    if message.get_content_type() != "multipart/alternative":
        for part in parts[:MAX_PARTS]:
            yield from shown_parts(part)
        return
    texts = [part for part in parts if part.get_content_maintype() in ("text", "multipart")]
    readable = [part for part in texts if part.get_content_type() != "text/calendar"]
    for part in (readable or texts)[-1:]:
        yield from shown_parts(part)


def parts_of(message: Message) -> list[Any]:
    if not isinstance(message, EmailMessage):
        return []
    return list(message.iter_parts())


def text_of(data: Any, encoding: str | None) -> str:
    """Decode a part by the encoding that it names, else as browsers do."""
    if not isinstance(data, bytes):
        return ""
    if encoding is None:
        return decode_page(data)
    try:
        return data.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        return decode_page(data)


def plain_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of an e-mail with their numbers, without quotation marks (>), up to the signature."""
    for number, line in enumerate(text.splitlines(), 1):
        if line == "-- ":
            return
        if line.startswith(">"):
            line = line.lstrip("> ")
        yield number, line


# E-books.

WEB_PAGES = ("application/xhtml+xml", "text/html")


def read_book(document: Document) -> Iterator[Block]:
    """Read the chapters of a book in their order, numbered from 1, without its table of contents."""
    with unpack(document, "an e-book (.epub)") as package:
        name = ""
        container = package.tree("META-INF/container.xml")
        if container is not None:
            for file in islice(container.iter("{*}rootfile"), 1):
                name = file.get("full-path", "")
        book = package.tree(name)
        if book is None:
            raise KeyError(name)
        yield from package.properties(name)
        has_title = book.find("{*}metadata/{*}title") is not None
        for number, chapter in enumerate(chapters_of(book), 1):
            data = package.read(posixpath.normpath(posixpath.join(posixpath.dirname(name), chapter)))
            if data is None:
                document.skips.dropped["missing chapters"] += 1
                continue
            for block in web_blocks(data, document.path, document.skips):
                if has_title:
                    block = deeper(block)
                yield replace(block, line=number, lines=())


def chapters_of(book: Any) -> Iterator[str]:
    """Yield the names of the chapters' files, relative to that of the book."""
    items = {item.get("id"): item for item in book.iterfind("{*}manifest/{*}item")}
    for reference in book.iterfind("{*}spine/{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is None or item.get("media-type") not in WEB_PAGES:
            continue
        if "nav" not in item.get("properties", "").split():
            yield unquote(item.get("href", "").partition("#")[0])


# Notebooks.

REMOVED_TAGS = {"remove-cell", "remove_cell", "hide-cell", "hide_cell"}
REMOVED_INPUT_TAGS = {"remove-input", "remove_input", "hide-input", "hide_input"}
REMOVED_OUTPUT_TAGS = {"remove-output", "remove_output", "hide-output", "hide_output"}
MAX_OUTPUT_CHARACTERS = 20_000  # of a cell


def read_notebook(document: Document) -> Iterator[Block]:
    """Read the cells, numbered from 1: Markdown, code and the texts and tables that it printed."""
    try:
        notebook = parse(document.content().decode("utf-8-sig"))
        cells = notebook["cells"]
        if not isinstance(cells, list):
            raise TypeError("no list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorpusError(f"{document.path} is not a notebook (.ipynb), or a damaged one") from error
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict):
            for block in cell_blocks(cell, document):
                yield replace(block, line=number, lines=())


def cell_blocks(cell: Mapping[str, Any], document: Document) -> Iterator[Block]:
    tags: set[str] = set()
    metadata = cell.get("metadata")
    if isinstance(metadata, dict):
        tags.update(tag for tag in metadata.get("tags") or () if isinstance(tag, str))
    text = joined(cell.get("source"))
    outputs = cell.get("outputs")
    if tags & REMOVED_TAGS:
        document.skips.dropped[HIDDEN_WORDS] += len(text.split())
        return
    if cell.get("cell_type") == "markdown":
        yield from markdown_blocks(enumerate(text.splitlines(), 1), document.skips)
    elif cell.get("cell_type") == "code":
        if tags & REMOVED_INPUT_TAGS:
            document.skips.dropped[HIDDEN_WORDS] += len(text.split())
        elif text.strip():
            yield Block("code", text.rstrip(), 1)
        if not tags & REMOVED_OUTPUT_TAGS and isinstance(outputs, list):
            for output in outputs:
                yield from output_blocks(output, document)


def output_blocks(output: Any, document: Document) -> Iterator[Block]:
    """Yield what a cell printed: a table of HTML, Markdown or text; no errors, pictures or widgets."""
    if not isinstance(output, dict):
        return
    forms = output.get("data")
    if not isinstance(forms, dict):
        forms = {}
    page, markdown = joined(forms.get("text/html")), joined(forms.get("text/markdown"))
    text = joined(output.get("text")) or joined(forms.get("text/plain"))
    if "<table" in page:
        yield from web_blocks(page, document.path, document.skips)
    elif markdown.strip():
        yield from markdown_blocks(enumerate(markdown.splitlines(), 1), document.skips)
    elif text.strip():
        yield Block("code", text[:MAX_OUTPUT_CHARACTERS].rstrip(), 1)


def joined(lines: object) -> str:
    """Return a text of a notebook, which is one string or a list of lines."""
    if isinstance(lines, str):
        return lines
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return ""
