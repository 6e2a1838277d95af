"""Lets cards write for many questions that want different cards, with as few calls as can be."""

from collections.abc import Sequence

from kcard.answer import Passage
from kcard.batches import alike
from kcard.protocols import Generator, Scheduling
from kcard.sampling import Sampling

__all__ = ["write"]


def write(
    writer: Generator,
    questions: Sequence[str],
    cards: Sequence[Sequence[str]],
    documents: int,
    sampling: Sampling,
) -> list[list[Passage]]:
    """For each question, `documents` passages of each of its own cards; see Generator."""
    if isinstance(writer, Scheduling):
        return writer.write_each(questions, cards, documents, sampling)
    written: list[list[Passage]] = [[] for _ in questions]
    for names, rows in alike(map(tuple, cards)).items():
        if names:
            passages = writer.write([questions[row] for row in rows], names, documents, sampling)
            for row, own in zip(rows, passages, strict=True):
                written[row] = own
    return written
