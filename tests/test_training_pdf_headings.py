"""PDF: a line in larger letters is a heading, and divided words and list items are whole."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus

Line = tuple[str, int]  # the text and the size of its letters
PROSE = "Letters are sorted by their sender, and those of one sender by the date of their postmark there."
BODY = 11


def pdf(path: Path, pages: list[list[Line]]) -> Path:
    """The smallest PDF that shows these lines, top to bottom, in the base font that every reader has."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for lines in pages:
        shown = "".join(f"/F1 {size} Tf ({text}) Tj T* " for text, size in lines)
        stream = f"BT 20 TL 50 780 Td {shown}ET"
        kids.append(f"{len(objects) + 1} 0 R")
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 900 842] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    data, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    size = len(objects) + 1
    data += (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(data)}\n%%EOF\n"
    ).encode()
    path.write_bytes(data)
    return path


def sections(path: Path) -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in read_corpus(path).passages]


def test_lines_in_larger_letters_are_headings_by_their_size(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("Depot", 24), ("Hours", 16), (PROSE, BODY), (PROSE.replace("sender", "weight"), BODY)],
        [("Rules", 16), (PROSE.replace("sender", "colour"), BODY)],
    ]
    found = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in found] == ["Depot > Hours", "Depot > Rules"]
    assert found[1][1] == PROSE.replace("sender", "colour")


def test_a_number_tells_the_level_of_a_heading(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("2 Sorting", 16), (PROSE, BODY), ("2.1 By sender", 16), (PROSE.replace("sender", "name"), BODY)]
    ]
    found = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in found] == ["2 Sorting", "2 Sorting > 2.1 By sender"]


@pytest.mark.parametrize("line", ["It is said in larger letters.", "12"])
def test_a_sentence_or_a_figure_in_larger_letters_is_no_heading(tmp_path: Path, line: str) -> None:
    [(section, _)] = sections(pdf(tmp_path / "depot.pdf", [[(PROSE, BODY), (line, 20), (PROSE[:60], BODY)]]))
    assert section == "depot"


def test_lines_of_a_table_of_contents_are_left_out(tmp_path: Path) -> None:
    pages: list[list[Line]] = [[("Sorting . . . . . . . . . 12", BODY), (PROSE, BODY)]]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text == PROSE


def test_items_of_a_list_are_lines_of_their_own(tmp_path: Path) -> None:
    pages: list[list[Line]] = [[(PROSE, BODY), ("- open the lid", BODY), ("- close the lid", BODY)]]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text.splitlines() == [PROSE, "- open the lid", "- close the lid"]
