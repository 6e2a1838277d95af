"""The embedded reader: what it says of a passage stands in the passage, and depends on nothing else."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kcard.batching import LRUCache
from kcard.embedded import reader
from kcard.embedded.reader import (
    MAX_TOKENS,
    QUESTION_TOKENS,
    Encoded,
    Outputs,
    PassageReading,
    ReaderNetwork,
    count_tokens,
    encode,
    extend_to_words,
    load_reader,
    read,
    shared_reader,
)
from kcard.errors import ModelUnavailable

QUESTION = "Who built the lighthouse of Port Callow?"
TOWER = (
    "The lighthouse of Port Callow was built in 1871 by Halden & Co. Its lamp burns oil. Nobody lives there."
)
MILL = "Osric & Sons built the mill of Upper Tarn;\n  its wheel is (still) turning."
ODD = "Ünïcödé tärm—“quoted”, 北京 and 🙂 ﬁne."
ROOMS = " ".join(f"Room {number} of the mill stood empty for many years." for number in range(50))
LONG = f"{ROOMS} {TOWER} {ROOMS}"
TEXTS = [TOWER, MILL, ODD, LONG]


@pytest.fixture(scope="module")
def network() -> ReaderNetwork:
    return shared_reader()


@pytest.fixture(scope="module")
def readings(network: ReaderNetwork) -> dict[str, PassageReading]:
    """Each text read alone."""
    return {text: read(QUESTION, [text], network)[0] for text in [*TEXTS, ""]}


def numbers(reading: PassageReading) -> list[float]:
    return [reading.relevance, *(s.evidence for s in reading.sentences)]


def test_a_reading_does_not_depend_on_the_other_passages(
    network: ReaderNetwork, readings: dict[str, PassageReading]
) -> None:
    texts = [*TEXTS, "", MILL]
    for text, reading in zip(texts, read(QUESTION, texts, network), strict=True):
        assert numbers(reading) == pytest.approx(numbers(readings[text]), abs=1e-3)
        assert [a.text for a in reading.answers[:1]] == [a.text for a in readings[text].answers[:1]]


@pytest.mark.parametrize("text", TEXTS)
def test_answers_are_whole_words_that_do_not_overlap_and_the_best_comes_first(
    readings: dict[str, PassageReading], text: str
) -> None:
    reading = readings[text]
    places = sorted((a.start, a.start + len(a.text)) for a in reading.answers)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    for start, end in places:
        assert not (text[start - 1 : start].isalnum() and text[start].isalnum())
        assert not (text[end : end + 1].isalnum() and text[end - 1].isalnum())
        assert text[start:end] == text[start:end].strip(" \n.,;:()\"'")
    assert [*reading.answers] == sorted(reading.answers, key=lambda a: -a.certainty)


def test_a_long_passage_is_read_to_its_end(
    network: ReaderNetwork, readings: dict[str, PassageReading]
) -> None:
    reading = readings[LONG]
    assert reading.answers[0].text == "Halden & Co"
    assert reading.answers[0].start == LONG.index("Halden & Co")
    (without,) = read(QUESTION, [ROOMS], network)
    assert reading.relevance > without.relevance


def test_a_passage_that_answers_is_more_relevant_than_one_that_does_not(network: ReaderNetwork) -> None:
    right, wrong = read(QUESTION, [TOWER, MILL], network)
    assert right.relevance > wrong.relevance
    assert 0 < wrong.probability < right.probability < 1


def test_texts_without_words_answer_nothing_and_no_passages_give_no_readings(network: ReaderNetwork) -> None:
    for reading in read(QUESTION, ["", "   ", "\n\n"], network):
        assert (reading.answers, reading.sentences) == ((), ())
        assert reading.probability < 1e-9
    assert read(QUESTION, []) == []


def test_a_question_of_any_length_is_read(network: ReaderNetwork) -> None:
    for question in ("", "word " * 600):
        (reading,) = read(question, [TOWER], network)
        assert len(reading.sentences) == 3
    assert count_tokens("word " * 600) == 600


def test_what_is_remembered_is_bounded_and_nothing_is_missing_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "memory", LRUCache(2))
    texts = [f"Room {number} is empty." for number in range(5)]
    first, *_, last, again = read(QUESTION, [*texts, texts[0]])
    assert again is first
    assert read(QUESTION, texts[-1:])[0] is last
    assert read(QUESTION, texts[:1])[0] is not first


def test_a_pair_is_cut_to_the_window_and_its_text_is_marked() -> None:
    long, short = encode([("word " * 600, ROOMS), (QUESTION, "Titan.")])
    assert len(long.ids) <= MAX_TOKENS
    assert long.begin == QUESTION_TOKENS + 2
    for pair in (long, short):
        assert len(pair.ids[pair.text]) == len(pair.offsets) == len(pair.ids) - pair.begin - 1
    assert "Titan."[slice(*short.offsets[0])] == "Titan"


def test_missing_weights_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"which comes with kcard, can't be read .*: reinstall kcard"):
        load_reader(tmp_path)


@pytest.mark.parametrize(
    ("text", "chosen", "answer"),
    [
        ("The size is in /etc/papersize.", "papersize", "/etc/papersize"),
        ("Give --keep-last 1 to it.", "keep", "--keep-last"),
        ("It needs Go 1.15.2, or later.", "15", "1.15.2"),
        ("It reads ~/.netrc, then asks.", "netrc", "~/.netrc"),
        ("He lived from 1950-2000.", "1950", "1950"),
        ("A well-known man came.", "well", "well"),
        ("It takes ‘-g’, or not.", "g", "-g"),
        ("Give -R to it.", "R", "-R"),
        ("Give --foo-bar=BAZ to it.", "bar", "--foo-bar=BAZ"),
        ("It is 1.2.3-4 now.", "2", "1.2.3-4"),
        ("Call foo.bar() first.", "bar", "foo.bar()"),
        ("See printf(3).", "printf", "printf(3)"),
        ("It is (in the end) printf.", "end", "end"),
        ("It lies in $HOME.", "HOME", "$HOME"),
        ("It lies in ${HOME}/bin.", "bin", "${HOME}/bin"),
        ("It is written in C++.", "C", "C++"),
        ("Press Ctrl+Z!", "Z", "Ctrl+Z"),
        ("It uses 50% of it.", "50", "50%"),
        ("Copy *.gif files.", "gif", "*.gif"),
        ("It does **not** work.", "not", "not"),
        ("It is -h,--help now.", "h", "-h,--help"),
        ("Look in the ‘bin’ folder.", "bin’ folder", "‘bin’ folder"),
        ("Say “go on” to it.", "“go on", "go on"),
        ("Its 'bin's are empty.", "bin's", "bin's"),
    ],
)
def test_a_path_an_option_and_a_version_are_one_word(text: str, chosen: str, answer: str) -> None:
    def network(pairs: Sequence[Encoded]) -> list[Outputs]:
        (pair,) = pairs
        at = text.index(chosen)
        begins = np.array([9.0 * (a == at) for a, _ in pair.offsets], np.float32)
        ends = np.array([9.0 * (b == at + len(chosen)) for _, b in pair.offsets], np.float32)
        return [Outputs(begins, ends, begins, 1.0)]

    (reading,) = read("Which?", [text], network)
    assert reading.answers[0].text == answer


@pytest.mark.parametrize(
    ("text", "span", "whole"),
    [
        ("Built by Kessel (Bern) in 1900.", "Kessel (Bern", "Kessel (Bern)"),
        ("Built by Kessel (of Bern. And more) in 1900.", "Kessel (of", "Kessel"),
        ("See (Halden & Co) there.", "Halden & Co)", "Halden & Co"),
        ("It costs [31 coins net] now.", "31 coins net]", "[31 coins net]"),
        ("A **Kessel** mill.", "*Kessel*", "Kessel"),
    ],
)
def test_no_answer_ends_within_brackets_or_has_marks_at_its_ends(text: str, span: str, whole: str) -> None:
    begin = text.index(span)
    start, end = extend_to_words(text, begin, begin + len(span))
    assert text[start:end] == whole
