"""The extension points, as protocols, and helpers that call them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kcard.errors import LLMError, QuestionsFailed, UsageError
from kcard.types import Answer, Choice, Passage, Question, Reply, Request, Sampling, Source

__all__ = [
    "LLM",
    "Answerer",
    "Array",
    "Batching",
    "Checker",
    "ConcurrentEvidence",
    "Evidence",
    "Gate",
    "Generator",
    "Judging",
    "NamedEvidence",
    "Pair",
    "Precomputed",
    "Prompting",
    "Pruner",
    "Reader",
    "Relevance",
    "Scheduling",
    "Streaming",
    "Verdict",
    "Windowed",
    "find_all",
    "replies",
    "valid",
]


Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pair:
    """A claim and the text that may support it; always a pair, never one concatenated string."""

    claim: str
    evidence: str


class Generator(Protocol):
    """A pool of cards."""

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, one-line description and date of each card of the pool, in a stable order."""
        ...

    def generate(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """Generate `documents` passages of each named card for each question, grouped by card.

        A passage depends on (seed, question, card, document number) only, not on the batch.
        """
        ...


@runtime_checkable
class Scheduling(Protocol):
    """A Generator that orders the cards of a batch itself, so that each is loaded as rarely as possible."""

    def generate_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """Return what `generate` gives each question for its own cards."""
        ...


class Relevance(Protocol):
    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Score how relevant each text is to the question, shape (n,), in [-1, 1]; the cosine in the paper."""
        ...


@runtime_checkable
class Precomputed(Protocol):
    """A relevance selector that can read texts in advance, such as the descriptions of cards."""

    def precompute(self, texts: Sequence[str]) -> Callable[[str], Array]:
        """Return `scores` of these texts as a function of the question, which takes milliseconds for thousands."""
        ...


class Pruner(Protocol):
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Condense each text to what helps answer the question; non-empty texts stay non-empty."""
        ...


class Checker(Protocol):
    def support(self, pairs: Sequence[Pair]) -> Array:
        """Score how far the evidence supports the claim, shape (n,), in [0, 1]; independent of the batch."""
        ...


@dataclass(frozen=True)
class Verdict:
    """A checker's verdict on a claim and its evidence.

    score       how well the evidence supports the claim, in [0, 1]
    window      the part of the evidence that decided; empty if nothing was read
    refutation  the probability that it refutes the claim; None if the checker gives none
    """

    score: float
    window: str
    refutation: float | None = None


@runtime_checkable
class Judging(Protocol):
    """A checker that shows which part of the evidence decided."""

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the scores that `support` gives, each with its window."""
        ...


class Evidence(Protocol):
    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` texts that may support or refute the claim, best first."""
        ...


@runtime_checkable
class ConcurrentEvidence(Protocol):
    """Evidence that looks up several claims at a time."""

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """Return what `find` gives for each claim, in order."""
        ...


class NamedEvidence(Evidence, Protocol):
    """Evidence that belongs to no card, and is named wherever a score was measured against it."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """The sha256 of its content, or of its address if the content can change (an online encyclopedia)."""
        ...


class Gate(Protocol):
    def knows(self, questions: Sequence[str]) -> Array:
        """Score how sure it is that the LLM knows each answer, shape (n,); higher = knows."""
        ...


class Reader(Protocol):
    def extract(self, question: str, text: str) -> str | None:
        """Return the words of the text that answer the question; None if there are none."""
        ...


class LLM(Protocol):
    """A large language model; may also be Windowed, Streaming or Batching."""

    def reply(self, request: Request) -> Reply:
        """Reply to a request. Raises LLMError."""
        ...


@runtime_checkable
class Windowed(Protocol):
    """An LLM with a limited context window."""

    @property
    def window(self) -> int | None:
        """Maximum tokens of a request, which leaves room for the reply; None: unknown."""
        ...

    def count(self, request: Request) -> int:
        """Count the tokens of a request, or estimate them rather too high than too low."""
        ...


@runtime_checkable
class Prompting(Protocol):
    """An LLM whose prompts can be shown."""

    def prompt(self, request: Request) -> str:
        """Return the request as it is sent; for a chat, each message after its role."""
        ...


@runtime_checkable
class Streaming(Protocol):
    """An LLM that can stream its answer."""

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield pieces of text, then the complete reply, whose text may be cleaner. Raises LLMError, perhaps midway."""
        ...


@runtime_checkable
class Batching(Protocol):
    """An LLM that answers several requests faster at once, such as a model that reads them in one pass."""

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Return the reply, or the error, of each request, in order; the same as with one request at a time."""
        ...


class Answerer(Protocol):
    """A way of answering questions: a pipeline, or a baseline that it is compared with."""

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """Yield one Answer per question, in order, each as soon as it is ready. Raises LLMError if the LLM fails."""
        ...


# Validation of scores by third-party code, before they decide anything.

ROUNDING = 1e-4  # by which a cosine of unit vectors may exceed its range


def valid(scores: Array | Sequence[float], count: int, bounds: tuple[float, float], who: str) -> Array:
    """Return the scores as float32, shape (count,), clipped to `bounds`, which rounding may have exceeded.

    Raises UsageError, which names `who`, for another shape, and for scores that are not numbers or out of bounds.
    """
    low, high = bounds
    try:
        values = np.asarray(scores, dtype=np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"{who} did not return a list of numbers: expected {count}") from None
    if values.shape != (count,):
        raise UsageError(
            f"{who} gave scores of shape {values.shape} where {count} were expected: one per text"
        )
    wrong = ~((values >= low - ROUNDING) & (values <= high + ROUNDING))  # also true of nan
    if wrong.any():
        where = int(wrong.argmax())
        raise UsageError(
            f"{who} gave the score {values[where]} (number {where + 1} of {count}): scores lie in [{low:g}, {high:g}]"
        )
    return np.clip(values, low, high)


# Several requests to an LLM: in one batch if the LLM can, otherwise one after another.


def replies(llm: LLM, requests: Sequence[Request]) -> list[Reply]:
    """Return one reply per request, in order.

    If the LLM is Batching, all requests are made before QuestionsFailed is raised for those that failed.
    """
    if not isinstance(llm, Batching):
        return [llm.reply(request) for request in requests]
    received: list[Reply] = []
    failures: dict[str, LLMError] = {}
    for request, reply in zip(requests, llm.reply_all(requests), strict=True):
        if isinstance(reply, LLMError):
            failures.setdefault(request.question, reply)
        else:
            received.append(reply)
    if failures:
        raise QuestionsFailed(failures)
    return received


# Evidence for several claims: searched concurrently if that means waiting, as for an online encyclopedia.


def find_all(evidence: Evidence, claims: Sequence[str], k: int) -> list[list[Source]]:
    """Return what `find` gives for each claim, in order. Raises what it raises."""
    if isinstance(evidence, ConcurrentEvidence):
        return evidence.find_all(claims, k)
    return [evidence.find(claim, k) for claim in claims]
