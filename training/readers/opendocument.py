"""OpenDocument: texts (.odt), spreadsheets (.ods) and presentations (.odp). Texts are converted into HTML, for their
tables and lists to be read as those of web pages.

Deletions of tracked changes, comments, tables of contents, and what is hidden or struck through are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS
from kcard.training.readers.packed import PackedDocument, attribute, local_name, unpack
from kcard.training.readers.sheets import MAX_COLUMNS, SheetRow, sheet_blocks
from kcard.training.readers.web import converted_blocks

CONTENT, META = "content.xml", "meta.xml"
UNREAD = {
    *("annotation", "annotation-end", "note-citation", "sequence-decls", "forms", "script"),
    *("table-of-content", "illustration-index", "table-index", "object-index", "alphabetical-index"),
    *("page-number", "page-count", "bookmark-ref", "ruby-text", "settings", "shapes"),
}
# Elements of HTML for those of OpenDocument; others are read through.
TAGS = {
    **{"p": "p", "list": "ul", "list-item": "li", "list-header": "li", "line-break": "br"},
    **{"table": "table", "table-row": "tr", "table-header-rows": "thead"},
}
TITLE_STYLES = ("Title", "Titel", "Titre")
MAX_REPEATED_ROWS = 1000
NUMBERS = ("float", "currency", "percentage", "date", "time")  # types of cells


@dataclass(frozen=True)
class OdfStyle:
    """What a style does to its text; None: what its parent does."""

    is_hidden: bool | None = None
    is_struck: bool | None = None
    parent: str = ""


class Styles:
    """The styles of a document, by name."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self._styles: dict[str, OdfStyle] = {}
        self._parents: dict[str, str] = {}
        for root in roots:
            for style in root.iter("{*}style"):
                properties: dict[str, str] = {}
                for child in style:
                    for key, value in child.attrib.items():
                        properties[key.rpartition("}")[2]] = value
                is_hidden = is_struck = None
                if "display" in properties:
                    is_hidden = properties["display"] in ("none", "false")
                if properties.get("visibility") == "hidden":  # a slide
                    is_hidden = True
                if "text-line-through-style" in properties:
                    is_struck = properties["text-line-through-style"] != "none"
                parent = attribute(style, "parent-style-name")
                self._styles[attribute(style, "name")] = OdfStyle(is_hidden, is_struck, parent)

    def of(self, name: str) -> OdfStyle:
        """Return the style of a name, with what it inherits."""
        is_hidden = is_struck = None
        visited: set[str] = set()
        while name in self._styles and name not in visited:
            visited.add(name)
            style = self._styles[name]
            if is_hidden is None:
                is_hidden = style.is_hidden
            if is_struck is None:
                is_struck = style.is_struck
            name = style.parent
        return OdfStyle(is_hidden, is_struck)

    def base_of(self, name: str) -> str:
        """Return the style of a paragraph that the user chose, of which an automatic one is a variant."""
        style = self._styles.get(name)
        if style is not None and style.parent:
            name = style.parent
        return name.replace("_20_", " ")


def read_opendocument(document: Document) -> Iterator[Block]:
    """Read paragraphs, headings, items and rows, numbered from 1; those of a spreadsheet have the number of the row, of
    a presentation that of the slide."""
    with unpack(document, "an OpenDocument file (.odt, .ods, .odp)") as package:
        content = package.tree(CONTENT)
        if content is None:
            raise KeyError(CONTENT)
        yield from package.properties(META)
        yield from OdfReader(package, content, document).blocks()


class OdfReader:
    def __init__(self, package: PackedDocument, content: Any, document: Document) -> None:
        common = package.tree("styles.xml")
        roots = [content]
        if common is not None:
            roots = [common, content]
        self._styles = Styles(roots)
        self._content = content
        self._document = document
        self._skips: SkipReport = document.skips
        self._notes: list[str] = []  # at the foot of a page or the end, as HTML

    def blocks(self) -> Iterator[Block]:
        for body in self._content.iterfind("{*}body/*"):
            kind = local_name(body)
            if kind == "spreadsheet":
                for table in body.iterfind("{*}table"):
                    yield from self.sheet(table)
            elif kind == "presentation":
                for number, page in enumerate(body.iterfind("{*}page"), 1):
                    yield from self.slide(page, number)
            else:
                text = self.html(body)
                yield from converted_blocks(text + "".join(self._notes), self._document)

    def html(self, element: Any) -> str:
        """Return the content of an element as HTML."""
        parts = [escape(element.text or "")]
        for child in element:
            parts.append(self.element(child))
            parts.append(escape(child.tail or ""))
        return "".join(parts)

    def element(self, element: Any) -> str:
        """Return an element as HTML; "" for one that is not read."""
        kind = local_name(element)
        if not kind or kind in UNREAD or self.is_unseen(element):
            return ""
        if kind in ("s", "tab"):
            return " "
        if kind == "h":
            level = min(int(attribute(element, "outline-level") or 1) + 1, 6)
            return f"<h{level}>{self.html(element)}</h{level}>"
        if kind == "table-cell":
            spans = ""
            for name, columns in (("colspan", "number-columns-spanned"), ("rowspan", "number-rows-spanned")):
                spans += f' {name}="{int(attribute(element, columns) or 1)}"'
            return f"<td{spans}>{self.html(element)}</td>"
        if kind == "tracked-changes":
            words = " ".join(" ".join(part.itertext()) for part in element.iter("{*}deletion"))
            self._skips.dropped["deleted words"] += len(words.split())
            return ""
        if kind == "note-body":
            self._notes.append(f"<div>{self.html(element)}</div>")
            return ""
        if kind in ("covered-table-cell", "image", "object"):
            return ""
        if kind == "frame":
            # A text, a table, or a picture by its description.
            boxes = described = ""
            for child in element:
                if local_name(child) in ("text-box", "table"):
                    boxes += self.element(child)
                elif local_name(child) == "desc":
                    described += f" {escape(child.text or '')}"
            return f"{boxes} {described} "
        inner = self.html(element)
        if kind == "p" and self._styles.base_of(attribute(element, "style-name")) in TITLE_STYLES:
            return f"<h1>{inner}</h1>"
        if kind not in TAGS:
            return inner
        return f"<{TAGS[kind]}>{inner}</{TAGS[kind]}>"

    def is_unseen(self, element: Any) -> bool:
        """Return whether an element is hidden or struck through, and count its words."""
        kind = local_name(element)
        style = self._styles.of(attribute(element, "style-name"))
        is_hidden = kind in ("hidden-text", "hidden-paragraph") or attribute(element, "display") == "none"
        is_hidden = is_hidden or attribute(element, "visibility") in ("collapse", "filter")
        is_hidden = is_hidden or (bool(style.is_hidden) and kind in ("p", "h", "span", "section", "page"))
        is_struck = bool(style.is_struck) and kind in ("p", "h", "span")
        if is_hidden or is_struck:
            kind_of_words = HIDDEN_WORDS if is_hidden else STRUCK_WORDS
            self._skips.dropped[kind_of_words] += len("".join(element.itertext()).split())
        return is_hidden or is_struck

    def slide(self, page: Any, number: int) -> Iterator[Block]:
        """Yield the blocks of a slide: its title, its texts, and its notes."""
        if self.is_unseen(page):
            return
        titles = [frame for frame in page if attribute(frame, "class") == "title"]
        title = " ".join(" ".join(frame.itertext()) for frame in titles)
        yield Block("heading", " ".join(title.split()), number, 2)
        for frame in page:
            if frame not in titles:
                for block in converted_blocks(self.element(frame), self._document):
                    yield replace(block, line=number)

    def sheet(self, table: Any) -> Iterator[Block]:
        """Yield the rows of a sheet of a spreadsheet."""
        if self._styles.of(attribute(table, "style-name")).is_hidden:
            self._skips.dropped[HIDDEN_WORDS] += len(" ".join(table.itertext()).split())
            return
        rows = [*self.rows_of(table)]
        if any(row.filled for row in rows):
            yield from sheet_blocks(attribute(table, "name"), rows)

    def rows_of(self, table: Any) -> Iterator[SheetRow]:
        hidden: set[int] = set()
        column = 0
        for entry in table.iter("{*}table-column"):
            count = min(int(attribute(entry, "number-columns-repeated") or 1), MAX_COLUMNS)
            if attribute(entry, "visibility") in ("collapse", "filter"):
                hidden.update(range(column, column + count))
            column = min(column + count, MAX_COLUMNS)
        number = 1
        spanning: dict[int, tuple[int, str, bool]] = {}  # by column: the last row, and what stands in it
        for row in table.iter("{*}table-row"):
            repeated = int(attribute(row, "number-rows-repeated") or 1)
            texts, numeric, filled = list[str](), list[bool](), 0
            is_shown = not self.is_unseen(row)
            for cell in row if is_shown else ():
                column = len(texts)
                count = min(int(attribute(cell, "number-columns-repeated") or 1), MAX_COLUMNS - column)
                text = self.cell_text(cell)
                is_number = attribute(cell, "value-type") in NUMBERS
                if local_name(cell) == "covered-table-cell":
                    last, text, is_number = spanning.get(column, (0, "", False))
                    if number > last:
                        text = ""
                elif text:
                    filled += 1
                width = int(attribute(cell, "number-columns-spanned") or 1)
                height = int(attribute(cell, "number-rows-spanned") or 1)
                if width > 1 or height > 1:
                    for covered in range(column, min(column + width, MAX_COLUMNS)):
                        spanning[covered] = (number + height - 1, text, is_number)
                texts += [text] * count
                numeric += [is_number] * count
            for at in sorted(hidden, reverse=True):
                if at < len(texts):
                    self._skips.dropped[HIDDEN_WORDS] += len(texts[at].split())
                    del texts[at], numeric[at]
            words = set(filter(None, texts))
            if filled == 1 and len(words) == 1:  # a title over all columns
                texts = list(words)
            while texts and not texts[-1]:
                texts.pop()
            if is_shown:
                copies = min(repeated, MAX_REPEATED_ROWS) if texts else 1
                for copy in range(copies):
                    yield SheetRow(number + copy, texts, numeric[: len(texts)])
            number += repeated

    def cell_text(self, cell: Any) -> str:
        """Return the text of a cell as it is shown, of which lines are divided by semicolons."""
        from bs4 import BeautifulSoup

        lines: list[str] = []
        for paragraph in cell.iterfind("{*}p"):
            words = self.element(paragraph)
            if "<" in words or "&" in words:
                words = BeautifulSoup(words, "lxml").get_text()
            lines.append(" ".join(words.split()))
        return "; ".join(filter(None, lines))
