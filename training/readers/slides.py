"""Presentations (.pptx): titles of slides, their texts, tables and notes, in the order of the slides."""

from collections.abc import Iterator
from typing import Any

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS
from kcard.training.readers.packed import RELATION_ID, PackedDocument, count_words, is_on, local_name, unpack
from kcard.training.readers.sheets import table_blocks
from kcard.training.readers.web_tables import grid_of

MAIN_PART = "ppt/presentation.xml"
TITLES = ("title", "ctrTitle")
PLACES = ("dt", "ftr", "sldNum", "hdr", "sldImg")  # placeholders of dates, footers and numbers
LISTS = ("body", "obj", "")  # placeholders whose paragraphs are the items of a list
SLIDE_LEVEL = 2


def read_slides(document: Document) -> Iterator[Block]:
    """Read the slides, numbered from 1. Hidden slides, hidden shapes and struck-through text are left out, and
    counted."""
    with unpack(document, "a presentation (.pptx)") as package:
        presentation = package.tree(MAIN_PART)
        if presentation is None:
            raise KeyError(MAIN_PART)
        relations = package.relations(MAIN_PART)
        yield from package.properties("docProps/core.xml")
        for number, entry in enumerate(presentation.iterfind("{*}sldIdLst/{*}sldId"), 1):
            _, name = relations.get(entry.get(RELATION_ID), ("", ""))
            slide = package.tree(name) if name else None
            if slide is None:
                document.skips.dropped["missing slides"] += 1
            elif slide.get("show", "1") in ("0", "false"):
                document.skips.dropped[HIDDEN_WORDS] += count_words(slide, "{*}t")
            else:
                yield from slide_blocks(package, name, slide, number, document.skips)


def slide_blocks(
    package: PackedDocument, name: str, slide: Any, number: int, skips: SkipReport
) -> Iterator[Block]:
    shapes = [*slide.iterfind("{*}cSld/{*}spTree/*")]
    # The title first, wherever it stands.
    titles = [shape for shape in shapes if placeholder_of(shape) in TITLES]
    title = " ".join(text for shape in titles for text, _ in paragraphs_of(shape, skips))
    yield Block("heading", title, number, SLIDE_LEVEL)
    for shape in shapes:
        if shape not in titles:
            yield from shape_blocks(shape, number, skips)
    for kind, part in package.relations(name).values():
        if kind != "notesSlide":
            continue
        notes = package.tree(part)
        if notes is None:
            continue
        for shape in notes.iterfind("{*}cSld/{*}spTree/{*}sp"):
            if placeholder_of(shape) == "body":
                for text, _ in paragraphs_of(shape, skips):
                    yield Block("text", text, number)


def shape_blocks(shape: Any, number: int, skips: SkipReport) -> Iterator[Block]:
    """Yield the texts of a shape, of those grouped in it, of a table; a picture by its description."""
    kind = local_name(shape)
    properties = shape.find("./*/{*}cNvPr")
    if properties is not None and is_on(properties.get("hidden", "")):
        skips.dropped[HIDDEN_WORDS] += count_words(shape, "{*}t")
        return
    if kind == "AlternateContent":  # the same in a newer and an older form
        choices = shape.findall("{*}Fallback/*") or shape.findall("{*}Choice/*")
        for inner in choices:
            yield from shape_blocks(inner, number, skips)
    elif kind == "grpSp":
        for inner in shape:
            yield from shape_blocks(inner, number, skips)
    elif kind == "pic" and properties is not None and properties.get("descr", "").strip():
        yield Block("text", " ".join(properties.get("descr").split()), number)
    elif kind == "graphicFrame":
        for table in shape.iter("{*}tbl"):
            yield from slide_table(table, number, skips)
    elif kind == "sp" and placeholder_of(shape) not in PLACES:
        paragraphs = [*paragraphs_of(shape, skips)]
        is_list = placeholder_of(shape) in LISTS and len(paragraphs) > 1
        for text, has_bullet in paragraphs:
            if is_list or has_bullet:
                yield Block("item", f"- {text}", number)
            else:
                yield Block("text", text, number)


def placeholder_of(shape: Any) -> str | None:
    """Return the kind of a placeholder, "" for one without a kind; None for a shape that is none."""
    place = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    if place is None:
        return None
    return str(place.get("type", ""))


def paragraphs_of(element: Any, skips: SkipReport) -> Iterator[tuple[str, bool]]:
    """Yield the paragraphs that have text, and whether they have a bullet of their own."""
    for paragraph in element.iter("{*}p"):
        words = ""
        for part in paragraph:
            kind = local_name(part)
            text = "".join(inner.text or "" for inner in part.iter("{*}t"))
            style = part.find("{*}rPr")
            if style is not None and style.get("strike", "noStrike") != "noStrike":
                skips.dropped[STRUCK_WORDS] += len(text.split())
            elif kind in ("r", "fld", "m"):
                words += text
            elif kind == "br":
                words += " "
        words = " ".join(words.split())
        if words:
            bullet = paragraph.find("{*}pPr/{*}buChar")
            numbered = paragraph.find("{*}pPr/{*}buAutoNum")
            yield words, bullet is not None or numbered is not None


def slide_table(table: Any, number: int, skips: SkipReport) -> Iterator[Block]:
    rows: list[list[tuple[str, int, int]]] = []
    for row in table.iterfind("{*}tr"):
        cells = []
        for cell in row.iterfind("{*}tc"):
            if is_on(cell.get("hMerge", "")) or is_on(cell.get("vMerge", "")):
                continue  # covered by another
            text = "; ".join(text for text, _ in paragraphs_of(cell, skips))
            cells.append((text, int(cell.get("gridSpan", 1)), int(cell.get("rowSpan", 1))))
        rows.append(cells)
    properties = table.find("{*}tblPr")
    has_names = properties is not None and is_on(properties.get("firstRow", ""))
    yield from table_blocks(grid_of(rows), has_names, [number] * len(rows))
