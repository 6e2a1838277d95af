"""PDF: paragraphs and their pages, and what is said of files that can't be read."""

from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from tests.training.documents import Line, pdf

PROSE = "Letters are sorted by their sender, and those of one sender by the date of their postmark there."


def sections(path: Path) -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in read_corpus(path).passages]


LARGE_LETTERS = "It is said in larger letters."


@pytest.mark.parametrize(
    ("pages", "read"),
    [
        (
            [[("Depot", 24), ("Hours", 16), PROSE], [("Rules", 16), "By colour."]],
            [("Depot > Hours", PROSE), ("Depot > Rules", "By colour.")],
        ),
        (
            [[("2 Sorting", 16), PROSE, ("2.1 By sender", 16), "By name."]],
            [("2 Sorting", PROSE), ("2 Sorting > 2.1 By sender", "By name.")],
        ),
        # No heading.
        ([[PROSE, (LARGE_LETTERS, 20), "It ends."]], [("depot", f"{PROSE} {LARGE_LETTERS} It ends.")]),
        ([[PROSE, ("12", 20), "It ends."]], [("depot", f"{PROSE} 12\nIt ends.")]),
        # A line of a table of contents, and items of a list.
        ([["Sorting . . . . . . . . . 12", PROSE]], [("depot", PROSE)]),
        (
            [[PROSE, "- open the lid", "- close the lid"]],
            [("depot", f"{PROSE}\n- open the lid\n- close the lid")],
        ),
    ],
)
def test_headings_items_and_tables_of_contents_are_told_from_text(
    tmp_path: Path, pages: list[list[Line | str]], read: list[tuple[str, str]]
) -> None:
    assert sections(pdf(tmp_path / "depot.pdf", pages)) == read


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        (
            ["Part\tSupplier\tPrice", "Flame sensor\tTolm Ltd\t88 EUR", "Pump\tArdo\t31 EUR"],
            ["Flame sensor; Supplier: Tolm Ltd; Price: 88 EUR", "Pump; Supplier: Ardo; Price: 31 EUR"],
        ),
        (
            ["\tAlba 20\tAlba 30", "Tank\t2 l\t3 l", "Power\t90 W\t120 W"],
            ["Tank; Alba 20: 2 l; Alba 30: 3 l", "Power; Alba 20: 90 W; Alba 30: 120 W"],
        ),
        # Lists and addresses are no tables.
        (["Tarn\t12", "Olm\t9", "Esk\t30"], ["Tarn 12", "Olm 9", "Esk 30"]),
        (["Depot of Tarn", "Quay Street 4", "Tarn 1200"], ["Depot of Tarn Quay Street 4 Tarn 1200"]),
        (["- a b", "- c d", "- e f"], ["- a b", "- c d", "- e f"]),
    ],
)
def test_rows_of_a_table_name_their_columns(tmp_path: Path, lines: list[str], read: list[str]) -> None:
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[PROSE, *lines, PROSE]]))
    assert text.removeprefix(PROSE).removesuffix(PROSE).split() == " ".join(read).split()


def test_a_path_or_an_address_divided_at_a_slash_is_whole(tmp_path: Path) -> None:
    lines = [
        f"{PROSE} It reads /etc/depot/",
        f"rules.conf, and {PROSE} See http://depot.org/-",
        "rules for more.",
    ]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [lines]))
    assert "/etc/depot/rules.conf," in text
    assert "http://depot.org/rules for" in text


def test_a_paragraph_is_whole_over_the_end_of_a_page_and_in_a_narrow_column(tmp_path: Path) -> None:
    pages: list[list[Line | str]] = [
        ["Letters of the depot are sorted by Ada and", "sealed in the hall of the old house by Bo"],
        ["Lind, who keeps the wax in a tin box, where", "nobody looks.", "Stamps are kept apart."],
        ["Depot handbook", "Parcels are weighed in the yard."],
        [PROSE],
        ["The hall of Ada", "Lind and Bo Marsh", "is open on all of", "the days of May."],
    ]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text.splitlines() == [
        "Letters of the depot are sorted by Ada and sealed in the hall of the old house by Bo Lind, who keeps the wax "
        "in a tin box, where nobody looks.",
        "Stamps are kept apart.",
        "Depot handbook",
        "Parcels are weighed in the yard.",
        PROSE,
        "The hall of Ada Lind and Bo Marsh is open on all of the days of May.",
    ]


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("The hall was re-", "stored.", "restored"),
        ("It is made for re-", "use.", "re-use"),
        ("There is a 10-", "day wait.", "10-day"),
        ("The Anglo-", "Saxon hall.", "Anglo-Saxon"),
        ("A state-of-the-", "art hall.", "state-of-the-art"),
        ("A well-", "known hall.", "well-known"),
        ("The big work-", "shop.", "workshop"),
        ("A tug-boat and a tug-", "boat.", "a tug-boat."),
        ("The zorbling and zor-", "bling.", "and zorbling"),
        ("A USB-", "stick.", "USB-stick"),
    ],
)
def test_a_word_divided_at_a_line_end_is_whole_with_its_own_hyphen(
    tmp_path: Path, before: str, after: str, whole: str
) -> None:
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[before, after]]))
    assert whole in text


def test_a_pdf_is_read_as_paragraphs_with_their_pages_and_without_headers_and_footers(tmp_path: Path) -> None:
    texts = [
        [
            "1 Moons of the outer planets",
            "Titan was discovered in 1655 by the Dutch astro-",
            "nomer Huygens.",
        ],
        ["Io is the most volcanic world that is known to us."],
        ["Ganymede is larger than the planet Mercury."],
    ]
    pages = [["Annual report", *lines, f"page {number} of 3"] for number, lines in enumerate(texts, 1)]
    corpus = read_corpus(pdf(tmp_path / "moons.pdf", pages))
    [passage] = corpus.passages
    assert (passage.line, passage.section) == (1, "moons")
    assert passage.text.splitlines() == [
        "1 Moons of the outer planets",
        "Titan was discovered in 1655 by the Dutch astronomer Huygens.",
        "Io is the most volcanic world that is known to us.",
        "Ganymede is larger than the planet Mercury.",
    ]
    assert corpus.dropped == {"page headers": 6}


def test_the_last_lines_of_pages_that_differ_in_more_than_the_page_number_stay(tmp_path: Path) -> None:
    totals = ["544.38", "612.10", "99.95", "1203.00"]
    pages = [
        [f"Bill {8 - number} of Ann Lind", "Total due:", total, f"- {number} -"]
        for number, total in enumerate(totals, 1)
    ]
    corpus = read_corpus(pdf(tmp_path / "bills.pdf", pages))
    text = "\n".join(passage.text for passage in corpus.passages)
    assert all(total in text for total in totals)
    assert text.count("Ann Lind") == 4
    assert corpus.left_out == {"page headers": 4}
    [passage] = read_corpus(pdf(tmp_path / "bill.pdf", [["Total due:", "544.38", "1"]])).passages
    assert passage.text == "Total due: 544.38"


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
