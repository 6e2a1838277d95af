"""Which cards the LLM asks for: automatic or explicit selection (Knowledge Card, section 2.3)."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kcard.integrators.nearest import Nearest
from kcard.integrators.options import AskOptions
from kcard.request import Choice, Example, Reply, Request, Turn

__all__ = ["AutoChoice", "CardChoice", "Chosen", "ExplicitChoice", "named"]


@dataclass(frozen=True)
class Chosen:
    """Names of cards, the one wanted most in front, notes for the user, and what the LLM was asked and replied."""

    cards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    turn: Turn | None = None


class CardChoice(Protocol):
    """`asked`: cards that wrote for this question before. They are not offered again: prompted with the same
    question, a card has nothing new to say. `turns`: see Request."""

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        asked: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        """What the LLM is asked."""
        ...

    def chosen(self, request: Request, reply: Reply, asked: Collection[str] = ()) -> Chosen:
        """What its reply means."""
        ...


@dataclass(frozen=True)
class AutoChoice:
    """Asks what kind of information is needed and takes the `most` cards that fit that best; of those after the first
    only such as fit nearly as well (`margin`: see Nearest)."""

    nearest: Nearest
    examples: tuple[Example, ...] = ()
    most: int = 1
    margin: float = math.inf

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        asked: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        del asked
        return Request("what", question, tuple(knowledge), self.examples, turns=turns)

    def chosen(self, request: Request, reply: Reply, asked: Collection[str] = ()) -> Chosen:
        wanted = reply.text.strip()
        turn = Turn("what", wanted)
        found = self.nearest(wanted or request.question, self.most, asked, self.margin)
        nearest = tuple(card.name for card in found)
        if wanted:
            return Chosen(nearest, turn=turn)
        note = "the LLM did not say what it needs; cards were chosen by the question"
        return Chosen(nearest, (note,), turn)


@dataclass(frozen=True)
class ExplicitChoice:
    """Shows the LLM the cards and takes those that its reply names, at most `most` (None: all).

    Of more cards than `shortlist` it sees those that fit the question best, best first; where there is no `nearest`,
    all. A reply that names none is reported; a card is never picked at random.
    """

    cards: Sequence[Choice]
    examples: tuple[Example, ...] = ()
    most: int | None = 1
    nearest: Nearest | None = None
    shortlist: int = AskOptions.shortlist

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        asked: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        offered = self._offered(question, asked)
        return Request("choose", question, tuple(knowledge), self.examples, offered, turns)

    def chosen(self, request: Request, reply: Reply, asked: Collection[str] = ()) -> Chosen:
        offered, notes = request.choices, self._left_out(request, asked)
        turn = Turn("choose", reply.text.strip(), choices=offered)
        before = [card for card in self.cards if card.name in asked] if asked else []
        found = [card.name for card in named(reply.text, [*offered, *before])]
        fresh = tuple(name for name in found if name not in asked)
        if not fresh:
            return Chosen((), (*notes, _refusal(reply.text, found)), turn)
        taken = fresh[: self.most]
        return Chosen(taken, (*notes, *_shortened(fresh, taken)), turn)

    def _offered(self, question: str, asked: Collection[str]) -> tuple[Choice, ...]:
        """The cards that the LLM sees."""
        if self.nearest is None or len(self.cards) - len(asked) <= self.shortlist:
            return tuple(card for card in self.cards if card.name not in asked)
        return self.nearest(question, self.shortlist, asked)

    def _left_out(self, request: Request, asked: Collection[str]) -> tuple[str, ...]:
        """What the user should know of the cards that the LLM does not see."""
        count, near = len(self.cards) - len(asked), len(request.choices)
        if near == count:
            return ()
        return (f"of {count} cards the LLM chose among the {near} nearest to the question (--shortlist)",)


def _refusal(reply: str, found: Sequence[str]) -> str:
    if found:
        return f"the LLM chose {', '.join(found)} again; each card is used once"
    if not reply.strip():
        return "the LLM's choice of a card is empty; none was used"
    return f"the LLM's choice {reply.strip()[:80]!r} names no card; none was used"


def _shortened(fresh: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    if len(fresh) == len(taken):
        return ()
    return (
        f"the LLM named {', '.join(fresh)}; {', '.join(taken)} was used (--mode hybrid uses several at once)",
    )


def named(reply: str, cards: Sequence[Choice]) -> list[Choice]:
    """The cards that a reply names, by name or by whole description, in the order of their first mention.

    A name inside a longer name or inside another card's description ("moons" in "moons of Saturn") is not a mention.
    """
    spans = [
        (match.start(), match.end(), card)
        for card in cards
        for label in (card.name, card.description)
        for match in re.finditer(rf"(?<![\w-]){re.escape(label)}(?![\w-])", reply, re.IGNORECASE)
    ]
    outer = [
        (start, card)
        for start, end, card in spans
        if not any(a <= start and end <= b and (a, b) != (start, end) for a, b, _ in spans)
    ]
    return list(dict.fromkeys(card for _, card in sorted(outer, key=lambda span: span[0])))
