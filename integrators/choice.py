"""Which card the LLM asks for: automatic or explicit selection (Knowledge Card, section 2.3)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kcard.protocols import LLM, Relevance
from kcard.request import Choice, Example, Request

__all__ = ["AutoChoice", "CardChoice", "ExplicitChoice", "named"]


class CardChoice(Protocol):
    def choose(self, question: str) -> tuple[str | None, str | None]:
        """The card's name, or None; and a note for the user, or None."""
        ...


@dataclass(frozen=True)
class AutoChoice:
    """Asks what kind of information is needed and takes the card whose description is nearest to the reply."""

    llm: LLM
    relevance: Relevance
    cards: Sequence[Choice]
    examples: tuple[Example, ...] = ()

    def choose(self, question: str) -> tuple[str | None, str | None]:
        wanted = self.llm.reply(Request("what", question, examples=self.examples)).text.strip()
        note = (
            None
            if wanted
            else "the LLM did not say what it needs; the card nearest to the question was taken"
        )
        scores = self.relevance.scores(wanted or question, [card.description for card in self.cards])
        return self.cards[int(scores.argmax())].name, note


@dataclass(frozen=True)
class ExplicitChoice:
    """Shows the LLM every card and takes the one that its reply names; none is reported, never a random one."""

    llm: LLM
    cards: Sequence[Choice]
    examples: tuple[Example, ...] = ()

    def choose(self, question: str) -> tuple[str | None, str | None]:
        request = Request("choose", question, choices=tuple(self.cards), examples=self.examples)
        reply = self.llm.reply(request).text
        found = named(reply, self.cards)
        if found:
            return found[0].name, None
        return None, f"the LLM's choice {reply.strip()[:80]!r} names no card; none was asked"


def named(reply: str, cards: Sequence[Choice]) -> list[Choice]:
    """The cards that a reply names, by name or else by whole description, in the order of their mention."""
    spans: list[tuple[int, int, Choice]] = []
    for card in cards:
        for label in (card.name, card.description):
            pattern = rf"(?<![\w-]){re.escape(label)}(?![\w-])"
            if match := re.search(pattern, reply, re.IGNORECASE):
                spans.append((match.start(), match.end(), card))
                break
    # A name inside a longer one that was found too ("moons" in "moons of Saturn") is not a mention.
    outer = [
        s
        for s in spans
        if not any(o is not s and o[0] <= s[0] and s[1] <= o[1] and o[:2] != s[:2] for o in spans)
    ]
    return [card for _, _, card in sorted(outer, key=lambda s: s[0])]
