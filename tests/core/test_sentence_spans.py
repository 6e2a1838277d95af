"""Where the sentences of a text stand in it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.text import sentence_spans, split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A fact.\n  Another  one. ", ["A fact.", "Another  one."]),
        ("Dr. Lee came.  She left.", ["Dr. Lee came.", "She left."]),
        ("A line\nof (odd) text? [x]* End", ["A line", "of (odd) text?", "[x]* End"]),
        ("今天天气很好。我们去公园。", ["今天天气很好。", "我们去公园。"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_each_sentence_is_found_in_its_place(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in sentence_spans(text)] == expected


def test_a_sentence_that_comes_again_has_a_place_of_its_own() -> None:
    assert sentence_spans("Same. Same. Same.") == [(0, 5), (6, 11), (12, 17)]


SENTENCES = st.sampled_from(
    ["A fact.", "Same.", "Dr. X came!", "3.5 (or 4)?", "no stop", "他赢了。", "Ünï [*+]."]
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\n\n  ", "\t"])


@settings(max_examples=60)
@given(st.lists(st.tuples(SENTENCES, BLANKS), max_size=8))
def test_the_places_are_those_of_the_sentences_in_order(parts: list[tuple[str, str]]) -> None:
    text = "".join(f"{sentence}{blank}" for sentence, blank in parts)
    places = sentence_spans(text)
    assert [" ".join(text[start:end].split()) for start, end in places] == [
        " ".join(sentence.split()) for sentence in split_sentences(text)
    ]
    assert places == sorted(places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
