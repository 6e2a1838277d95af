"""Plain text: lists of facts, notes, and the lines of a file."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from kcard.training.readers.encodings import is_plausible
from tests.training.documents import written


def test_each_line_of_a_list_of_statements_is_a_passage_with_its_line(tmp_path: Path) -> None:
    path = written(
        tmp_path, "facts.txt", "Ada won in Ohio.\n\nBo lost in Iowa.\nA second sentence. And a third.\n"
    )
    passages = read_corpus(path).passages
    assert [(p.text, p.file, p.line) for p in passages] == [
        ("Ada won in Ohio.", "facts.txt", 1),
        ("Bo lost in Iowa.", "facts.txt", 3),
        ("A second sentence. And a third.", "facts.txt", 4),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_every_kind_of_line_end_counts_lines_and_a_byte_order_mark_decides_how_a_text_is_read(
    tmp_path: Path, end: str, encoding: str
) -> None:
    written(tmp_path, "a.txt", f"Titan är stor.{end}{end}Io är het.{end}".encode(encoding))
    written(tmp_path, "b.csv", f"text{end}Triton är kall.{end}".encode(encoding))
    assert [(p.text, p.line) for p in read_corpus(tmp_path).passages] == [
        ("Titan är stor.", 1),
        ("Io är het.", 3),
        ("Triton är kall.", 1),
    ]


def test_a_line_without_end_is_read_in_parts_that_lose_no_word(tmp_path: Path) -> None:
    words = [f"wörd{i}" for i in range(30_000)]
    passages = read_corpus(written(tmp_path, "long.txt", " ".join(words))).passages
    assert " ".join(p.text for p in passages).split() == words
    assert {p.line for p in passages} == {1}


def test_lines_without_letters_stay_with_what_they_belong_to(tmp_path: Path) -> None:
    text = (
        "Numbers of the mill\n\nOffice:\n+47 555 0199\n\nBill\n18.50 €\n7\n\nMiller:\nAnn Lind\n\n"
        "Opening hours\n\n08:00 - 16:00\n\nThe mill is old.\n1848\n"
    )
    (passage,) = read_corpus(written(tmp_path, "mill.txt", text)).passages
    assert passage.text == "\n".join(line for line in text.split("\n") if line)
    assert passage.lines[:3] == ((4, 3), (5, 4), (8, 6))
    # A list of facts is one of sentences.
    facts = "".join(f"The mill {n} is old.\n" for n in range(20))
    corpus = read_corpus(written(tmp_path, "facts.txt", f"{facts}The last one is of\n1848\n"))
    assert (corpus.passages[-1].line, corpus.passages[-1].text) == (21, "The last one is of 1848")
    assert corpus.passages[-1].lines == ((5, 22),)
    assert corpus.left_out == {}


def test_neighbouring_lines_of_notes_are_one_passage(tmp_path: Path) -> None:
    pages = "Severity 1\nThe incident commander is paged.\nresponds within 15 minutes\n"
    corpus = read_corpus(written(tmp_path, "pages.txt", pages))
    assert [passage.text for passage in corpus.passages] == [pages.strip()]
    # Sentences in paragraphs are notes, too.
    text = "The commander is Ines.\nShe responds within 15 minutes.\n\nThe hall is open.\nIt closes at 6.\n"
    corpus = read_corpus(written(tmp_path, "hall.txt", text))
    assert len(corpus.passages) == 1
    assert corpus.passages[0].lines == ((4, 2), (9, 4), (13, 5))


def test_a_paragraph_of_notes_is_not_cut_where_it_fits_into_a_passage(tmp_path: Path) -> None:
    lines = [f"Severity {n}\n{'so many words ' * 12}here\nresponds within {n} minutes\n" for n in range(1, 9)]
    passages = read_corpus(written(tmp_path, "pages.txt", "\n".join(lines))).passages
    assert len(passages) > 2
    for passage in passages:
        assert passage.text.startswith("Severity ")
        assert passage.text.endswith(" minutes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Äpfel.", True), ("Äpfel\x07", False), ("Äpfel\ue000", False), ("Äpfel\x80", False)],
)
def test_a_text_with_control_characters_or_signs_of_private_use_is_not_plausible(
    text: str, expected: bool
) -> None:
    assert is_plausible(text, is_latin=True) is expected
