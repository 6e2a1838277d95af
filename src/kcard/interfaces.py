"""The extension points: base classes, of which an implementation overrides one or two methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kcard.errors import KcardError, LLMError, QuestionsFailed, UsageError
from kcard.types import Answer, Choice, Decision, Passage, Question, Reply, Request, Sampling, Source, Turn

Array = npt.NDArray[np.float32]


class Generator(ABC):
    """A pool of cards, or a view of one.

    cards  name, one-line description and date of each card, in a stable order
    """

    cards: Sequence[Choice] = ()

    @abstractmethod
    def generate(
        self,
        questions: Sequence[str | Question],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """Generate, for each question, `documents` passages of each of its own cards, grouped by card.

        A passage depends on (seed, question, card, document number) only, not on the batch.
        """

    @property
    def is_sequential(self) -> bool:
        """Whether cards run one after another, so that larger batches load them less often."""
        return False


class CardGenerator(ABC):
    """One loaded card.

    group        the cards that it runs in one batch with (kcard.cards.models.stack); None: it runs alone
    size         bytes of its own weights; 0 if it shares them with other cards
    unsupported  why its model can't run in a batch with those of other cards; "" if it can, or has no model
    """

    group: Any = None
    size: int = 0
    unsupported: str = ""

    @property
    def parts(self) -> "tuple[CardGenerator, ...]":
        """The generators that it consists of, its model first: one, unless the card has an index besides its model."""
        return (self,)

    @abstractmethod
    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate `documents` passages per question, by (seed, question, card, document number) alone."""

    def generate_for(
        self, questions: Sequence[Question], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """Generate for questions that are being answered; a card that asks an LLM adds its requests to their traces."""
        return self.generate([question.text for question in questions], documents, sampling)


class Relevance(ABC):
    """A selector by relevance (Knowledge Card, section 2.2)."""

    @abstractmethod
    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Score how relevant each text is to the question, shape (n,), in [-1, 1]; the cosine in the paper."""


class Pruner(ABC):
    @abstractmethod
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Condense each text to what helps answer the question; non-empty texts stay non-empty."""


@dataclass(frozen=True)
class Pair:
    """A claim and the text that may support it; always a pair, never one concatenated string."""

    claim: str
    evidence: str


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


class Checker(ABC):
    """A fact checker."""

    # The digest of weights and settings, if there is one: scores are cached only then.
    sha256: str | None = None

    @abstractmethod
    def support(self, pairs: Sequence[Pair]) -> Array:
        """Score how far the evidence supports the claim, shape (n,), in [0, 1]; independent of the batch."""

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the scores that `support` gives, each with the part of the evidence that decided: by default all."""
        who = f"checker {type(self).__name__}"
        scores = valid(self.support(pairs), len(pairs), (0.0, 1.0), who).tolist()
        return [Verdict(score, pair.evidence) for score, pair in zip(scores, pairs, strict=True)]


class Evidence(ABC):
    """Texts that claims are checked against.

    name    is shown wherever a score was measured against it
    digest  the sha256 of its content, or of its address if the content can change (an online encyclopedia)
    """

    name: str
    digest: str

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, such as files left out."""
        return ()

    @abstractmethod
    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` texts that may support or refute the claim, best first."""

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """Return what `find` gives for each claim, in order; an online encyclopedia looks up several at a time."""
        return [self.find(claim, k) for claim in claims]


THRESHOLD = 0.5


class Gate(ABC):
    """Decides whether a question needs cards.

    threshold  below which a score means that cards are used
    """

    threshold: float = THRESHOLD

    @abstractmethod
    def knows(self, questions: Sequence[Question]) -> Array:
        """Score how sure it is that the LLM knows each answer, shape (n,); higher = knows.

        A gate that asks the LLM makes its requests with Question.request, so that they count as the question's.
        """

    @property
    def templates(self) -> int:
        """The number of wordings in which top-down asks the LLM between its rounds whether it needs more."""
        return 1

    def turn(self, fired: bool) -> Turn | None:
        """Return its question to the LLM and the verdict as a turn of a transcript; None if it asks nothing."""
        del fired
        return None

    def decide(self, questions: Sequence[Question], name: str) -> list[Decision]:
        """Decide for each question: the gate fires if its score is below the threshold (Thrust, section 2.3)."""
        scores = (float(score) for score in self.knows(questions))
        return [Decision(name, round(score, 6), fired=score < self.threshold) for score in scores]


class Reader(Protocol):
    def extract(self, question: str, text: str) -> str | None:
        """Return the words of the text that answer the question; None if there are none."""
        ...


class LLM(ABC):
    """A large language model.

    window            maximum tokens of a request, which leaves room for the reply; None: unknown
    concurrency       requests at a time, unless the user says otherwise
    is_deterministic  whether equal requests have equal replies
    can_rewrite       whether it can rewrite a question of a conversation so that it stands alone
    announcement      a sentence that tells the user which LLM answers; "" if there is nothing to tell
    """

    window: int | None = None
    concurrency: int = 1
    is_deterministic: bool = False
    can_rewrite: bool = True
    announcement: str = ""

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """Reply to a request. Raises LLMError."""

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Return the reply, or the error, of each request, in order; the same as with one request at a time.

        Override it where reading several requests in one pass is faster.
        """
        for request in requests:
            try:
                yield self.reply(request)
            except LLMError as error:
                yield error

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield pieces of text, then the complete reply, whose text may be cleaner. Raises LLMError, perhaps midway."""
        reply = self.reply(request)
        yield from (reply.text, reply)

    def count(self, request: Request) -> int:
        """Count the tokens of a request, or estimate them rather too high than too low; only for LLMs with a window."""
        raise NotImplementedError(f"{type(self).__name__} has a window, so it must count tokens")

    def prompt(self, request: Request) -> str:
        """Return the request as it is sent, for a chat each message after its role; "" if the LLM reads no prompt."""
        del request
        return ""

    @property
    def is_batched(self) -> bool:
        """Whether it reads several requests in one pass."""
        return type(self).reply_all is not LLM.reply_all

    @property
    def streams(self) -> bool:
        """Whether a reply comes in several pieces."""
        return type(self).stream is not LLM.stream


class Answerer(ABC):
    """A way of answering questions: a pipeline, or a baseline that it is compared with."""

    @abstractmethod
    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | KcardError]:
        """Yield one Answer per question, in order, each as soon as it is ready, or an error: a failure affects only its
        own question."""

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """Yield each answer as soon as it is ready. Raises the first error.

        Given the same Question objects again, the LLM is not asked again for replies that it gave.
        """
        for outcome in self.outcomes(questions):
            if isinstance(outcome, KcardError):
                raise outcome
            yield outcome


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


# Several requests to an LLM.


def replies(llm: LLM, requests: Sequence[Request]) -> list[Reply]:
    """Return one reply per request, in order. All requests are made before QuestionsFailed is raised for those that
    failed."""
    received: list[Reply] = []
    failures: dict[Question, LLMError] = {}
    for request, reply in zip(requests, llm.reply_all(requests), strict=True):
        if isinstance(reply, LLMError):
            failures.setdefault(request.origin or Question(request.question), reply)
        else:
            received.append(reply)
    if failures:
        raise QuestionsFailed(failures)
    return received
