"""Tables that are drawn with characters in plain text become rows that name their columns."""

from pathlib import Path

import pytest

from kcard.training.readers.drawn_tables import find_tables
from tests.training.documents import blocks

SENSOR, PUMP = "Flame sensor; Supplier: Tolm Ltd; Price: 88 €", "Pump; Supplier: Ardo; Price: 31 €"
BOX = """
+--------------+----------+-------+
| Part         | Supplier | Price |
+==============+==========+=======+
| Flame sensor | Tolm     | 88 €  |
|              | Ltd      |       |
+--------------+----------+-------+
| Pump         | Ardo     | 31 €  |
+--------------+----------+-------+"""
OPEN_BOX = """
┌──────────────┬──────────┬───────┐
│ Part         │ Supplier │ Price │
├──────────────┼──────────┼───────┤
│ Flame sensor │ Tolm Ltd │ 88 €  │
│ Pump         │ Ardo     │ 31 €  │
└──────────────┴──────────┴───────┘"""
BARS = """
Part | Supplier | Price
Flame sensor | Tolm Ltd | 88 €
Pump | Ardo | 31 €"""
RULED_BARS = """
 Part         | Supplier | Price
--------------+----------+-------
 Flame sensor | Tolm Ltd | 88 €
 Pump         | Ardo     | 31 €"""
RULES = """
Part          Supplier   Price
------------  --------  -----
Flame sensor  Tolm Ltd    88 €
Pump          Ardo        31 €"""
ONE_RULE = """
Part          Supplier    Price
-------------------------------
Flame sensor  Tolm         88 €
              Ltd
Pump          Ardo         31 €"""
NO_RULE = """
Part            Supplier    Price
Flame sensor    Tolm Ltd    88 €
Pump            Ardo        31 €"""


def rows(text: str) -> list[str]:
    found = []
    for table in find_tables(text.strip("\n").split("\n")):
        found += [row for _, row in table.rows]
    return found


@pytest.mark.parametrize("table", [BOX, OPEN_BOX, BARS, RULED_BARS, RULES, ONE_RULE, NO_RULE])
def test_each_row_names_its_columns(table: str) -> None:
    assert rows(table) == [SENSOR, PUMP]


@pytest.mark.parametrize("table", [BOX, BARS, ONE_RULE])
@pytest.mark.parametrize("start", ["", "  The parts of this boiler are kept for\n  ten years.\n\n"])
def test_a_document_keeps_the_text_around_a_table(tmp_path: Path, table: str, start: str) -> None:
    text = f"{start}Spare parts:{table}\nAsk the office.\n"
    parsed = [block for block in blocks(tmp_path, "parts.txt", text) if block.text]
    assert [block.text for block in parsed if block.kind == "item"] == [SENSOR, PUMP]
    assert "Tolm" in text.split("\n")[parsed[-3].line - 1]
    assert parsed[-1].text == "Ask the office."


def test_a_box_without_names_has_terms_and_values() -> None:
    box = "+------+---------+\n| 9:30 | tea     |\n+------+---------+\n| 1 pm | lunch   |\n+------+---------+"
    assert rows(box) == ["9:30: tea", "1 pm: lunch"]


@pytest.mark.parametrize(
    "text",
    [
        "+------+      +------+\n| Tank |----->| Pump |\n+------+      +------+",
        "+----------------+\n| Do not touch   |\n| the tank       |\n+----------------+",
        "The letters  are sorted by hand.  Those of one\nsender are tied  with a string,  and the others\n"
        "are kept  in a box.",
        "cat names | grep Ann | wc -l\ncat names | grep Ben | wc -l\ncat names | grep Cem | wc -l",
        "int a   = 1;   // first\nint bc  = 2;   // second\nint def = 3;   // third",
        "-q, --quiet      write nothing\n-v, --verbose    write more\n-h, --help       show this help",
        "Room    Use\nElm     for meetings\nOak     for lunch",
        "term = a | b | c\nexpr = term | expr | other\nlist = expr | list | none",
        "Opening hours\n-------------\nThe depot is open on weekdays.\nIt is closed on Sundays.",
        "  /\\_/\\   |   |\n ( o.o )  |   |\n  > ^ <   |___|",
    ],
)
def test_prose_with_double_blanks_code_and_pictures_are_no_tables(text: str) -> None:
    assert rows(text) == []
