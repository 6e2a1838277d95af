"""PDF: a line in larger letters is a heading, and divided words and list items are whole."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from tests.training.pdf_files import BODY, Line, pdf

PROSE = "Letters are sorted by their sender, and those of one sender by the date of their postmark there."


def sections(path: Path) -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in read_corpus(path).passages]


def test_lines_in_larger_letters_are_headings_by_their_size(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("Depot", 24), ("Hours", 16), (PROSE, BODY), (PROSE.replace("sender", "weight"), BODY)],
        [("Rules", 16), (PROSE.replace("sender", "colour"), BODY)],
    ]
    parsed = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in parsed] == ["Depot > Hours", "Depot > Rules"]
    assert parsed[1][1] == PROSE.replace("sender", "colour")


def test_a_number_tells_the_level_of_a_heading(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("2 Sorting", 16), (PROSE, BODY), ("2.1 By sender", 16), (PROSE.replace("sender", "name"), BODY)]
    ]
    parsed = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in parsed] == ["2 Sorting", "2 Sorting > 2.1 By sender"]


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


def test_a_path_or_an_address_divided_at_a_slash_is_whole(tmp_path: Path) -> None:
    lines = [
        f"{PROSE} It reads /etc/depot/",
        f"rules.conf, and {PROSE} See http://depot.org/-",
        "rules for more.",
    ]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[(line, BODY) for line in lines]]))
    assert "/etc/depot/rules.conf," in text
    assert "http://depot.org/rules for" in text
