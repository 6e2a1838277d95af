"""Blocks become passages: under their headings, whole where they belong together, and without loss."""

import pytest

from kcard.training.passages import PASSAGE, count_words, passages
from kcard.training.readers.files import Block
from kcard.types import Source

LONG = " ".join(["It says a lot about what the option does to a letter."] * 5)
SENTENCE = "The quick clerk sorts the slow letters again and again today."


def heading(text: str, level: int = 1) -> Block:
    return Block("heading", text, 1, level)


def text(words: str, line: int = 1) -> Block:
    return Block("text", words, line)


def passages_of(*blocks: Block, file: str = "main.md") -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in passages(blocks, file)]


def test_a_passage_knows_its_outermost_and_two_innermost_headings() -> None:
    headings = [heading(name, level) for level, name in enumerate(["Guide", "Set up", "Network", "Ports"], 1)]
    assert passages_of(*headings, text("It listens on 4711.")) == [
        ("Guide > Network > Ports", "It listens on 4711.")
    ]


def test_a_heading_ends_those_of_its_level_and_below() -> None:
    blocks = [
        heading("A"),
        heading("B", 2),
        text("One."),
        heading("C", 2),
        text("Two."),
        heading("D"),
        text("Tri."),
    ]
    assert passages_of(*blocks) == [("A > B", "One."), ("A > C", "Two."), ("D", "Tri.")]


@pytest.mark.parametrize(
    ("file", "section"),
    [
        ("post-office_rules.md", "post office rules"),
        ("README.md", ""),
        ("docs/index.html", ""),
        ("a/b.txt.gz", "b"),
    ],
)
def test_without_a_heading_the_file_is_the_title_where_its_name_says_something(
    file: str, section: str
) -> None:
    assert passages_of(text("It is open."), file=file) == [(section, "It is open.")]


def test_a_heading_that_is_not_the_first_stands_under_the_files_name() -> None:
    assert passages_of(heading("Hours", 2), text("Noon."), file="depot.md") == [("depot > Hours", "Noon.")]


def test_a_short_definition_is_an_item_and_a_long_one_a_section() -> None:
    blocks = [
        heading("Options"),
        Block("term", "-q", 2, 1),
        text("Write nothing.", 3),
        Block("term", "-v", 4, 1),
        text(LONG, 5),
        Block("term", "", 6, 1),
        text("That is all.", 7),
    ]
    assert passages_of(*blocks) == [
        ("Options", "-q: Write nothing."),
        ("Options > -v", LONG),
        ("Options", "That is all."),
    ]


def test_terms_may_stand_within_definitions() -> None:
    inner = [
        Block("term", "outer", 1, 1),
        Block("term", "inner", 2, 2),
        text("Meaning."),
        Block("term", "", 3, 1),
    ]
    assert passages_of(heading("A"), *inner) == [("A", "outer: inner: Meaning.")]
    deep = [Block("term", "outer", 1, 1), Block("term", "inner", 2, 2), text(LONG)]
    assert passages_of(heading("A"), *deep) == [("A > outer > inner", LONG)]


def test_what_leads_to_a_list_goes_with_it() -> None:
    items = [Block("item", f"- {SENTENCE}", 3)] * 3
    result = passages_of(heading("A"), *[text(SENTENCE)] * 13, text("These are the steps:"), *items)
    assert len(result) == 2
    assert result[0][1].splitlines() == [SENTENCE] * 13
    assert result[1][1].splitlines() == ["These are the steps:", *[f"- {SENTENCE}"] * 3]


def test_a_passage_holds_as_many_blocks_as_fit() -> None:
    result = passages_of(heading("A"), *[text(f"{SENTENCE} {number}") for number in range(40)])
    assert all(count_words(part) <= PASSAGE.words for _, part in result)
    assert all(count_words(part) > PASSAGE.words - 12 for _, part in result[:-1])
    assert [line.split()[-1] for _, part in result for line in part.splitlines()] == [
        str(n) for n in range(40)
    ]


def test_statements_stand_alone_and_may_bring_their_own_place() -> None:
    blocks = [
        heading("A"),
        Block("statement", "One.", 3),
        Block("statement", "Two.", 4, file="old.md", section="Old"),
    ]
    assert [*passages(blocks, "new.jsonl")] == [
        Source("One.", "new.jsonl", 3, section="A"),
        Source("Two.", "old.md", 4, section="Old"),
    ]


def test_a_telling_heading_without_text_is_kept_as_text() -> None:
    blocks = [heading("Notes"), heading("Water boils at a hundred degrees", 2), heading("See", 2)]
    assert passages_of(*blocks) == [("Notes", "Water boils at a hundred degrees")]


def test_a_long_heading_is_shortened_where_it_stands_over_a_passage() -> None:
    [(section, _)] = passages_of(
        heading(" ".join(["very"] * 40)), heading(" ".join(["long"] * 40), 2), text("Short.")
    )
    assert section == " ".join(["very"] * 12) + "… > " + " ".join(["long"] * 30) + "…"


def test_a_passage_begins_where_its_first_block_does() -> None:
    blocks = [heading("A"), text(SENTENCE, 7), text(SENTENCE, 9), heading("B"), text("End.", 20)]
    assert [p.line for p in passages(blocks, "a.md")] == [7, 20]


CONTENTS = [
    "1. Sorting letters ........ 4",
    "2. Lost letters |lost|",
    "- [Keys of the depot](#keys)",
    "The post",
]


def test_a_table_of_contents_is_no_passage() -> None:
    plain = [line.replace("[", "").replace("](#keys)", "") for line in CONTENTS]
    sections = [
        part
        for title in ("Sorting letters", "Lost letters", "3. Keys of the depot", "The post")
        for part in (heading(title, 2), text(SENTENCE))
    ]
    for contents in ([Block("item", line, 1) for line in plain], [Block("code", "\n".join(plain), 1)]):
        assert passages_of(heading("Depot"), *contents, *sections) == passages_of(heading("Depot"), *sections)
    assert len(passages_of(heading("Depot"), *[text(line) for line in plain[:2]], *sections)) == 5


def test_what_repeats_earlier_headings_is_kept() -> None:
    titles = ("Sorting letters", "Lost letters", "The post")
    sections = [part for title in titles for part in (heading(title, 2), text(SENTENCE))]
    summary = [Block("item", title, 1) for title in titles]
    passages = passages_of(heading("Depot"), *sections, heading("Summary", 2), *summary)
    assert passages[-1] == ("Depot > Summary", "\n".join(titles))
