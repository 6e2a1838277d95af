"""Word documents (.docx): converted into HTML by mammoth, by the styles of their paragraphs.

mammoth knows neither hidden text nor formulas, and refuses a document that refers to a picture which is not there.
These are mended in a copy of the document's XML.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from zipfile import ZipFile

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS
from kcard.training.readers.packed import attribute, count_words, local_name, parse_xml, unpack
from kcard.training.readers.web import FORMULA, converted_blocks

STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Heading 1'] => h2:fresh
p[style-name='Heading 2'] => h3:fresh
p[style-name='Heading 3'] => h4:fresh
p[style-name='Heading 4'] => h5:fresh
p[style-name='Heading 5'] => h6:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='toc 1'] => !
p[style-name='toc 2'] => !
p[style-name='toc 3'] => !
p[style-name='table of figures'] => !
"""
XML_PARTS = (".xml", ".rels")
STORIES = ("document", "footnotes", "endnotes")  # parts with text, by the beginning of their names
OFF = ("0", "false", "off")
HIDDEN_PROPERTIES, STRUCK_PROPERTIES = ("vanish",), ("strike", "dstrike")  # of a run


def read_word(document: Document) -> Iterator[Block]:
    """Read paragraphs, headings, list items and table rows, numbered from 1, without tables of contents."""
    import mammoth

    # Images are represented by their descriptions.
    without_image = mammoth.images.img_element(lambda _: {})
    with unpack(document, "a Word document (.docx)") as package:
        yield from package.properties("docProps/core.xml")
        mended = mend(package.archive, document.skips)
        page = mammoth.convert_to_html(mended, style_map=STYLES, convert_image=without_image).value
    yield from converted_blocks(page, document)


def mend(packed: ZipFile, skips: SkipReport) -> io.BytesIO:
    """Return a copy of the document's XML parts without hidden and struck-through text, with formulas as text, and with
    the references to parts that are missing."""
    from lxml import etree

    parts: dict[str, bytes] = {}
    stories: dict[str, Any] = {}
    relations: dict[str, Any] = {}
    styles: dict[str, dict[str, bool]] = {}
    for name in packed.namelist():
        if not name.endswith(XML_PARTS) or name in parts:
            continue
        parts[name] = packed.read(name)
        try:
            if name.endswith(".rels"):
                relations[name] = parse_xml(parts[name])
            elif name.endswith("styles.xml"):
                styles = read_styles(parse_xml(parts[name]))
            elif PurePosixPath(name).name.startswith(STORIES):
                stories[name] = parse_xml(parts[name])
        except etree.XMLSyntaxError:
            continue  # mammoth says so
    for name, root in stories.items():
        write_formulas(root)
        drop_unseen(root, styles, skips)
        path = PurePosixPath(name)
        place = str(path.parent / "_rels" / f"{path.name}.rels")
        parts[place] = with_all_targets(root, relations.get(place))
        parts[name] = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    copy = io.BytesIO()
    with ZipFile(copy, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    copy.seek(0)
    return copy


# Hidden and struck-through text.


def read_styles(root: Any) -> dict[str, dict[str, bool]]:
    """Return for each style, by its id, which properties of hidden and struck-through text it sets, itself or by the
    style that it is based on."""
    own: dict[str, dict[str, bool]] = {}
    bases: dict[str, str] = {}
    for style in root.iterchildren("{*}style"):
        style_id = attribute(style, "styleId")
        own[style_id] = properties_of(style.find("{*}rPr"))
        base = style.find("{*}basedOn")
        bases[style_id] = "" if base is None else attribute(base, "val")
    styles: dict[str, dict[str, bool]] = {}
    for style_id in own:
        chain: list[str] = []
        name = style_id
        while name in own and name not in chain:
            chain.append(name)
            name = bases[name]
        styles[style_id] = {}
        for name in reversed(chain):
            styles[style_id] |= own[name]
    return styles


def properties_of(element: Any) -> dict[str, bool]:
    """Return which of these properties w:rPr sets, and whether it switches them on."""
    if element is None:
        return {}
    properties: dict[str, bool] = {}
    for child in element:
        name = local_name(child)
        if name in (*HIDDEN_PROPERTIES, *STRUCK_PROPERTIES):
            properties[name] = attribute(child, "val").lower() not in OFF
    return properties


def drop_unseen(root: Any, styles: Mapping[str, dict[str, bool]], skips: SkipReport) -> None:
    """Remove runs that are hidden or struck through, by their own properties or their styles, and count the words."""
    for run in list(root.iter("{*}r")):
        properties: dict[str, bool] = {}
        paragraph = next(run.iterancestors("{*}p"), None)
        for holder, path in ((paragraph, "{*}pPr/{*}pStyle"), (run, "{*}rPr/{*}rStyle")):
            if holder is not None:
                style = holder.find(path)
                if style is not None:
                    properties |= styles.get(attribute(style, "val"), {})
        properties |= properties_of(run.find("{*}rPr"))
        if any(map(properties.get, HIDDEN_PROPERTIES)):
            skips.dropped[HIDDEN_WORDS] += count_words(run, "{*}t")
        elif any(map(properties.get, STRUCK_PROPERTIES)):
            skips.dropped[STRUCK_WORDS] += count_words(run, "{*}t")
        else:
            continue
        run.getparent().remove(run)
    skips.dropped["deleted words"] += count_words(root, "{*}delText")


# Formulas (Office Math): as one line of text.


def write_formulas(root: Any) -> None:
    """Replace each formula by a run with its text."""
    from lxml import etree

    word = root.tag.rpartition("}")[0]  # "{" and the namespace of the document
    for formula in [*root.iter("{*}oMath")]:
        if any(local_name(parent) == "oMath" for parent in formula.iterancestors()):
            continue
        run = etree.Element(f"{word}}}r")
        text = etree.SubElement(run, f"{word}}}t")
        text.text = " ".join(formula_text(formula).split()) or FORMULA
        run.tail = formula.tail
        formula.getparent().replace(formula, run)
    for paragraph in [*root.iter("{*}oMathPara")]:  # mammoth does not look inside
        place = paragraph.getparent()
        at = place.index(paragraph)
        runs = [child for child in paragraph if local_name(child) == "r"]
        place.remove(paragraph)
        for run in reversed(runs):
            if local_name(place) == "p":
                place.insert(at, run)
            else:
                shell = etree.Element(f"{word}}}p")
                shell.append(run)
                place.insert(at, shell)


def formula_text(element: Any) -> str:
    """Return a part of a formula as text, such as "a/b" and "x^2"."""
    name = local_name(element)
    if name == "t":
        return element.text or ""
    if name.endswith("Pr"):
        return ""
    parts: list[str] = []
    texts: dict[str, str] = {}  # by the name of the part
    for child in element:
        text = formula_text(child)
        if text:
            parts.append(text)
            texts[local_name(child)] = text
    base = texts.get("e", "")
    if name == "f":
        return f"{grouped(texts.get('num', ''))}/{grouped(texts.get('den', ''))}"
    if name in ("sSup", "sSub", "sSubSup", "nary"):
        sub = f"_{grouped(texts['sub'])}" if "sub" in texts else ""
        sup = f"^{grouped(texts['sup'])}" if "sup" in texts else ""
        if name == "nary":
            return f"{character_of(element, 'chr', '∫')}{sub}{sup} {base}"
        return f"{base}{sub}{sup}"
    if name == "rad":
        return f"{texts.get('deg', '')}√{grouped(base)}"
    if name == "d":
        return (
            f"{character_of(element, 'begChr', '(')}{', '.join(parts)}{character_of(element, 'endChr', ')')}"
        )
    if name == "mr":
        return ", ".join(parts)
    if name in ("m", "eqArr"):
        return "; ".join(parts)
    return "".join(parts)


def grouped(text: str) -> str:
    """Return a part of a formula in brackets, if it has several signs."""
    if text.isalnum() or (text[:1] == "(" and text.find(")") == len(text) - 1):
        return text
    return f"({text})"


def character_of(element: Any, name: str, default: str) -> str:
    """Return a character that the properties of a part of a formula set, such as its bracket."""
    for properties in element:
        if local_name(properties).endswith("Pr"):
            for child in properties:
                if local_name(child) == name:
                    return attribute(child, "val")
    return default


# References to pictures and links that are not there.

REFERENCES = ("embed", "link", "id")  # attributes
MISSING_REFERENCE = "missing"


def with_all_targets(root: Any, relations: Any) -> bytes:
    """Return the relations of a part with one for each reference that lacks it, and give a picture without a reference
    one to nothing, so that its description is read."""
    from lxml import etree

    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    if relations is None:
        relations = etree.Element(f"{{{package}}}Relationships", nsmap={None: package})
    declared = {relation.get("Id") for relation in relations}
    for picture in root.iter("{*}blip"):
        if not any(key.rpartition("}")[2] in REFERENCES for key in picture.attrib):
            picture.set(f"{{{office}}}embed", MISSING_REFERENCE)
    for element in root.iter():
        for reference in references_of(element):
            if reference not in declared:
                declared.add(reference)
                attributes = {"Id": reference, "Type": f"{office}/image", "Target": MISSING_REFERENCE}
                etree.SubElement(relations, f"{{{package}}}Relationship", attributes)
    data: bytes = etree.tostring(relations, encoding="UTF-8", xml_declaration=True)
    return data


def references_of(element: Any) -> Iterable[str]:
    """Yield the ids of relations that an element refers to."""
    for key, value in element.attrib.items():
        namespace, _, name = key.rpartition("}")
        if name in REFERENCES and namespace.endswith("/relationships"):
            yield value
