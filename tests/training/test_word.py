"""Word documents: what mammoth does not know."""

from pathlib import Path

import pytest
from benchmarks.hostile_files import word

from kcard.training.corpus import read_corpus
from tests.training.documents import blocks, kinds_and_texts, written

WORD = """<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"
 xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"
 xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"
 xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"
 xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><w:body>{body}</w:body></w:document>"""
STYLES = """<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">
<w:style w:type="character" w:styleId="Gone"><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type="character" w:styleId="GoneToo"><w:basedOn w:val="Gone"/></w:style></w:styles>"""
RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
 Target="{target}" TargetMode="{mode}"/></Relationships>"""
PICTURE = """<w:r><w:drawing><wp:inline><wp:docPr id="1" name="x" {descr}/><a:graphic><a:graphicData><pic:pic>
<pic:blipFill><a:blip {reference}/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing>
</w:r>"""


def document(body: str, relations: str = "") -> bytes:
    """Return a Word document with this body."""
    parts = {"word/document.xml": WORD.format(body=body).encode(), "word/styles.xml": STYLES.encode()}
    if relations:
        parts["word/_rels/document.xml.rels"] = relations.encode()
    return word("", parts)


def texts(folder: Path, content: bytes) -> list[str]:
    return [text for _, text in kinds_and_texts(blocks(folder, "a.docx", content))]


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


@pytest.mark.parametrize(
    ("reference", "relations"),
    [
        ('r:embed="rId1"', RELATIONS.format(target="https://example.org/tree.png", mode="External")),
        ('r:link="rId1"', RELATIONS.format(target="file:///C:/tree.png", mode="External")),
        ('r:embed="rId1"', RELATIONS.format(target="media/tree.png", mode="Internal")),
        ('r:embed="rId1"', RELATIONS.format(target="../NULL", mode="Internal")),
        ('r:embed="rId9"', RELATIONS.format(target="media/tree.png", mode="Internal")),
        ('r:embed="rId9"', ""),
        ("", ""),
    ],
)
def test_a_word_document_is_read_whatever_its_pictures_refer_to(
    tmp_path: Path, reference: str, relations: str
) -> None:
    picture = PICTURE.format(reference=reference, descr='descr="an elm"')
    link = f'<w:hyperlink r:id="rId77">{run("It was replaced.")}</w:hyperlink>'
    parts = [run("The elm fell in 1962."), picture, link]
    body = "".join(f"<w:p>{part}</w:p>" for part in parts)
    assert texts(tmp_path, document(body, relations)) == [
        "The elm fell in 1962.",
        "an elm",
        "It was replaced.",
    ]


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("<m:r><m:t>E=m</m:t></m:r><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>"
         "</m:sSup>", "E=mc^2"),
        ("<m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>", "(a+b)/2"),
        ("<m:rad><m:radPr/><m:deg/><m:e><m:r><m:t>x</m:t></m:r></m:e></m:rad>", "√x"),
        ("", "[formula]"),
    ],
)  # fmt: skip
def test_a_formula_of_a_word_document_is_text(tmp_path: Path, formula: str, text: str) -> None:
    inline = f"<w:p>{run('It is ')}<m:oMath>{formula}</m:oMath>{run(' here.')}</w:p>"
    alone = f"<w:p><m:oMathPara><m:oMath>{formula}</m:oMath></m:oMathPara></w:p>"
    assert texts(tmp_path, document(inline + alone)) == [f"It is {text} here.", text]


def test_hidden_struck_through_and_deleted_text_of_a_word_document_is_left_out(tmp_path: Path) -> None:
    runs = [
        run("The boat costs "),
        run("30 ", "<w:strike/>"),
        run("40 ", "<w:dstrike/>"),
        run("45 euros"),
        run(" maybe", "<w:vanish/>"),
        run(" at least", '<w:rStyle w:val="GoneToo"/>'),
        run(" today", '<w:vanish w:val="0"/>'),
        "<w:del><w:r><w:delText> not</w:delText></w:r></w:del>",
        run("."),
    ]
    body = f"<w:p>{''.join(runs)}</w:p>"
    corpus = read_corpus(written(tmp_path, "boat.docx", document(body)))
    assert [*corpus.texts] == ["The boat costs 45 euros today."]
    assert corpus.left_out == {"struck-through words": 2, "hidden words": 3, "deleted words": 1}


def test_merged_cells_of_a_word_document_repeat_their_value(tmp_path: Path) -> None:
    def cell(text: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{run(text)}</w:p></w:tc>"

    rows = [
        [cell("Part"), cell("Maker"), cell("Cost")],
        [cell("Mast"), cell("Ardo", '<w:vMerge w:val="restart"/>'), cell("30")],
        [cell("Boom"), cell("", "<w:vMerge/>"), cell("20")],
        [cell("Sail"), cell("made in 1990", '<w:gridSpan w:val="2"/>')],
    ]
    table = "".join(f"<w:tr>{''.join(row)}</w:tr>" for row in rows)
    assert texts(tmp_path, document(f"<w:tbl>{table}</w:tbl>")) == [
        "Mast; Maker: Ardo; Cost: 30",
        "Boom; Maker: Ardo; Cost: 20",
        "Sail; Maker: made in 1990; Cost: made in 1990",
    ]


def test_a_picture_in_word_parts_the_words_beside_it(tmp_path: Path) -> None:
    picture = PICTURE.format(reference="", descr="")
    body = f"<w:p>{run('Tap')}{picture}{run('to open the depot.')}</w:p>"
    assert texts(tmp_path, document(body)) == ["Tap to open the depot."]


def test_a_word_document_is_its_paragraphs_and_rows(tmp_path: Path) -> None:
    import docx

    document = docx.Document()
    document.add_heading("Moons", 0)
    document.add_heading("Of Saturn", 1)
    document.add_paragraph("Titan is the largest moon of Saturn.")
    document.add_paragraph("Enceladus throws ice into space.", style="List Bullet")
    table = document.add_table(2, 2)
    for at, cell in enumerate(["Io", "Jupiter", "Triton", "Neptune"]):
        table.cell(at // 2, at % 2).text = cell
    document.save(str(tmp_path / "moons.docx"))
    [passage] = read_corpus(tmp_path / "moons.docx").passages
    assert passage.section == "Moons > Of Saturn"
    assert passage.text.splitlines() == [
        "Titan is the largest moon of Saturn.",
        "- Enceladus throws ice into space.",
        "Io: Jupiter",
        "Triton: Neptune",
    ]
