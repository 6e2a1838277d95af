"""What each question costs: requests, tokens and seconds of the LLM, seconds of the cards."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock

from kcard.answer import Passage, Usage
from kcard.batches import batched
from kcard.concurrency import in_order
from kcard.errors import LLMError
from kcard.integrators import grouped
from kcard.integrators.window import fit
from kcard.llms.named_option import named_option
from kcard.protocols import LLM, Batching, Generator, Streaming
from kcard.question import Question
from kcard.replies import replies
from kcard.request import Choice, Reply, Request
from kcard.sampling import Sampling

__all__ = ["Metered", "QuestionCosts", "TimedGenerator"]

GIVE_UP = 64  # failures in a row after which nothing more is asked at a time
TRIES = 4  # to fit a prompt into a window that only refusals tell of


@dataclass(frozen=True)
class QuestionCosts:
    """The LLM's side of one question; `notes` are sentences for the user. A request that failed counts too."""

    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def usage(self, card_seconds: float) -> Usage:
        return Usage(self.tokens_in, self.tokens_out, self.seconds, card_seconds)


class Metered:
    """An LLM that is asked what fits into its window and whose cost is kept by question.

    Replies to a question are kept until its account is closed, so that after a failure only what failed is asked
    again. Once a question is opened, requests with its text carry its options and demonstrations.

    concurrency  requests in flight at a time, or in one batch of an LLM that is Batching; None: as
                 many as the LLM says, else one
    """

    def __init__(self, llm: LLM, concurrency: int | None = None) -> None:
        self._llm = llm
        self.concurrency = concurrency or int(getattr(llm, "concurrency", 1))
        self._numbers, self._lock = count(), Lock()
        self._accounts: defaultdict[str, QuestionCosts] = defaultdict(QuestionCosts)
        self._notes: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self._replies: defaultdict[str, dict[Request, Reply]] = defaultdict(dict)
        self._opened: dict[str, Question] = {}

    @property
    def announcement(self) -> str:
        """What answers, for the user."""
        return str(getattr(self._llm, "announcement", type(self._llm).__name__))

    def open(self, question: Question) -> None:
        """Make requests with this text about this question; what is kept of another one with the same text goes."""
        if self._opened.get(question.text, question) != question:
            self.close(question.text)
        self._opened[question.text] = question

    def close(self, question: str) -> QuestionCosts:
        """The question's account, which begins anew."""
        self._replies.pop(question, None)
        self._opened.pop(question, None)
        notes = [note for _, note in sorted(self._notes.pop(question, ()), key=lambda numbered: numbered[0])]
        return replace(self._accounts.pop(question, QuestionCosts()), notes=tuple(dict.fromkeys(notes)))

    def fitted(self, request: Request) -> Request:
        """The request as the LLM reads it."""
        return fit(self._about(request), self._llm)[0]

    def _about(self, request: Request) -> Request:
        """The request with the options and demonstrations of its question."""
        question = self._opened.get(request.question)
        if question is None:
            return request
        own = {example.kind for example in question.examples}
        others = tuple(example for example in request.examples if example.kind not in own)
        choices = question.choices if request.kind in {"need", "what", "answer"} else request.choices
        return replace(request, choices=choices, examples=others + question.examples)

    def reply(self, request: Request) -> Reply:
        """Raises QuestionsFailed where the LLM raises LLMError."""
        (reply,) = replies(self, [request])
        return reply

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """One reply a request, or why there is none, in order and as soon as it is there. Equal ones are asked once."""
        asked = [self._about(request) for request in requests]
        found: dict[Request, Reply | LLMError | None] = {
            request: self._replies[request.question].get(request) for request in asked
        }
        arriving = _until_given_up(
            [request for request, reply in found.items() if reply is None], self._arriving
        )
        for request in asked:
            while (reply := found[request]) is None:
                arrived, found[arrived] = next(arriving)
            yield reply

    def _arriving(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Reply | LLMError]]:
        if isinstance(self._llm, Batching):
            for batch in batched(requests, self.concurrency):
                yield from zip(batch, self._batch(self._llm, batch), strict=True)
        else:
            numbered = [(request, next(self._numbers)) for request in requests]
            yield from zip(requests, in_order(self._single, numbered, self.concurrency), strict=True)

    def _single(self, numbered: tuple[Request, int]) -> Reply | LLMError:
        try:
            *_, reply = self._pieces(*numbered, lambda fitted: iter([self._llm.reply(fitted)]))
        except LLMError as error:
            return error
        assert isinstance(reply, Reply)
        return reply

    def _batch(self, llm: Batching, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """The replies of one batch, whose seconds are shared among its requests."""
        started = time.perf_counter()
        fitted = [fit(request, self._llm) for request in requests]
        replied = list(llm.reply_all([request for request, _ in fitted]))
        share = (time.perf_counter() - started) / len(requests)
        for request, reply, (_, note) in zip(requests, replied, fitted, strict=True):
            if isinstance(reply, LLMError):
                self.enter(request, None, share, None)
                yield reply
            else:
                chosen = _with_choice(request, reply)
                self.enter(request, chosen, share, note)
                yield chosen

    @property
    def streams(self) -> bool:
        """Whether the LLM's replies come in pieces."""
        return isinstance(self._llm, Streaming)

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Pieces of the text, in one piece where the LLM can't stream, then the reply."""
        if isinstance(self._llm, Streaming):
            yield from self._pieces(self._about(request), next(self._numbers), self._llm.stream)
        else:
            reply = self.reply(request)
            yield from (reply.text, reply)

    def _pieces(
        self, request: Request, number: int, ask: Callable[[Request], Iterator[str | Reply]]
    ) -> Iterator[str | Reply]:
        """Ask; again, cut shorter, where the failure showed a smaller window (and nothing was said before)."""
        begun = False
        for tries_left in reversed(range(TRIES)):
            fitted, note = fit(request, self._llm)
            started = time.perf_counter()
            try:
                for piece in ask(fitted):
                    begun = True
                    if isinstance(piece, Reply):
                        piece = _with_choice(request, piece)
                        self.enter(request, piece, time.perf_counter() - started, note, number)
                    yield piece
                return
            except LLMError:
                self.enter(request, None, time.perf_counter() - started, number=number)
                if begun or not tries_left or self.fitted(request) == fitted:
                    raise

    def enter(
        self,
        request: Request,
        reply: Reply | None,
        seconds: float,
        note: str | None = None,
        number: int | None = None,
    ) -> None:
        """Put what a request took on its question's account. `reply`: None where it failed. `number`: where its notes
        stand among those of other requests, whichever of them ends first; None: last."""
        number = next(self._numbers) if number is None else number
        notes = [(number, said) for said in [*([note] if note else []), *_remarks(request, reply)]]
        with self._lock:
            account = self._accounts[request.question]
            self._accounts[request.question] = QuestionCosts(
                account.calls + 1,
                _sum(account.tokens_in, reply.tokens_in if reply else 0),
                _sum(account.tokens_out, reply.tokens_out if reply else 0),
                account.seconds + seconds,
            )
            self._notes[request.question] += notes
            if reply is not None:
                self._replies[request.question][request] = reply


def _until_given_up(
    requests: Sequence[Request],
    ask: Callable[[Sequence[Request]], Iterator[tuple[Request, Reply | LLMError]]],
) -> Iterator[tuple[Request, Reply | LLMError]]:
    """Ask them, but none after GIVE_UP failures in a row, with which an endpoint that is down would take hours."""
    streak = 0
    for done, (request, reply) in enumerate(ask(requests), 1):
        yield request, reply
        streak = streak + 1 if isinstance(reply, LLMError) else 0
        if streak == GIVE_UP:
            said = f"not asked, since the {streak} requests before it failed, the last one: {reply}"
            yield from ((left, LLMError(said)) for left in requests[done:])
            return


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _with_choice(request: Request, reply: Reply) -> Reply:
    """With the option that the text names, where the backend did not say which it chose."""
    if request.kind != "answer" or not request.choices or reply.choice is not None:
        return reply
    return replace(reply, choice=(named_option(reply.text, request.choices) or "") if reply.known else "")


def _remarks(request: Request, reply: Reply | None) -> list[str]:
    """What the user should know about a reply that says nothing."""
    if reply is None:
        return []
    if reply.remark:
        return [reply.remark]
    if request.kind == "need" and reply.yes is None:
        said = reply.text.strip()[:80]
        return [f"asked whether it needs more, the LLM said {said!r}, neither yes nor no; this counts as yes"]
    if request.kind == "answer" and not reply.text.strip():
        return ["the LLM's answer is empty"]
    if reply.choice == "" and reply.known and not request.draft:
        return [
            f"the LLM's answer {reply.text.strip()[:80]!r} names none of the options; it counts as no choice"
        ]
    return []


class TimedGenerator:
    """Cards that are timed: the seconds of each call are shared among its questions."""

    def __init__(self, writer: Generator) -> None:
        self._writer = writer
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def cards(self) -> Sequence[Choice]:
        return self._writer.cards

    @property
    def take_turns(self) -> bool:
        """Whether larger batches load cards less often; see Pool."""
        return bool(getattr(self._writer, "take_turns", False))

    def close(self, question: str) -> float:
        """The question's seconds, which begin anew."""
        return self._seconds.pop(question, 0.0)

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        return self.write_each(questions, [cards] * len(questions), documents, sampling)

    def write_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        started = time.perf_counter()
        written = grouped.write(self._writer, questions, cards, documents, sampling)
        share = (time.perf_counter() - started) / max(len(questions), 1)
        for question in questions:
            self._seconds[question] += share
        return written
