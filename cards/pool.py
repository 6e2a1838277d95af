"""Every card that may be asked, loaded when it is first needed and kept: the Generator of kcard.protocols.

It knows names and passages; what kinds of cards there are, and models, it does not know.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kcard.answer import Passage
from kcard.batches import alike
from kcard.cards.format.folder import Card, CardHandle, CardSet
from kcard.cards.kinds.generator import Both
from kcard.cards.lm.loader import ROWS, Loader
from kcard.cards.served import Served
from kcard.cards.turns import Turns
from kcard.errors import CardError, UnknownCard, one_line
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
    memory  bytes that the weights of cards may take; None: half of what the device has. Cards that are used least
            leave, and are read again when they are asked
    loader  what holds the models, for pools that share them; then its device, rows and memory count
    progress  called with how many cards have written and how many will, where they take turns
    """

    def __init__(
        self,
        cards: Sequence[Card | CardHandle | Path] | CardSet,
        device: str = "cpu",
        rows: int = ROWS,
        llm: Callable[[str], LLM] | None = None,
        memory: int | None = None,
        loader: Loader | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self._cards = cards if isinstance(cards, CardSet) else CardSet(cards)
        self._choices = [Choice(m.name, m.description, m.knowledge_date) for m in self._cards.manifests]
        self._models = loader or Loader(device=device, rows=rows, memory=memory)
        self._models.llm = llm
        self._turns = Turns(self._cards, self._models, progress)
        self._served = Served(self._turns, self._models)
        self._left_out: set[str] = set()  # broken cards that were named

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, description and knowledge date of each card, in the order given."""
        return self._choices

    @property
    def take_turns(self) -> bool:
        """Whether cards, as far as their sizes are known, write one after the other, so that larger batches load them
        less often."""
        return self._turns.expected()

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Generator. A document may be empty where a card has nothing to say. Raises UnknownCard."""
        self._check(cards)
        return self.write_each(questions, [cards] * len(questions), documents, sampling)

    def write_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling. Servers write for their cards (kcard.cards.served), whole models that are not stacked take
        turns (kcard.cards.turns), the other cards write together; those whose weights are loaded first. A card that is
        broken is named in the log, and its documents are empty. Raises UnknownCard, CardError if all cards are broken.
        """
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(cards):
            for name in dict.fromkeys(names):
                rows.setdefault(name, []).append(row)
        self._check(rows)
        self._turns.broken.clear()
        served = self._served.names(rows)
        taking = self._turns.taking([name for name in rows if name not in served])
        own = {name: [questions[row] for row in rows[name]] for name in (*served, *taking)}
        together = [tuple(name for name in dict.fromkeys(names) if name not in own) for names in cards]
        written: dict[str, dict[int, list[Passage]]] = {name: {} for name in rows}

        def all_together() -> None:
            for names, alike_rows in alike(together).items():
                asked = [questions[row] for row in alike_rows]
                for name, found in self._together(asked, names, documents, sampling):
                    written[name].update(zip(alike_rows, found, strict=True))

        for name, found in self._served.write({name: own.pop(name) for name in served}, documents, sampling):
            written[name].update(zip(rows[name], found, strict=True))
        waiting = any(map(self._turns.is_loaded, taking))
        if not waiting:
            all_together()
        for name, found in self._turns.write(own, documents, sampling):
            written[name].update(zip(rows[name], found, strict=True))
        if waiting:
            all_together()
        broken = self._turns.broken
        if broken and len(broken) == len(rows):
            raise next(iter(broken.values()))
        for name, error in broken.items():
            if name not in self._left_out:
                self._left_out.add(name)
                logging.getLogger(__name__).warning("card %s is left out: %s", name, one_line(error))
            written[name] = dict.fromkeys(rows[name], [Passage(name, "")] * documents)
        return [
            [passage for name in names for passage in written[name][row]] for row, names in enumerate(cards)
        ]

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._cards:
                known = ", ".join(self._cards) or "none"
                raise UnknownCard(f"no card {name!r} in this pool; it holds {known}")

    def _together(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """By card, by question. Cards of one group write in one batch, after all others."""
        written: list[tuple[str, list[list[Passage]]]] = []
        groups: dict[int, dict[int, StackedCard]] = {}
        for name in cards:
            with self._turns.tolerating(name):
                writer = self._turns.writer(name)
                for part in (writer.model, writer.index) if isinstance(writer, Both) else (writer,):
                    if (group := getattr(part, "group", None)) is not None:
                        groups.setdefault(id(group), {})[len(written)] = cast("StackedCard", part)
                        written.append((name, []))
                    else:
                        written.append((name, part.write(questions, documents, sampling)))
        for members in groups.values():
            asked = [card.asked for card in members.values()]
            (group, *_) = [card.group for card in members.values()]
            try:
                rows_of = group.write(asked, questions, documents, sampling)
            except CardError:  # of one of them: each by itself
                rows_of = [[] for _ in members]
                for at, (place, card) in enumerate(members.items()):
                    with self._turns.tolerating(written[place][0]):
                        rows_of[at] = group.write([card.asked], questions, documents, sampling)[0]
            for place, rows in zip(members, rows_of, strict=True):
                written[place] = (written[place][0], rows)
        for name, parts in groupby(written, key=itemgetter(0)):
            if name in self._turns.broken:
                continue
            yield name, [list(chain(*own)) for own in zip(*(rows for _, rows in parts), strict=True)]
