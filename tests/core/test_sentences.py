"""Sentences: names keep their full stops, nothing is lost, long texts take linear time."""

import subprocess
import sys
import time

import pytest

from kcard.text import pieces, split_sentences, whole


@pytest.mark.parametrize(
    "sentences",
    [
        ["Ron Wyden won the U.S. Senate race in Oregon, defeating Jo Rae Perkins.", "Sen. X was there."],
        ["J. D. Vance won in Ohio!", "He got 53.3% of the vote, i.e. more than Tim Ryan."],
        ["Thomas H. Kean Jr. won New Jersey's 7th district.", "Dr. Who lives in St. Louis."],
        ["The town was founded c. 1850.", "It grew approx. tenfold."],
        ["今天天气很好。", "我们去公园。"],
    ],
)
def test_initials_titles_and_abbreviations_end_no_sentence(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_line_break_ends_a_sentence() -> None:
    assert split_sentences("A fact\nAnother fact\n\n") == ["A fact", "Another fact"]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_no_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


def test_nothing_but_white_space_is_lost() -> None:
    text = 'He said "no." She (born c. 1900) left... Really?! It cost $5.5 million, e.g. twice as much. ' * 40
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_a_last_sentence_that_was_cut_off_is_not_whole() -> None:
    assert whole("Ron Wyden won. In the 2022 elections, Oreg") == ["Ron Wyden won."]
    assert whole("In the 2022 elections, Oreg") == ["In the 2022 elections, Oreg"]
    assert whole("A list\nof things\nwithout full stops") == ["A list", "of things", "without full stops"]


def test_a_long_text_is_split_in_linear_time() -> None:
    text = "Ron Wyden won the 2022 U.S. Senate race in Oregon, defeating Jo Rae Perkins. " * 1000
    start = time.perf_counter()
    assert len(split_sentences(text)) == 1000
    assert time.perf_counter() - start < 5, "pysbd alone takes about as long as the square of the length"


def test_the_splitter_loads_without_a_warning_even_when_it_is_compiled_anew(tmp_path: object) -> None:
    code = "from kcard.text import split_sentences as split; assert split('One. Two.') == ['One.', 'Two.']"
    command = [
        sys.executable,
        "-X",
        f"pycache_prefix={tmp_path}",
        "-W",
        "error::SyntaxWarning",
        "-W",
        "error",
        "-c",
    ]
    done = subprocess.run([*command, code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "text", ["a. b. c. " * 5000, "他赢了。" * 12_000, "Mr. J. R. " * 5000, "?!" * 20_000]
)
def test_a_text_of_little_but_full_stops_is_split_quickly_and_whole(text: str) -> None:
    start = time.process_time()
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert time.process_time() - start < 2, "pysbd takes 20 to 40 seconds"


def test_pieces_end_where_sentences_do() -> None:
    text = "Ron Wyden won the 2022 U.S. Senate race in Oregon, defeating Jo Rae Perkins. " * 40
    parts = pieces(f"{text}\nAnother line")
    assert parts[-1] == "Another line"
    assert all(piece.strip().endswith("Perkins.") and len(piece) <= 1000 for piece in parts[:-1])
