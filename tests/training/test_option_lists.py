"""Lists of options in the layouts of several programs that print help: each option is read with its explanation."""

import time
from pathlib import Path

import pytest

from kcard.training.readers.layout import is_help, paragraphs_of
from kcard.training.readers.option_lists import find_option_lists
from tests.training.documents import blocks, kinds_and_texts, sections

LAYOUTS = {
    "one column": (
        "  -k, --keep           keep letters in the tray\n"
        "      --rate=N         limit the speed to N letters\n"
        "                         per second\n"
        "  -v                   show each letter"
    ),
    "defaults on lines of their own": (
        "  --keep               keep letters in the tray\n"
        "  --rate INTEGER       limit the speed to N letters per\n"
        "                       second\n"
        "  -v                   show each letter"
    ),
    "long options above": (
        "  -k, --keep\n"
        "        keep letters in the tray\n"
        "  --rate <N>\n"
        "        limit the speed to N letters per second\n"
        "  -v\n"
        "        show each letter"
    ),
    "beyond the column": (
        " -k, --keep     keep letters in the tray\n"
        "     --rate <letters per minute> limit the speed to N letters per second\n"
        " -v             show each letter"
    ),
}
EXPLANATIONS = ["keep letters in the tray", "limit the speed to N letters per second", "show each letter"]


def options_in(text: str) -> list[tuple[str, str]]:
    numbered = list(enumerate(text.splitlines(), 1))
    found = []
    for paragraph in paragraphs_of(numbered):
        for listed in find_option_lists(paragraph):
            for option in listed.options:
                found.append((option.term, " ".join(line.text for line in option.explanation)))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_options_are_found_in_the_layouts_of_help(layout: str) -> None:
    assert [explanation for _, explanation in options_in(LAYOUTS[layout])] == EXPLANATIONS


@pytest.mark.parametrize(
    ("line", "term"),
    [
        ("-V,  --version    print the version", "-V, --version"),
        ("[-D, --dir=]DIR   folder of the trays", "[-D, --dir=]DIR"),
        ("--log / --no-log  write a log", "--log / --no-log"),
        ('-1 ("one")  a single tray', '-1 ("one")'),
        ("-?, --help  show this help", "-?, --help"),
        ("--mode {fast,slow}  how to sort", "--mode {fast,slow}"),
        ("--max=num  the most letters", "--max=num"),
    ],
)
def test_values_and_other_names_belong_to_the_term(line: str, term: str) -> None:
    [(found, explanation)] = options_in(f"  {line}")
    assert found == term
    assert line.endswith(explanation)


@pytest.mark.parametrize(
    "text",
    [
        "  open     Open the tray of\n           a street\n  close    Close all trays\n  sort, s  Sort the letters",
        "  open - Open the tray of\n         a street\n  close - Close all trays\n  sort, s - Sort the letters",
    ],
)
def test_commands_below_each_other_are_found_as_options_are(text: str) -> None:
    assert options_in(text) == [
        ("open", "Open the tray of a street"),
        ("close", "Close all trays"),
        ("sort, s", "Sort the letters"),
    ]


def test_options_without_an_explanation_share_that_of_the_next() -> None:
    text = (
        "  --limit-sorting=N\n  --limit-reading=N,\n  -M, --limit=N\n             the most letters at a time"
    )
    assert options_in(text) == [
        ("--limit-sorting=N, --limit-reading=N, -M, --limit=N", "the most letters at a time")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "If -k is given,\n  letters stay in the tray.",
        "-k keeps letters in the tray.\n  So they wait.",
        "drwxr-xr-x  2 ada ada  trays\n-rw-r--r--  1 ada ada  letters",
        "- a letter  of Ada\n- a parcel  of Bob",
        "sort-letters \\\n    --keep \\\n    --rate 3",
        "-5.2  cold\n-11   colder",
        "  open   Open the tray.\n  close  Close the tray.",
        "open   Open the tray.\nclose  Close the tray.\nsort   Sort the letters.",
        "  int   trays = 3;\n  char  *name = 0;\n  long  letters = 5;",
        "  open   3 cm\n  close  5 cm\n  sort   1 cm",
    ],
)
def test_other_lines_are_no_options(text: str) -> None:
    assert options_in(text) == []


def test_what_stands_around_a_list_stays_and_lists_further_right_are_of_the_same_level(
    tmp_path: Path,
) -> None:
    text = (
        "Usage: depot [OPTIONS]\n\nOptions:\n  -k, --keep  Keep letters.  [default:\n"
        "              no-\n              keep]\n\n"
        "      --rate  Limit the speed.\n\nLetters wait in the tray until somebody asks for them at the\ndepot.\n"
    )
    parsed = kinds_and_texts(blocks(tmp_path, "depot.txt", text))
    assert [(kind, shown) for kind, shown in parsed if shown] == [
        ("text", "Usage: depot [OPTIONS]"),
        ("text", "Options:"),
        ("term", "-k, --keep"),
        ("text", "Keep letters. [default: no-keep]"),
        ("term", "--rate"),
        ("text", "Limit the speed."),
        ("text", "Letters wait in the tray until somebody asks for them at the depot."),
    ]
    levels = {block.level for block in blocks(tmp_path, "depot.txt", text) if block.kind == "term"}
    assert levels == {1}


@pytest.mark.parametrize(("title", "is_title"), [("Basic options", True), ("Basic options:", False)])
def test_a_line_above_a_list_is_its_title_unless_it_ends_in_a_colon(
    tmp_path: Path, title: str, is_title: bool
) -> None:
    listed = "  -k, --keep\n      Keep letters.\n\n  --rate=N\n      Limit the speed.\n"
    parsed = blocks(tmp_path, "depot.txt", f"The depot\n=========\n\n{title}\n{listed}")
    levels = {block.text: block.level for block in parsed if block.kind == "term" and block.text}
    options = {"-k, --keep": 1 + is_title, "--rate=N": 1 + is_title}
    assert levels == ({title: 1} | options if is_title else options)


def test_help_in_a_block_of_code_is_read_and_other_code_keeps_its_lines(tmp_path: Path) -> None:
    shown = LAYOUTS["one column"]
    parsed = kinds_and_texts(blocks(tmp_path, "depot.md", f"# Depot\n\n```\n{shown}\n```\n\nThe end.\n"))
    assert ("term", "--rate=N") in parsed
    assert ("text", EXPLANATIONS[1]) in parsed
    code = "depot --keep \\\n  --rate 3  # slowly\ndepot -v"
    parsed = kinds_and_texts(blocks(tmp_path, "code.md", f"# Depot\n\n```\n{code}\n```\n"))
    assert ("code", code) in parsed
    page = f"<html><body><h1>Depot</h1><p>It sorts.</p><pre>{shown}</pre></body></html>"
    assert ("term", "-k, --keep") in kinds_and_texts(blocks(tmp_path, "depot.html", page))
    literal = f"Depot\n=====\n\nIt prints::\n\n{shown}\n\nThe end.\n"
    assert ("term", "-k, --keep") in kinds_and_texts(blocks(tmp_path, "depot.rst", literal))


def test_headings_in_a_block_of_help_are_not_those_of_the_document(tmp_path: Path) -> None:
    text = f"# Depot\n\n```\nOPTIONS\n\n{LAYOUTS['one column']}\n```\n\nThe end of it.\n"
    passages = sections(tmp_path, "depot.md", text)
    assert {section for section, _ in passages} == {"Depot"}
    assert any("The end of it." in passage for _, passage in passages)


def test_help_is_what_has_mostly_options() -> None:
    lines = LAYOUTS["one column"].splitlines()
    assert is_help(list(enumerate(lines, 1)))
    assert not is_help(list(enumerate([*lines, *["depot = open('depot')"] * 5], 1)))


def test_many_dashes_and_brackets_take_no_time() -> None:
    begun = time.perf_counter()
    for part in ("-", "-a, ", "--a[", "-a <", "-a=", "[-", " -a  "):
        options_in("  " + part * 5_000)
        options_in("\n".join(["  " + part * 20] * 300))
    options_in("\n".join(["  --keep"] * 50_000))
    assert time.perf_counter() - begun < 20
