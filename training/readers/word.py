"""Word documents (.docx): converted into HTML by mammoth, by the styles of their paragraphs.

mammoth knows neither hidden text nor formulas, and refuses a document that refers to a picture which is not there.
These are mended in a copy of the document's XML.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any
from zipfile import ZipFile

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS
from kcard.training.readers.packed import attribute, local_name, parse_xml, unpack
from kcard.training.readers.web import FORMULA, web_blocks

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
HIDDEN, STRUCK = ("vanish",), ("strike", "dstrike")  # properties of a run


def read_word(document: Document) -> Iterator[Block]:
    """Read paragraphs, headings, list items and table rows, numbered from 1, without tables of contents."""
    import mammoth

    # Images are represented by their descriptions.
    without_image = mammoth.images.img_element(lambda _: {})
    with unpack(document, "a Word document (.docx)") as package:
        yield from package.properties("docProps/core.xml")
        mended = mend(package.archive, document.skips)
        page = mammoth.convert_to_html(mended, style_map=STYLES, convert_image=without_image).value
    if page.strip():
        blocks = web_blocks(f"<html><body>{page}</body></html>", document.path, document.skips)
        yield from (replace(block, line=number, lines=()) for number, block in enumerate(blocks, 1))


def mend(packed: ZipFile, skips: SkipReport) -> io.BytesIO:
    """Return a copy of the document's XML parts without hidden and struck-through text, with formulas as text, and with
    the references to parts that are missing."""
    from lxml import etree

    names = [name for name in dict.fromkeys(packed.namelist()) if name.endswith(XML_PARTS)]
    parts = {name: packed.read(name) for name in names}
    styles: dict[str, dict[str, bool]] = {}
    trees = {}
    for name in names:
        is_story = PurePosixPath(name).name.startswith(STORIES) and name.endswith(".xml")
        is_relations = name.endswith(".rels")
        if not is_story and not is_relations and not name.endswith("styles.xml"):
            continue
        try:
            trees[name] = parse_xml(parts[name])
        except etree.XMLSyntaxError:
            continue  # mammoth says so
        if name.endswith("styles.xml"):
            styles = read_styles(trees[name])
    for name, root in trees.items():
        if not PurePosixPath(name).name.startswith(STORIES) or name.endswith(".rels"):
            continue
        write_formulas(root)
        drop_unseen(root, styles, skips)
        relations = str(PurePosixPath(name).parent / "_rels" / f"{PurePosixPath(name).name}.rels")
        parts[relations] = with_all_targets(root, trees.get(relations))
        parts[name] = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    copy = io.BytesIO()
    with ZipFile(copy, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    copy.seek(0)
    return copy


# Hidden and struck-through text.


def read_styles(root: Any) -> dict[str, dict[str, bool]]:
    """Return for each style, by its id, the properties HIDDEN and STRUCK that it sets, itself or by the style that it
    is based on."""
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
    """Return which of the properties HIDDEN and STRUCK w:rPr sets, and whether it switches them on."""
    if element is None:
        return {}
    return {
        name: attribute(child, "val").lower() not in OFF
        for child in element
        if (name := local_name(child)) in (*HIDDEN, *STRUCK)
    }


def drop_unseen(root: Any, styles: Mapping[str, dict[str, bool]], skips: SkipReport) -> None:
    """Remove runs that are hidden or struck through, by their own properties or their styles, and count the words."""
    for run in [*root.iter("{*}r")]:
        properties: dict[str, bool] = {}
        own = run.find("{*}rPr")
        parent = run.getparent()
        while parent is not None and local_name(parent) != "p":
            parent = parent.getparent()
        for holder, path in ((parent, "{*}pPr/{*}pStyle"), (own, "{*}rStyle")):
            style = holder.find(path) if holder is not None else None
            if style is not None:
                properties |= styles.get(attribute(style, "val"), {})
        properties |= properties_of(own)
        is_hidden, is_struck = (any(properties.get(name) for name in names) for names in (HIDDEN, STRUCK))
        if is_hidden or is_struck:
            words = sum(len((text.text or "").split()) for text in run.iter("{*}t"))
            skips.dropped[HIDDEN_WORDS if is_hidden else STRUCK_WORDS] += words
            run.getparent().remove(run)
    deleted = sum(len((text.text or "").split()) for text in root.iter("{*}delText"))
    skips.dropped["deleted words"] += deleted


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
    parts = [(local_name(child), text) for child in element if (text := formula_text(child))]
    texts = dict(parts)
    whole = "".join(text for _, text in parts)
    if name == "f":
        return f"{grouped(texts.get('num', ''))}/{grouped(texts.get('den', ''))}"
    if name in ("sSup", "sSub", "sSubSup", "nary"):
        sub = f"_{grouped(texts['sub'])}" if "sub" in texts else ""
        sup = f"^{grouped(texts['sup'])}" if "sup" in texts else ""
        base = texts.get("e", "")
        return (
            f"{character_of(element, 'chr', '∫')}{sub}{sup} {base}" if name == "nary" else f"{base}{sub}{sup}"
        )
    if name == "rad":
        return f"{texts.get('deg', '')}√{grouped(texts.get('e', ''))}"
    if name == "d":
        inside = ", ".join(text for _, text in parts)
        return f"{character_of(element, 'begChr', '(')}{inside}{character_of(element, 'endChr', ')')}"
    if name in ("m", "mr", "eqArr"):
        return ("; " if name != "mr" else ", ").join(text for _, text in parts)
    return whole


def grouped(text: str) -> str:
    """Return a part of a formula in brackets, if it has several signs."""
    return text if text.isalnum() or (text[:1] == "(" and text.find(")") == len(text) - 1) else f"({text})"


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
MISSING = "missing"


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
            picture.set(f"{{{office}}}embed", MISSING)
    for element in root.iter():
        for reference in references_of(element):
            if reference not in declared:
                declared.add(reference)
                attributes = {"Id": reference, "Type": f"{office}/image", "Target": MISSING}
                etree.SubElement(relations, f"{{{package}}}Relationship", attributes)
    data: bytes = etree.tostring(relations, encoding="UTF-8", xml_declaration=True)
    return data


def references_of(element: Any) -> Iterable[str]:
    """Yield the ids of relations that an element refers to."""
    for key, value in element.attrib.items():
        namespace, _, name = key.rpartition("}")
        if name in REFERENCES and namespace.endswith("/relationships"):
            yield value
