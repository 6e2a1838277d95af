"""Pruning: the sentences that serve the question stay, word for word and in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.embedded.reader import Sentence, read
from kcard.selectors.pruning import Extractive, ReaderPruner
from kcard.text import sentence_spans, split_sentences

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


# Pruning by the reader: the sentences that an answer rests on stay, word for word and in order.

LIGHTHOUSE = "Who built the lighthouse of Port Callow?"
BUILT = "The lighthouse of Port Callow was built by Halden & Co."
ASIDES = ["Trout live in cold brooks.", "Penguins eat krill and small fish.", "Oaks may stand for long."]
LIGHTHOUSE_TEXT = " ".join([ASIDES[0], BUILT, *ASIDES[1:]])


def test_the_reader_keeps_the_sentence_that_answers() -> None:
    (pruned,) = ReaderPruner(near=0.0).prune(LIGHTHOUSE, [LIGHTHOUSE_TEXT])
    assert pruned == BUILT


@pytest.mark.parametrize("near", [0.0, 0.5, 2.5, 1000.0])
def test_what_the_reader_finds_behind_the_best_by_more_than_near_goes(near: float) -> None:
    (pruned,) = ReaderPruner(near=near).prune(LIGHTHOUSE, [LIGHTHOUSE_TEXT])
    sentences = read(LIGHTHOUSE, [LIGHTHOUSE_TEXT])[0].sentences
    best = max(sentence.evidence for sentence in sentences)
    kept: list[Sentence] = [s for s in sentences if s.evidence >= best - near]
    assert pruned.split("\n") == [LIGHTHOUSE_TEXT[s.start : s.end] for s in kept]


@pytest.mark.parametrize("text", ["", "  ", "One. Two.", " Kept as  it is. ", "no stop"])
def test_the_reader_returns_a_short_text_as_it_is(text: str) -> None:
    assert len(sentence_spans(text)) <= 2
    assert ReaderPruner().prune(LIGHTHOUSE, [text]) == [text]


def test_the_reader_prunes_texts_alike_alone_and_in_company() -> None:
    texts = [LIGHTHOUSE_TEXT, "One. Two.", " ".join([*ASIDES, BUILT]), LIGHTHOUSE_TEXT]
    pruner = ReaderPruner()
    assert pruner.prune(LIGHTHOUSE, texts) == [pruner.prune(LIGHTHOUSE, [text])[0] for text in texts]
