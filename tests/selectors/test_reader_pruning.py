"""Pruning by the reader: the sentences that an answer rests on stay, word for word and in order."""

import pytest

from kcard.offline.reader import Sentence, read
from kcard.selectors.pruning import ReaderPruner
from kcard.text import sentence_spans, split_sentences

QUESTION = "Who built the lighthouse of Port Callow?"
ANSWER = "The lighthouse of Port Callow was built by Halden & Co."
OTHERS = ["Trout live in cold brooks.", "Penguins eat krill and small fish.", "Oaks may stand for long."]
TEXT = " ".join([OTHERS[0], ANSWER, *OTHERS[1:]])


def test_the_sentence_that_answers_stays() -> None:
    (pruned,) = ReaderPruner(near=0.0).prune(QUESTION, [TEXT])
    assert pruned == ANSWER


@pytest.mark.parametrize("near", [0.0, 0.5, 2.5, 1000.0])
def test_what_falls_behind_the_best_by_more_than_near_goes(near: float) -> None:
    (pruned,) = ReaderPruner(near=near).prune(QUESTION, [TEXT])
    sentences = read(QUESTION, [TEXT])[0].sentences
    best = max(sentence.evidence for sentence in sentences)
    kept: list[Sentence] = [s for s in sentences if s.evidence >= best - near]
    assert pruned.split("\n") == [TEXT[s.start : s.end] for s in kept]


def test_with_all_near_enough_nothing_goes() -> None:
    assert ReaderPruner(near=1000.0).prune(QUESTION, [TEXT])[0].split("\n") == split_sentences(TEXT)


@pytest.mark.parametrize("text", ["", "  ", "One. Two.", " Kept as  it is. ", "no stop"])
def test_a_short_text_is_returned_as_it_is(text: str) -> None:
    assert len(sentence_spans(text)) <= 2
    assert ReaderPruner().prune(QUESTION, [text]) == [text]


def test_texts_are_pruned_alike_alone_and_in_company() -> None:
    texts = [TEXT, "One. Two.", " ".join([*OTHERS, ANSWER]), TEXT]
    pruner = ReaderPruner()
    assert pruner.prune(QUESTION, texts) == [pruner.prune(QUESTION, [text])[0] for text in texts]
