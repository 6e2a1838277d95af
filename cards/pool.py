"""Every card that may be asked, loaded when it is first needed and kept: the Generator of kcard.protocols.

It knows names and passages; what kinds of cards there are, and models, it does not know.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kcard.answer import Passage
from kcard.cards.format.folder import Card, CardHandle, CardSet
from kcard.cards.kinds.generator import Both, CardGenerator, load
from kcard.cards.lm.loader import ROWS, Loader
from kcard.errors import UnknownCard
from kcard.protocols import LLM
from kcard.request import Choice
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.lm.stacked import StackedCard

__all__ = ["Pool"]


class Pool:
    """Cards that write passages.

    rows    most documents written at once; less where memory is short
    llm     what finds the LLM that a card names (kcard.cards.kinds.llm)
    memory  bytes that the weights of cards may take; None: half of what the device has. Cards that were asked
            longest ago leave, and are read again when they are asked
    loader  what holds the models, for pools that share them; then its device, rows and memory count
    """

    def __init__(
        self,
        cards: Sequence[Card | CardHandle | Path] | CardSet,
        device: str = "cpu",
        rows: int = ROWS,
        llm: Callable[[str], LLM] | None = None,
        memory: int | None = None,
        loader: Loader | None = None,
    ) -> None:
        self._cards = cards if isinstance(cards, CardSet) else CardSet(cards)
        self._choices = [Choice(m.name, m.description, m.knowledge_date) for m in self._cards.manifests]
        self._models = loader or Loader(device=device, rows=rows, memory=memory)
        self._models.llm = llm
        self._alone: set[str] = set()

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, description and knowledge date of each card, in the order given."""
        return self._choices

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Generator. A document may be empty where a card has nothing to say. Raises UnknownCard.

        Cards of one group write in one batch, after all others: a card that has a model for itself writes as soon as
        it is loaded, so that it need not stay in memory.
        """
        for name in cards:
            if name not in self._cards:
                known = ", ".join(self._cards) or "none"
                raise UnknownCard(f"no card {name!r} in this pool; it holds {known}")
        # By writer, by question: in the order of the cards.
        written: list[list[list[Passage]]] = []
        groups: dict[int, dict[int, StackedCard]] = {}
        for name in cards:
            writer = self._writer(name)
            for part in (writer.model, writer.index) if isinstance(writer, Both) else (writer,):
                if (group := getattr(part, "group", None)) is not None:
                    groups.setdefault(id(group), {})[len(written)] = cast("StackedCard", part)
                    written.append([])
                else:
                    self._warn(name, getattr(part, "unsupported", ""))
                    written.append(part.write(questions, documents, sampling))
        for members in groups.values():
            asked = [card.asked for card in members.values()]
            (group, *_) = [card.group for card in members.values()]
            for place, rows in zip(members, group.write(asked, questions, documents, sampling), strict=True):
                written[place] = rows
        return [[passage for rows in written for passage in rows[i]] for i in range(len(questions))]

    def _writer(self, name: str) -> CardGenerator:
        card = self._cards[name]
        key = (name, card.folder)  # another version of the card has another folder
        writer: CardGenerator | None = self._models.held.get(key)
        if writer is None:
            writer = load(card, self._models)
            # Those of the engine hold nothing themselves.
            self._models.held.put(key, writer, int(getattr(writer, "size", 0)))
        return writer

    def _warn(self, name: str, reason: str) -> None:
        """Say once of a card with a model why it does not write with others."""
        if reason and name not in self._alone:
            self._alone.add(name)
            logging.getLogger(__name__).warning(
                "card %s writes by itself, not in one batch with other cards, which would be faster: %s",
                name,
                reason,
            )
