"""The embedded reader as one answer in words, for whoever compares what passages say."""

from kcard.llms.extract import extract

__all__ = ["ANSWERED", "SpanReader"]

ANSWERED = (
    0.38  # probability that an extract is right, below which it is not given (recipes/reader/calibrate.py)
)


class SpanReader:
    """A Reader of kcard.protocols, with the shipped weights."""

    def extract(self, question: str, text: str) -> str | None:
        """The words of the text that answer the question; None where it holds that none do."""
        found = extract(question, [text])
        return None if found is None or found.probability < ANSWERED else found.text
