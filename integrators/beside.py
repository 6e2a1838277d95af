"""Retrieved passages as candidates beside what cards wrote (Knowledge Card, appendix A)."""

from collections.abc import Sequence

from kcard.answer import Passage
from kcard.errors import UsageError
from kcard.integrators import grouped
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

    @property
    def take_turns(self) -> bool:
        return bool(getattr(self._writer, "take_turns", False))

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Generator; fewer than `documents` passages are retrieved where no more are found."""
        return self.write_each(questions, [cards] * len(questions), documents, sampling)

    def write_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        others = [[name for name in names if name != NAME] for names in cards]
        written = grouped.write(self._writer, questions, others, documents, sampling)
        return [
            [*own, *self._retrieved(question, documents)] if NAME in names else own
            for question, names, own in zip(questions, cards, written, strict=True)
        ]

    def _retrieved(self, question: str, documents: int) -> list[Passage]:
        found = self._retriever.find(question, documents)
        return [Passage(NAME, source.text, source=source) for source in found]
