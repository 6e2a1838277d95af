"""The embedded reader as one answer in words, for whoever compares what passages say."""

from dataclasses import dataclass

from kcard.llms.extract import extract

__all__ = ["ANSWERED", "SpanReader"]

# Probability that an extract is right, below which it is not given (recipes/reader/calibrate.py).
ANSWERED = 0.38


@dataclass(frozen=True)
class SpanReader:
    """A Reader of kcard.protocols, with the shipped weights."""

    def extract(self, question: str, text: str) -> str | None:
        """The words of the text that answer the question; None where it is not sure of any."""
        found = extract(question, [text])
        if found is None or not found.words or found.probability < ANSWERED:
            return None
        return found.text
