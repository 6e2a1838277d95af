"""Pruning: the sentences that serve the question stay, word for word and in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.selectors.pruning import Extractive
from kcard.text import split_sentences

QUESTION = "Who won the senate race in Oregon in 2022?"
ANSWER = "Ron Wyden won the 2022 senate race in Oregon."
OTHER = "Penguins eat krill and small fish."


def test_sentences_that_serve_the_question_stay_and_others_go() -> None:
    assert Extractive().prune(QUESTION, [f"{OTHER} {ANSWER}"]) == [ANSWER]


def test_sentences_that_serve_alike_stay_in_their_order() -> None:
    second = "In Oregon, Ron Wyden won the senate race of 2022 with 56 percent."
    assert Extractive().prune(QUESTION, [f"{second} {OTHER} {ANSWER}"]) == [f"{second} {ANSWER}"]


@pytest.mark.parametrize("text", [ANSWER, "no full stop at all", "", "  ", " Kept as it is. "])
def test_a_text_of_one_sentence_is_returned_as_it_is(text: str) -> None:
    assert Extractive().prune(QUESTION, [text]) == [text]


def test_a_sentence_that_was_cut_off_goes_where_a_whole_one_is_there() -> None:
    assert Extractive().prune(QUESTION, [f"{ANSWER} The senate race in Oreg"]) == [ANSWER]


def test_at_most_three_sentences_stay_and_a_repeated_one_stands_once() -> None:
    texts = [f"Ron Wyden won the senate race in Oregon in 2022, round {i}." for i in range(5)]
    (pruned,) = Extractive().prune(QUESTION, [" ".join(texts)])
    assert len(split_sentences(pruned)) == 3
    assert Extractive().prune(QUESTION, [f"{ANSWER} {ANSWER}"]) == [ANSWER]


def test_a_text_is_pruned_alike_alone_and_in_company() -> None:
    texts = [f"{OTHER} {ANSWER}", ANSWER, f"{ANSWER} Oregon voted in November. {OTHER}"]
    assert Extractive().prune(QUESTION, texts) == [Extractive().prune(QUESTION, [t])[0] for t in texts]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([ANSWER, OTHER, "J. D. Vance won in Ohio!", "cut off", "他赢了。"]), max_size=6)
)
def test_pruning_adds_nothing_and_empties_nothing(sentences: list[str]) -> None:
    text = " ".join(sentences)
    (pruned,) = Extractive().prune(QUESTION, [text])
    assert bool(pruned) == bool(text)
    words = iter(text.split())
    assert all(word in words for word in pruned.split())  # in their order, with gaps
