"""Blocks become passages: under their headings, whole where they belong together, and without loss."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from kcard.training.embedded.recipe import train_tokenizer
from kcard.training.passages import PASSAGE, count_words, cut, passages
from kcard.training.readers.files import Block
from kcard.types import Source
from tests.training.documents import sections

LONG = " ".join(["It says a lot about what the option does to a letter."] * 5)
SENTENCE = "The quick clerk sorts the slow letters again and again today."


def heading(text: str, level: int = 1) -> Block:
    return Block("heading", text, 1, level)


def text(words: str, line: int = 1) -> Block:
    return Block("text", words, line)


def passages_of(*blocks: Block, file: str = "main.md") -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in passages(blocks, file)]


def test_lines_that_do_not_fit_together_are_pieces_of_their_own() -> None:
    lines = [" ".join([f"The clerk sorts the {word} again."] * 14) for word in ("letters", "parcels")]
    assert [*cut("\n".join(lines), PASSAGE)] == lines


@pytest.mark.parametrize(
    ("markdown", "passages"),
    [
        (
            "# Guide\n## Set up\n### Network\n#### Ports\nIt is 4711.",
            [("Guide > Network > Ports", "It is 4711.")],
        ),
        ("# A\n## B\nOne.\n## C\nTwo.\n# D\nTri.", [("A > B", "One."), ("A > C", "Two."), ("D", "Tri.")]),
        ("Open.\n## Hours\nNoon.", [("depot", "Open."), ("depot > Hours", "Noon.")]),
        # A telling heading without text is a text.
        (
            "# Notes\n## Water boils at a hundred degrees\n## See",
            [("Notes", "Water boils at a hundred degrees")],
        ),
        (
            f"# {'very ' * 40}\n## {'long ' * 40}\nShort.",
            [("very " * 11 + "very… > " + "long " * 29 + "long…", "Short.")],
        ),
        # A short definition is an item and a long one a section.
        ("# Options\n-q\n: Write nothing.\n", [("Options", "-q: Write nothing.")]),
        (
            f"# Options\n\n-v\n: {LONG}\n\nThat is all.",
            [("Options > -v", LONG), ("Options", "That is all.")],
        ),
    ],
)
def test_a_passage_stands_under_the_headings_and_terms_over_it(
    tmp_path: Path, markdown: str, passages: list[tuple[str, str]]
) -> None:
    assert sections(tmp_path, "depot.md", f"{markdown}\n") == passages


def test_terms_may_stand_within_definitions() -> None:
    outer = [heading("A"), Block("term", "outer", 1, 1), Block("term", "inner", 2, 2)]
    assert passages_of(*outer, text("Meaning.")) == [("A", "outer: inner: Meaning.")]
    assert passages_of(*outer, text(LONG)) == [("A > outer > inner", LONG)]


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


# Corpora in many scripts: each statement survives reading, hashing, tokenising and training, and keeps its limits.

STATEMENTS = {
    "Latin": ["Der Fluß fließt nach Süden.", "Cafe\u0301 Noir liegt in Genève."],
    "Cyrillic": ["Река течёт на юг.", "Ёлка стоит у окна."],
    "Greek": ["Ο ποταμός ρέει προς τον νότο.", "Η Αθήνα είναι μεγάλη."],
    "Chinese": ["这条河向南流。", "城里有三座桥。"],
    "Japanese": ["この川は南へ流れる。", "町には橋が三つある。"],
    "Korean": ["강은 남쪽으로 흐른다.", "마을에는 다리가 셋 있다."],
    "Thai": ["แม่น้ำไหลลงใต้", "ในเมืองมีสะพานสามแห่ง"],
    "Arabic": ["النهر يجري نحو الجنوب.", "هل في المدينة جسر؟"],
    "Hebrew": ["הנהר זורם דרומה.", "בָּעִיר יֵשׁ גֶּשֶׁר."],
    "Devanagari": ["नदी दक्षिण की ओर बहती है।", "शहर में तीन पुल हैं।"],
    "Emoji": ["The flag of the club is 🏴‍☠️ and its sign 👩🏽‍🚀.", "A smile 😀 stands for yes."],
}


@pytest.mark.parametrize("script", STATEMENTS)
def test_statements_survive_to_passages_and_through_the_tokenizer(script: str, tmp_path: Path) -> None:
    path = tmp_path / f"{script}.txt"
    path.write_text("\n".join(STATEMENTS[script]) + "\n", encoding="utf-8")
    corpus = read_corpus(path)
    assert [(p.text, p.line) for p in corpus.passages] == list(zip(STATEMENTS[script], (1, 2), strict=True))
    tokenizer = train_tokenizer(corpus.texts, 400)
    for text in corpus.texts:
        ids = tokenizer(text)["input_ids"]
        assert str(tokenizer.decode(ids, skip_special_tokens=True)).strip() == text


@pytest.mark.parametrize(
    ("sentence", "longest"),
    [
        ("这条河向南流。", 300),
        ("この川は南へ流れる。", 300),
        ("แม่น้ำไหลลงใต้ ", 650),
        ("नदी दक्षिण की ओर बहती है। ", 1200),
        ("هل في المدينة جسر؟ ", 1200),
        ("👩🏽‍🚀", 1200),
        ("e\u0301\u0323", 1200),
    ],
)
def test_long_text_is_cut_where_sentences_words_or_signs_end_and_nothing_is_lost(
    sentence: str, longest: int
) -> None:
    text = sentence * 900
    pieces = [*cut(text, PASSAGE)]
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert len(pieces) > 1
    for piece in pieces:
        assert len(piece) <= longest
        assert not piece.replace(sentence.strip(), "").strip()


# Of every word of a passage the line of the file is known that it stands on, in every format that has lines.

MARKDOWN = """# Backup

The first run is slow and copies
every file. Later runs are
quick.

- `--full` copies all,
  again. It is slow.

<p>Old copies are
deleted. Never by hand.</p>

```
backup --full
backup --list
```
"""
TEXT = """BACKUP

The first run is slow and copies
every file. Later runs are
quick.

  --full    copies all, again. It
            is slow.
  --list    shows what there is.

Old copies are
deleted. Never by hand.
"""
RST = """Backup
======

.. note:: The first run is slow and
   copies every file. Later runs are
   quick, see `the long
   page <http://a.example/>`_. Never by hand.

.. deprecated:: 6.2
   It is slow. Old copies stay.
"""
HTML = """<html><head><title>Backup</title><script>
var a = "Later runs";
</script></head><body><nav>
<a href="a">Later runs</a></nav>
<h1>Backup</h1>
<p>The first run is <b>slow</b> and
copies every file. Later
runs are quick.</p><!-- Never
by hand -->
<table><tr><th>Option</th><th>Meaning</th></tr>
<tr><td>--full</td>
<td>copies all. It is slow.</td></tr></table>
<p>Old copies &amp; others stay. Never by hand.</p>
</body></html>
"""


@pytest.mark.parametrize(
    ("name", "content"), [("a.md", MARKDOWN), ("a.txt", TEXT), ("a.rst", RST), ("a.html", HTML)]
)
def test_the_line_of_a_sentence_is_the_one_that_it_begins_on(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    passages = read_corpus(tmp_path).passages
    lines = content.split("\n")
    for sentence in (
        "The first run",
        "Later",
        "It is slow" if name != "a.txt" else "It",
        "Old copies",
        "Never by",
    ):
        [passage] = [passage for passage in passages if sentence in passage.text]
        place = passage.line_at(passage.text.index(sentence))
        assert sentence in lines[place - 1], (sentence, passage)


def test_the_lines_of_a_passage_travel_with_its_card(tmp_path: Path) -> None:
    from kcard.cards.passages import Indexing, passages, write_passages

    (tmp_path / "a.md").write_text(MARKDOWN)
    [passage, *_] = corpus = read_corpus(tmp_path / "a.md").passages
    assert passage.lines
    write_passages(tmp_path, corpus, "passages", {}, Indexing())
    assert passages(tmp_path)[0] == passage
    [again, *_] = read_corpus(tmp_path / "passages.jsonl").passages
    assert again.lines == passage.lines


@pytest.mark.parametrize("lines", ['[[1, "2"]]', "[[1]]", "4", '"ab"'])
def test_lines_that_are_no_numbers_are_refused(tmp_path: Path, lines: str) -> None:
    from kcard.cards.passages import passages
    from kcard.errors import CardError

    row = f'{{"text": "It is slow.", "file": "a.md", "line": 1, "lines": {lines}}}\n'
    (tmp_path / "passages.jsonl").write_text(row)
    with pytest.raises(CardError, match="lines must be pairs"):
        passages(tmp_path)[0]
