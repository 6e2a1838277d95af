"""What answering a question took: the requests to the LLM with their replies, tokens and times."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcard.types import Reply, Request


@dataclass(frozen=True)
class Usage:
    """The cost of one question. Tokens are the LLM's; None if its backend does not report all of them.

    `llm_seconds`: time in the LLM; `card_seconds`: time in cards (in a batch, the question's share).
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    llm_seconds: float = 0.0
    card_seconds: float = 0.0


@dataclass(frozen=True)
class Call:
    """A request to the LLM as it was sent, truncated to its window, and the reply.

    number  counts requests in the order in which they were made, whichever ends first
    reply   None if the request failed
    error   why it failed; "" if it did not
    notes   sentences for the user: what was truncated, and what is odd about the reply
    """

    number: int
    request: "Request"
    reply: "Reply | None"
    seconds: float
    error: str = ""
    notes: tuple[str, ...] = ()


class Trace:
    """What answering a question took: the requests to the LLM, with their replies, and times.

    It is kept if a step fails, so that the LLM is not asked again for what it replied.

    replies       of the LLM, by complete request, before truncation
    seconds       from the question to the context; in a batch, the question's share
    card_seconds  of cards, likewise
    is_complete   whether the question was answered
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.replies: dict[Request, Reply] = {}
        self.seconds = self.card_seconds = 0.0
        self.is_complete = False
        self._calls: list[Call] = []

    def begin(self) -> None:
        """Forget the question's answer, if there is one."""
        if self.is_complete:
            self.reset()

    def add(self, call: Call) -> None:
        """Add a request; safe in several threads."""
        self._calls.append(call)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All requests in the order in which they were made, failed ones included."""
        return tuple(sorted(self._calls, key=lambda call: call.number))

    @property
    def notes(self) -> tuple[str, ...]:
        """The distinct notes of all requests, in their order."""
        notes: dict[str, None] = {}
        for call in self.calls:
            notes |= dict.fromkeys(call.notes)
        return tuple(notes)

    @property
    def usage(self) -> Usage:
        """Tokens and seconds of all requests, and the seconds of cards."""
        replies = [call.reply for call in self._calls if call.reply is not None]
        return Usage(
            add_counts(reply.tokens_in for reply in replies),
            add_counts(reply.tokens_out for reply in replies),
            sum((call.seconds for call in self._calls), 0.0),
            self.card_seconds,
        )


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of them is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
