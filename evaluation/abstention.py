"""Whether a question is answered or admitted as unanswerable, as far as the documents of a card decide it.

The embedded reader judges, so that the figure is the card's and not that of the LLM which happens to answer.
"""

from collections.abc import Sequence

from kcard.evaluation.asking import Rows
from kcard.evaluation.progress import Report, StepProgress
from kcard.evaluation.questions import Question

__all__ = ["answered"]

SURE = 0.5


def answered(questions: Sequence[Question], rows: Rows, report: Report) -> list[float]:
    """For each question 1.0 where the reader holds that one of its documents answers it, else 0.0."""
    from kcard.reader.reading import read

    found: list[float] = []
    for question, row in zip(questions, rows, strict=True):
        texts = [passage.knowledge for passage in row if passage.text.strip()]
        best = max((reading.probability for reading in read(question.text, texts)), default=0.0)
        found.append(float(best >= SURE))
        report(StepProgress("judging the documents", len(found), len(questions)))
    return found
