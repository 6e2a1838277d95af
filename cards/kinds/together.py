"""Several cards at once: those of one group in one batch, the others one after another."""

import logging
from collections.abc import Iterable, Sequence

from kcard.answer import Passage
from kcard.cards.kinds.both import Both
from kcard.cards.kinds.table import CardGenerator
from kcard.sampling import Sampling

__all__ = ["write"]

# By question.
Rows = list[list[Passage]]


def write(
    writers: Iterable[CardGenerator], questions: Sequence[str], documents: int, sampling: Sampling
) -> list[list[Passage]]:
    """For each question what each writer writes by itself, in their order.

    A writer that has a model of its own writes as soon as it comes, so that it need not stay in memory.
    """
    from kcard.cards.lm.stacked import StackedCard

    slots: list[Rows] = []
    groups: dict[int, dict[int, StackedCard]] = {}
    for writer in writers:
        for part in (writer.model, writer.index) if isinstance(writer, Both) else (writer,):
            if isinstance(part, StackedCard):
                groups.setdefault(id(part.group), {})[len(slots)] = part
                slots.append([])
            else:
                _tell(part)
                slots.append(part.write(questions, documents, sampling))
    for cards in groups.values():
        asked = [card.asked for card in cards.values()]
        written = next(iter(cards.values())).group.write(asked, questions, documents, sampling)
        for slot, rows in zip(cards, written, strict=True):
            slots[slot] = rows
    return [[passage for rows in slots for passage in rows[i]] for i in range(len(questions))]


def _tell(part: CardGenerator) -> None:
    """Say once of a card with a model why it does not write with others."""
    from kcard.cards.lm.causal import CausalCard

    if isinstance(part, CausalCard) and part.apart:
        logging.getLogger(__name__).warning(
            "card %s writes by itself, not in one batch with other cards, which would be faster: %s",
            part.name,
            part.apart,
        )
        part.apart = ""
