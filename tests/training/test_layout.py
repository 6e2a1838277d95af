"""Documents in plain text: what is wrapped, indented, underlined or has a bullet is read by its layout."""

from pathlib import Path

import pytest

from tests.training.documents import blocks, kinds_and_texts, sections

PROSE = "Letters are sorted by their sender, and those of\none sender by the date that the postmark shows."


def test_lines_of_a_wrapped_paragraph_are_one_text(tmp_path: Path) -> None:
    parsed = blocks(tmp_path, "depot.txt", f"{PROSE}\n\n  {PROSE}\n")
    assert kinds_and_texts(parsed) == [("text", " ".join(PROSE.split()))] * 2
    assert [block.line for block in parsed] == [1, 4]


@pytest.mark.parametrize("mark", ["=", "*", "-", "~", "#"])
def test_an_underlined_line_is_a_heading(tmp_path: Path, mark: str) -> None:
    parsed = blocks(tmp_path, "depot.txt", f"The depot\n{mark * 9}\n\n{PROSE}\n")
    assert (parsed[0].kind, parsed[0].text, parsed[0].level) == ("heading", "The depot", 1)
    assert parsed[1].kind == "text"


def test_the_level_of_a_heading_is_that_of_its_underline(tmp_path: Path) -> None:
    parsed = blocks(tmp_path, "d.txt", "One\n=====\n\nTwo\n-----\n\nThree\n-----\n\nFour\n=====\n")
    assert [block.level for block in parsed] == [1, 2, 2, 1]


@pytest.mark.parametrize(
    ("line", "is_heading"),
    [
        ("OPENING HOURS", True),
        ("1.2 Opening hours", True),
        ("Chapter 3 Opening hours", True),
        ("NOT A HEADING, BUT SHOUTED.", False),
        ("12.5", False),
        ("Just a line", False),
        ("\t3 CTRL-A", False),
    ],
)
def test_a_short_line_in_capitals_or_with_a_number_is_a_heading(
    tmp_path: Path, line: str, is_heading: bool
) -> None:
    parsed = blocks(tmp_path, "depot.txt", f"{PROSE}\n\n{line}\n\n{PROSE}\n")
    assert (kinds_and_texts(parsed)[1] == ("heading", line)) == is_heading


@pytest.mark.parametrize("bullet", ["*", "-", "•", "1.", "(a)"])
def test_items_are_whole_and_keep_their_numbers(tmp_path: Path, bullet: str) -> None:
    text = f"{PROSE}\n\n{bullet} the first one is wrapped\n  over two lines\n{bullet} the second one\n"
    mark = "-" if len(bullet) == 1 else bullet
    assert kinds_and_texts(blocks(tmp_path, "depot.txt", text))[1:] == [
        ("item", f"{mark} the first one is wrapped over two lines"),
        ("item", f"{mark} the second one"),
    ]


def test_what_is_indented_below_a_term_defines_it(tmp_path: Path) -> None:
    text = f"{PROSE}\n\n-q, --quiet\n      Write nothing.\n\n-o FILE\n      Write to FILE.\n"
    [(_, read)] = sections(tmp_path, "depot.txt", text)
    assert read.split("\n") == [
        " ".join(PROSE.split()),
        "-q, --quiet: Write nothing.",
        "-o FILE: Write to FILE.",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "$ depot sort in.txt\nsorted 3 letters",
        "for letter in letters:\n    print(letter)",
        "in.txt    12     text\nout.txt   7      text",
    ],
)
def test_code_keeps_its_lines(tmp_path: Path, code: str) -> None:
    indented = "\n".join(f"    {line}" for line in code.split("\n"))
    parsed = blocks(tmp_path, "depot.txt", f"{PROSE}\n\n{indented}\n\n{PROSE}\n")
    assert kinds_and_texts(parsed)[1] == ("code", code)


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("  A  word of  this  justified line was  divi-\n  ded  here, where  it  ends.", "was divided here,"),
        ("  This is the best of all the well-\n  known depots that there are.", "the well-known depots"),
    ],
)
def test_a_hyphen_at_a_lines_end_goes_only_from_justified_text(
    tmp_path: Path, lines: str, joined: str
) -> None:
    [(kind, text)] = kinds_and_texts(blocks(tmp_path, "depot.txt", f"{lines}\n"))
    assert kind == "text"
    assert joined in text


def test_no_word_is_lost_whatever_the_layout(tmp_path: Path) -> None:
    text = f"TITLE\n\n{PROSE}\n\n* one\n* two\n\nterm\n    meaning\n\n        deeper text\n\n$ code here\n  more\n"
    read = " ".join(part for _, part in kinds_and_texts(blocks(tmp_path, "depot.txt", text)))
    assert {word.strip("*$") for word in text.split()} <= {*read.replace("$", " ").split(), ""}


def test_an_option_is_not_parted_from_what_it_does(tmp_path: Path) -> None:
    option = "  --option-{}=value\n{}What this option does, which takes\n{}some words to say here.\n"
    blank = " " * 20
    text = "Usage:\n\n::\n\n" + "".join(option.format(n, blank, blank) for n in range(40))
    texts = [text for _, text in sections(tmp_path, "usage.rst", text)]
    assert len(texts) > 2
    assert all(part.count("--option") == part.count("some words to say here.") for part in texts)
