# ruff: noqa: E501 - documents as their programs write them
"""Documents of office programs and e-books, as small as they can be: XML in a zip."""

import io
import zipfile
from collections.abc import Mapping, Sequence

DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
ODF = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"


def packed(parts: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(name, text, kind)
    return stream.getvalue()


def core(**properties: str) -> str:
    """The part with the properties of a document of Microsoft's programs: title, creator, description, modified."""
    values = ""
    for name, value in properties.items():
        tag = f"dcterms:{name}" if name == "modified" else f"dc:{name}"
        values += f"<{tag}>{value}</{tag}>"
    return (
        '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/">'
        f"{values}</cp:coreProperties>"
    )


def relations(targets: Sequence[tuple[str, str]]) -> str:
    """The relations of a part: (last part of the type, target), with the ids rId1, rId2, ..."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{PACKAGE}">{rows}</Relationships>'


# Presentations.


def shape(*paragraphs: str, kind: str = "", hidden: bool = False) -> str:
    """A text box, or a placeholder of a kind (title, body), with paragraphs of DrawingML or plain texts."""
    texts = [p if p.startswith("<") else f"<a:p><a:r><a:t>{p}</a:t></a:r></a:p>" for p in paragraphs]
    place = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
    shown = ' hidden="1"' if hidden else ""
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="x"{shown}/><p:cNvSpPr/>{place}</p:nvSpPr>'
        f"<p:txBody>{''.join(texts)}</p:txBody></p:sp>"
    )


def slide_table(rows: str) -> str:
    return (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="2" name="t"/></p:nvGraphicFramePr>'
        f"<a:graphic><a:graphicData><a:tbl>{rows}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )


def slide_cell(text: str, spans: str = "") -> str:
    return f"<a:tc{spans and ' '}{spans}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"


def slide(*shapes: str, hidden: bool = False) -> str:
    return (
        f'<p:sld xmlns:p="{SLIDES}" xmlns:a="{DRAWING}" xmlns:r="{RELATIONS}" show="{int(not hidden)}">'
        f"<p:cSld><p:spTree>{''.join(shapes)}</p:spTree></p:cSld></p:sld>"
    )


def pptx(slides: Sequence[str], notes: Mapping[int, str] | None = None, properties: str = "") -> bytes:
    """A presentation; `notes`: the speaker's, by the number of the slide."""
    places = [("slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1)]
    ids = "".join(
        f'<p:sldId id="{255 + number}" r:id="rId{number}"/>' for number in range(1, len(slides) + 1)
    )
    parts = {
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{SLIDES}" xmlns:r="{RELATIONS}"><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(places),
    }
    if properties:
        parts["docProps/core.xml"] = properties
    for number, content in enumerate(slides, 1):
        parts[f"ppt/slides/slide{number}.xml"] = content
        if notes and number in notes:
            parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = relations(
                [("notesSlide", f"../notesSlides/notesSlide{number}.xml")]
            )
            parts[f"ppt/notesSlides/notesSlide{number}.xml"] = (
                slide(shape(notes[number], kind="body"), shape(str(number), kind="sldNum"))
                .replace("p:sld ", "p:notes ")
                .replace("/p:sld>", "/p:notes>")
            )
    return packed(parts)


# Spreadsheets.


def xlsx(
    sheets: Mapping[str, str], strings: Sequence[str] = (), styles: str = "", hidden: Sequence[str] = ()
) -> bytes:
    """A workbook: the names of its sheets, and what stands in `worksheet`; `strings` are shared strings, `hidden` the
    names of sheets that are hidden."""
    places = [("worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(sheets) + 1)]
    rows = ""
    for number, name in enumerate(sheets, 1):
        state = ' state="hidden"' if name in hidden else ""
        rows += f'<sheet name="{name}" sheetId="{number}"{state} r:id="rId{number}"/>'
    shared = "".join(f"<si>{s if s.startswith('<') else f'<t>{s}</t>'}</si>" for s in strings)
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" xmlns:r="{RELATIONS}"><sheets>{rows}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(places),
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEETS}">{shared}</sst>',
        "xl/styles.xml": f'<styleSheet xmlns="{SHEETS}">{styles}</styleSheet>',
    }
    for number, content in enumerate(sheets.values(), 1):
        parts[f"xl/worksheets/sheet{number}.xml"] = f'<worksheet xmlns="{SHEETS}">{content}</worksheet>'
    return packed(parts)


def sheet_rows(rows: Sequence[Sequence[str | float | None]]) -> str:
    """The data of a sheet: texts inline, numbers as they are, and nothing for None."""
    lines = ""
    for number, row in enumerate(rows, 1):
        cells = ""
        for column, value in enumerate(row):
            place = f"{chr(65 + column)}{number}"
            if isinstance(value, str):
                cells += f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
            elif value is not None:
                cells += f'<c r="{place}"><v>{value}</v></c>'
        lines += f'<row r="{number}">{cells}</row>'
    return f"<sheetData>{lines}</sheetData>"


# OpenDocument.


def odf(body: str, styles: str = "", meta: str = "") -> bytes:
    """A document of LibreOffice: what stands in office:body, automatic styles, and metadata."""
    names = "".join(
        f' xmlns:{short}="{ODF.format(name)}"'
        for short, name in {
            "office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing",
            "meta": "meta", "svg": "svg-compatible", "presentation": "presentation", "fo": "xsl-fo-compatible",
        }.items()
    )  # fmt: skip
    names += ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    parts = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": (
            f"<office:document-content{names}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body>{body}</office:body></office:document-content>"
        ),
    }
    if meta:
        parts["meta.xml"] = (
            f"<office:document-meta{names}><office:meta>{meta}</office:meta></office:document-meta>"
        )
    return packed(parts)


def odt(body: str, styles: str = "", meta: str = "") -> bytes:
    return odf(f"<office:text>{body}</office:text>", styles, meta)


# E-books.


def epub(chapters: Mapping[str, str], metadata: str = "") -> bytes:
    """A book: the names of its chapters, in their order, and their XHTML."""
    items = "".join(
        f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in chapters
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": (
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
        ),
        "OEBPS/book.opf": (
            '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            f"<metadata>{metadata}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
        ),
    }
    for name, text in chapters.items():
        parts[f"OEBPS/{name}"] = text
    return packed(parts)
