"""Info files: their nodes without the menus and tables that lead from one to another."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from tests.training.documents import sections, written

INFO = """This is depot.info, produced by hand.

START-INFO-DIR-ENTRY
* Depot: (depot).     Sort letters.
END-INFO-DIR-ENTRY

\x1f
File: depot.info,  Node: Top,  Next: Sorting,  Up: (dir)

Depot
*****

The depot sorts letters.  *Note Sorting:: tells how.

* Menu:

* Sorting::     How it sorts.
* Index::       All words.

\x1f
File: depot.info,  Node: Sorting,  Prev: Top,  Up: Top

1 Sorting
*********

Letters are sorted by their
sender.

'-q'
     Write nothing.

\x1f
File: depot.info,  Node: Hours,  Prev: Sorting,  Up: Sorting

1.1 Hours
=========

It opens at noon.

\x1f
Tag Table:
Node: Top\x7f100
\x1f
End Tag Table
"""
EXPECTED = [
    ("Depot", "The depot sorts letters. Sorting tells how."),
    ("1 Sorting", "Letters are sorted by their sender.\n'-q': Write nothing."),
    ("1 Sorting > 1.1 Hours", "It opens at noon."),
]


@pytest.mark.parametrize("name", ["depot.info", "depot.info-2"])
def test_nodes_are_sections_and_menus_are_left_out(tmp_path: Path, name: str) -> None:
    assert sections(tmp_path, name, INFO) == EXPECTED


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    corpus = read_corpus(written(tmp_path, "depot.info", INFO))
    assert corpus.dropped == {"lines of menus": 2}
    assert "left out: lines of menus 2" in corpus.remarks()


def test_a_manual_in_latin_1_is_read(tmp_path: Path) -> None:
    text = INFO.replace("Letters are", "Blas\xe9 letters are")
    assert sections(tmp_path, "depot.info", text.encode("latin-1"))[1][1].startswith("Blasé letters")


def test_a_list_that_is_no_menu_stays(tmp_path: Path) -> None:
    text = INFO.replace("It opens at noon.", "It opens:\n\n* at noon\n* in the evening")
    assert sections(tmp_path, "depot.info", text)[2][1] == "It opens:\n- at noon\n- in the evening"
