"""Reading corpora: what becomes a passage, where it is said to come from, and what is refused."""

import json
from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_each_line_of_a_list_of_statements_is_a_passage_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, "facts.txt", "Ada won in Ohio.\n\nBo lost in Iowa.\nA second sentence. And a third.\n"
    )
    found = read_corpus(path).passages
    assert [(p.text, p.file, p.line) for p in found] == [
        ("Ada won in Ohio.", "facts.txt", 1),
        ("Bo lost in Iowa.", "facts.txt", 3),
        ("A second sentence. And a third.", "facts.txt", 4),
    ]


def test_wrapped_prose_is_joined_and_long_paragraphs_are_cut_on_sentence_borders(tmp_path: Path) -> None:
    sentence = "The Panthers gave up just 308 points and led the league in interceptions with 24 that year."
    path = write(
        tmp_path, "prose.txt", "A line that\ngoes on below.\n\n" + " ".join([sentence] * 2 + ["End."] * 60)
    )
    texts = read_corpus(path).texts
    assert texts[0] == "A line that goes on below."
    assert texts[1] == sentence
    assert all(text.count(" ") < 60 for text in texts)


def test_a_sentence_without_borders_is_cut_and_loses_no_word(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(150)]
    texts = read_corpus(write(tmp_path, "long.txt", " ".join(words))).texts
    assert len(texts) > 2
    assert " ".join(texts).split() == words


def test_text_without_blanks_between_words_is_cut_too(tmp_path: Path) -> None:
    text = "北京是中华人民共和国的首都" * 60
    texts = read_corpus(write(tmp_path, "zh.txt", text)).texts
    assert all(len(part) <= 480 for part in texts)


def test_markdown_loses_headings_code_and_markup(tmp_path: Path) -> None:
    text = (
        "---\ntitle: x\n---\n# Heading\n\nThe **river** [Rhine](http://x.y) is\nlong.\n\n- one `item`\n- another\n\n"
        "```\ncode = 1\n```\n\n| name | seat |\n|---|---|\n| Ada | Ohio |\n"
    )
    found = read_corpus(write(tmp_path, "notes.md", text)).passages
    assert [p.text for p in found] == [
        "The river Rhine is long.",
        "one item",
        "another",
        "name, seat",
        "Ada, Ohio",
    ]
    assert [p.line for p in found] == [6, 9, 10, 16, 18]


def test_jsonl_takes_any_of_the_known_keys(tmp_path: Path) -> None:
    rows = [{"text": "One."}, {"passage": "Two."}, {"content": "Three."}, {"fact": "Four."}]
    path = write(tmp_path, "c.jsonl", "\n".join(json.dumps(row) for row in rows))
    assert read_corpus(path).texts == ["One.", "Two.", "Three.", "Four."]


def test_a_folder_is_read_in_name_order_and_lists_what_it_skipped(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "Second.")
    write(tmp_path, "a/x.md", "First.")
    write(tmp_path, "empty.txt", "\n")
    write(tmp_path, "README.md", "About these files.")
    write(tmp_path, "photo.png", "x")
    write(tmp_path, ".hidden.txt", "Not read.")
    corpus = read_corpus(tmp_path)
    assert [(p.text, p.file) for p in corpus.passages] == [("First.", "a/x.md"), ("Second.", "b.txt")]
    assert {file for file, _ in corpus.skipped} == {"empty.txt", "README.md", "photo.png"}


def test_duplicates_count_once_and_the_digest_is_of_the_texts_alone(tmp_path: Path) -> None:
    one = read_corpus(write(tmp_path, "one.txt", "A fact.\nA  fact.\nB fact.\n"))
    two = read_corpus(write(tmp_path, "two.txt", "A fact.\n\nB fact.\n"))
    other = read_corpus(write(tmp_path, "three.txt", "A fact.\nC fact.\n"))
    assert one.duplicates == 1
    assert one.sha256 == two.sha256 != other.sha256


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("none.txt", None, "does not exist"),
        ("empty.txt", b"  \n", "holds no text"),
        ("table.csv", b"a,b\n", "is a .csv file"),
        ("bytes.txt", b"fine\nnot \xff\xfe\n", "bytes.txt:2 is not UTF-8"),
        ("binary.txt", b"a\0b", "binary.txt:1 is not UTF-8"),
        ("bad.jsonl", b'{"text": "ok"}\n{"text": \n', "bad.jsonl:2 is not JSON"),
        ("key.jsonl", b'{"body": "x"}\n', "key.jsonl:1 has no string under text"),
        ("list.jsonl", b"[1]\n", "list.jsonl:1 has no string under text"),
    ],
)
def test_an_unreadable_corpus_is_one_clear_line(
    tmp_path: Path, name: str, data: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(CorpusError, match=said) as error:
        read_corpus(path)
    assert "\n" not in str(error.value)


def test_a_folder_with_nothing_to_read_says_why(tmp_path: Path) -> None:
    write(tmp_path, "a.pdf", "x")
    with pytest.raises(CorpusError, match=r"a\.pdf: not one of"):
        read_corpus(tmp_path)
