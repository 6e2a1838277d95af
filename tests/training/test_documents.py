"""PDF, web pages and Word documents: what is read of them, and what is said of those that can't be."""

from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from tests.training.pdf_files import pdf


def test_a_pdf_is_read_as_paragraphs_with_their_pages_and_without_headers_and_footers(tmp_path: Path) -> None:
    texts = [
        [
            "1 Moons of the outer planets",
            "Titan, the largest moon of Saturn, was discovered in 1655 by the Dutch astro-",
            "nomer Christiaan Huygens with a telescope that he and his brother had ground",
            "themselves. It has a thick atmosphere.",
            "Triton circles Neptune in the direction opposite to that of its planet, which makes",
        ],
        ["astronomers believe that it was captured.", "Io is the most volcanic world that is known to us."],
        ["Ganymede is larger than the planet Mercury."],
    ]
    pages = [["Annual report", *lines, f"page {number} of 3"] for number, lines in enumerate(texts, 1)]
    corpus = read_corpus(pdf(tmp_path / "moons.pdf", pages))
    [passage] = corpus.passages
    assert (passage.line, passage.section) == (1, "moons")
    assert passage.text.splitlines() == [
        "1 Moons of the outer planets",
        "Titan, the largest moon of Saturn, was discovered in 1655 by the Dutch astronomer Christiaan Huygens with "
        "a telescope that he and his brother had ground themselves. It has a thick atmosphere.",
        "Triton circles Neptune in the direction opposite to that of its planet, which makes astronomers believe "
        "that it was captured. Io is the most volcanic world that is known to us.",
        "Ganymede is larger than the planet Mercury.",
    ]
    assert corpus.dropped == {"headers and footers": 6}


def test_an_empty_page_of_a_pdf_is_passed_over(tmp_path: Path) -> None:
    corpus = read_corpus(pdf(tmp_path / "moons.pdf", [["Titan is a moon."], [], ["Io is one too."]]))
    assert [*corpus.texts] == ["Titan is a moon.", "Io is one too."]


def test_a_scanned_an_encrypted_and_a_damaged_pdf_are_one_line_each(tmp_path: Path) -> None:
    from pypdf import PdfReader, PdfWriter  # PDFium encrypts nothing

    with pytest.raises(CorpusError, match=r"scan.pdf holds no text on its 2 pages: if it is a scan"):
        read_corpus(pdf(tmp_path / "scan.pdf", [[], []]))
    whole = pdf(tmp_path / "whole.pdf", [["Titan is a moon of Saturn."]])
    with PdfReader(whole) as reader:
        writer = PdfWriter(clone_from=reader)
        writer.encrypt("secret", algorithm="RC4-128")
        writer.write(tmp_path / "locked.pdf")
    with pytest.raises(CorpusError, match=r"locked.pdf is encrypted: save it without a password"):
        read_corpus(tmp_path / "locked.pdf")
    for size in (0, 5, 300):
        (tmp_path / "cut.pdf").write_bytes(whole.read_bytes()[:size])
        with pytest.raises(CorpusError, match=r"cut.pdf (can't be read as PDF|holds no text)") as error:
            read_corpus(tmp_path / "cut.pdf")
        assert "\n" not in str(error.value)
    folder = read_corpus(tmp_path)
    assert [*folder.texts] == ["Titan is a moon of Saturn."]
    assert {name for name, _ in folder.skipped} == {"cut.pdf", "locked.pdf", "scan.pdf"}


PAGE = """<!doctype html><html><head><title>Moons</title><script>var moons = "no text";</script></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
<main><article><h1>Moons of Saturn</h1>
<p>Titan is the largest moon of Saturn. It was discovered in 1655 by Christiaan Huygens, and it is the only moon that
has a thick atmosphere, in which clouds of methane drift and from which methane rains into lakes near the poles.</p>
<p>Enceladus throws fountains of water ice into space from cracks near its south pole. The spacecraft Cassini flew
through them several times and found salts and simple organic molecules, which hint at an ocean below the ice.</p>
</article></main><footer>Contact | Imprint</footer></body></html>"""


def test_a_web_page_is_read_without_its_menus(tmp_path: Path) -> None:
    (tmp_path / "saturn.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "empty.htm").write_text("<html><body></body></html>", encoding="utf-8")
    (tmp_path / "old.html").write_bytes(
        b'<html><head><meta charset="iso-8859-1"></head><body><p>Charon was found in 1978; its name is due to '
        b"Charl\xe8ne, the wife of its discoverer James Christy, as well as to the ferryman.</p></body></html>"
    )
    corpus = read_corpus(tmp_path)
    texts = " ".join(corpus.texts)
    assert "Titan is the largest moon of Saturn." in texts
    assert "Enceladus throws fountains" in texts
    assert "Charlène" in texts
    assert not any(word in texts for word in ("Home", "Imprint", "var moons", "About us"))
    assert {p.file for p in corpus.passages} == {"old.html", "saturn.html"}
    assert corpus.dropped["words of menus and lists of links in web pages"] > 0
    assert "empty.htm" in dict(corpus.skipped)


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
        "Io; Jupiter",
        "Triton; Neptune",
    ]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 and no more", b"plain text"])
def test_a_damaged_word_document_is_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.docx").write_bytes(data)
    with pytest.raises(CorpusError, match=r"bad.docx is not a Word document .*or a damaged one"):
        read_corpus(tmp_path / "bad.docx")
