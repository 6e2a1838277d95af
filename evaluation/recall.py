"""Recall: in how many of the documents that a card wrote the answer occurs, and in how many it would anyway."""

from collections.abc import Sequence

from kcard.evaluation.metrics import Searched, substring
from kcard.evaluation.questions import Question

__all__ = ["CHANCE", "chance", "recalled"]

CHANCE = "chance"
# Other questions whose documents stand in for an unrelated one.
OTHERS = 200


def recalled(questions: Sequence[Question], documents: Sequence[Sequence[str]]) -> list[float]:
    """For each question 1.0 where one of its documents holds an accepted answer, as whole words, else 0.0."""
    return [
        float(any(substring(text, question.answers) for text in group))
        for question, group in zip(questions, documents, strict=True)
    ]


def chance(questions: Sequence[Question], documents: Sequence[Sequence[str]]) -> list[float]:
    """For each question the share of other questions' documents that hold its answer too, in [0, 1].

    This is what a card would recall whose documents had nothing to do with the questions: the mean over
    shuffles of them, computed rather than drawn. Of more than OTHERS others, evenly spread ones are taken.
    Neighbours may tell of the same fact, so it is rather too high than too low. Empty for a single question.
    """
    count = len(questions)
    if count < 2:
        return []
    pages = [[Searched(text) for text in group] for group in documents]
    taken = min(count - 1, OTHERS)
    steps = [1 + i * (count - 1) // taken for i in range(taken)]
    found = []
    for at, question in enumerate(questions):
        others = (pages[(at + step) % count] for step in steps)
        found.append(sum(any(text.holds(question.answers) for text in page) for page in others) / taken)
    return found
