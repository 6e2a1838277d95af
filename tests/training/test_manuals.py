"""Man pages, rendered by the program that is installed."""

import gzip
import shutil
from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers import manuals
from tests.training.documents import sections, written

LONG = " ".join(["It says a lot about what the option does to a letter."] * 5)
PAGE = rf""".TH DEPOT 1 "2020-01-01"
.SH NAME
depot \- sorts letters
.SH SYNOPSIS
.B depot
[\fB\-\-quiet\fR] \fI<file>\fR
.SH OPTIONS
.TP
.B \-\-quiet
Write nothing.
.TP
.B \-\-sender
{LONG}
.SH NOTES
Letters are sorted by their
sender.
.SH BUGS
None.
"""
rendered = pytest.mark.skipif(
    not any(map(shutil.which, manuals.RENDERERS)), reason="neither mandoc nor groff is installed"
)


@rendered
def test_sections_options_and_names_in_brackets_are_kept(tmp_path: Path) -> None:
    parsed = dict(sections(tmp_path, "depot.1", PAGE))
    assert parsed["depot > NAME"] == "depot - sorts letters"
    assert parsed["depot > SYNOPSIS"] == "depot [--quiet] <file>"
    assert parsed["depot > OPTIONS"] == "--quiet: Write nothing."
    assert parsed["depot > OPTIONS > --sender"] == LONG
    assert parsed["depot > NOTES"] == "Letters are sorted by their sender."


@rendered
def test_a_compressed_page_is_the_same_page(tmp_path: Path) -> None:
    plain = sections(tmp_path, "depot.1", PAGE)
    assert sections(tmp_path, "depot.1.gz", gzip.compress(PAGE.encode())) == plain


@rendered
def test_another_name_of_a_page_is_no_second_page(tmp_path: Path) -> None:
    written(tmp_path, "depot.1", PAGE)
    written(tmp_path, "sorter.1", ".so man1/depot.1\n")
    corpus = read_corpus(tmp_path)
    assert {p.file for p in corpus.passages} == {"depot.1"}
    assert [name for name, _ in corpus.skipped] == ["sorter.1"]


def test_a_file_that_only_ends_like_a_page_is_plain_text(tmp_path: Path) -> None:
    corpus = read_corpus(written(tmp_path, "LICENSE-2.1", "The licence allows copies of the depot.\n"))
    assert [passage.text for passage in corpus.passages] == ["The licence allows copies of the depot."]
    with pytest.raises(CorpusError, match=r"libdepot\.so\.6"):
        read_corpus(written(tmp_path, "libdepot.so.6", "\x7fELF\0\0"))


def test_without_a_program_to_render_it_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match=r"depot\.1 is a man page: install mandoc or groff"):
        read_corpus(written(tmp_path, "depot.1", PAGE))


# Info files: their nodes without the menus and tables that lead from one to another.

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
def test_nodes_are_sections_and_menus_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    corpus = read_corpus(written(tmp_path, name, INFO))
    assert [(p.section, p.text) for p in corpus.passages] == EXPECTED
    assert corpus.dropped == {"lines of menus": 2}
    assert "left out: 2 lines of menus" in corpus.remarks()


def test_a_manual_in_latin_1_is_read(tmp_path: Path) -> None:
    text = INFO.replace("Letters are", "Blas\xe9 letters are")
    assert sections(tmp_path, "depot.info", text.encode("latin-1"))[1][1].startswith("Blasé letters")


def test_a_list_that_is_no_menu_stays(tmp_path: Path) -> None:
    text = INFO.replace("It opens at noon.", "It opens:\n\n* at noon\n* in the evening")
    assert sections(tmp_path, "depot.info", text)[2][1] == "It opens:\n- at noon\n- in the evening"
