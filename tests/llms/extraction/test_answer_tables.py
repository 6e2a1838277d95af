"""Cells of tables, found by the words of their row and column."""

import pytest

from kcard.embedded.question_forms import form_of
from kcard.llms.extraction.extract import extract_all
from kcard.llms.extraction.tables import Cell, find_cell, rows_of

MILLS = (
    "Counted every spring.\n"
    "Tarn mill; Miller: Ada Fischer; Rent: 40 €; Grinds: rye; Open: Monday to Thursday\n"
    "Tarn mill annex; Miller: Bo Lund; Rent: 12 €; Open: Friday\n"
    "Skarn mill; Miller: Cy Okafor; Rent: 75 €; Grinds: wheat; Open: daily"
)
COUNTS = "1901; Geese: 120\n1902; Geese: 135"
DAYS = (
    "Ferry; Monday to Friday: 7 to 19; Saturday: 9 to 12\nCrane; Monday to Friday: 6 to 22; Saturday: closed"
)
TASKS = (
    "sort TRAY; one piece: a tray; where it is kept: in the cellar\n"
    "weigh SACK; one piece: a sack; where it is kept: outside"
)
PHONES = "Forge: 555 0101\nDepot: 555 0102\nDepot hours: 7 to 19"


def cell(question: str, text: str, heading: str = "Mills of Ormond") -> Cell | None:
    return find_cell(question, form_of(question), [(f"{heading}: ", text)])


@pytest.mark.parametrize(
    ("question", "text", "answer"),
    [
        ("Who is the miller of Tarn mill?", MILLS, "Ada Fischer"),
        ("Who is the miller of the Tarn mill annex?", MILLS, "Bo Lund"),
        ("What is the rent of Skarn mill?", MILLS, "75 €"),
        ("How much does Skarn mill cost?", MILLS, "75 €"),
        ("What does Tarn mill grind?", MILLS, "rye"),
        ("Which mill has Cy Okafor as its miller?", MILLS, "Skarn mill"),
        ("Which mill grinds wheat?", MILLS, "Skarn mill"),
        ("How many geese were counted in 1902?", COUNTS, "135"),
        ("When does the ferry run on Wednesdays?", DAYS, "7 to 19"),
        ("When is the crane open on Saturday?", DAYS, "closed"),
        ("What is the phone number of the depot?", PHONES, "555 0102"),
        ("How do I reach the forge by phone?", PHONES, None),
        ("How many geese were counted in 1903?", COUNTS, None),
        ("Who is the miller of Brenn mill?", MILLS, None),
        ("How is the rent of Tarn mill paid?", MILLS, None),
        ("Which mill has a miller?", MILLS, None),
        ("What is the fax number of the mill?", PHONES, None),
        ("What is rye?", MILLS, None),
        ("Where are trays kept?", TASKS, None),
        ("Where is the piece of sort TRAY kept?", TASKS, "in the cellar"),
    ],
)
def test_a_cell_is_found_by_its_row_and_its_column(question: str, text: str, answer: str | None) -> None:
    found = cell(question, text)
    assert (found.text if found is not None else None) == answer


@pytest.mark.parametrize(
    ("question", "text"),
    [("What does the Tarn mill annex grind?", MILLS), ("When does the ferry run on Sundays?", DAYS)],
)
def test_an_empty_cell_is_missing_and_the_neighbours_is_not_taken(question: str, text: str) -> None:
    found = cell(question, text)
    assert found is not None
    assert (found.text, found.probability < 0.25) == ("", True)
    (answer,) = extract_all([(question, [text])])
    assert answer is not None
    assert not answer.is_sure


def test_the_answer_is_the_cell_and_its_quotation_the_row() -> None:
    (answer,) = extract_all([("What is the rent of Skarn mill?", [f"Mills: {MILLS}"])], [["Mills"]])
    assert answer is not None
    assert (answer.text, answer.quote, answer.is_sure) == ("75 €", MILLS.splitlines()[-1], True)


def test_prose_with_a_semicolon_and_a_colon_is_no_table() -> None:
    assert rows_of("The mill burnt down; Ada said: it was the goose.", 0) == []


def test_a_value_with_a_semicolon_stays_whole() -> None:
    rows = rows_of("- Depot; Keys: red; blue\n- Forge; Keys: none", 0)
    assert [(row.label, dict(row.cells)) for row in rows] == [
        ("Depot", {"Keys": "red; blue"}),
        ("Forge", {"Keys": "none"}),
    ]
