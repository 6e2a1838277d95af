"""Retrieved passages as candidates beside what cards wrote (Knowledge Card, appendix A)."""

from collections.abc import Sequence

from kcard.answer import Passage
from kcard.errors import UsageError
from kcard.integrators.baselines.retrieval import NAME
from kcard.protocols import Evidence, Generator
from kcard.request import Choice
from kcard.sampling import Sampling

__all__ = ["Beside"]

DESCRIPTION = "passages retrieved from a corpus"


class Beside:
    """A pool with one member more, which looks its documents up. Raises UsageError where a card has its name."""

    def __init__(self, writer: Generator, retriever: Evidence) -> None:
        if any(card.name == NAME for card in writer.cards):
            raise UsageError(
                f"a card is named {NAME!r}, as the retrieved passages are: leave it out of --cards"
            )
        self._writer, self._retriever = writer, retriever
        self.cards: Sequence[Choice] = (*writer.cards, Choice(NAME, DESCRIPTION))

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Generator; fewer than `documents` passages are retrieved where no more are found."""
        others = [name for name in cards if name != NAME]
        written = (
            self._writer.write(questions, others, documents, sampling) if others else [[] for _ in questions]
        )
        if NAME not in cards:
            return written
        found = [self._retriever.find(question, documents) for question in questions]
        return [
            [*own, *(Passage(NAME, source.text, source=source) for source in sources)]
            for own, sources in zip(written, found, strict=True)
        ]
