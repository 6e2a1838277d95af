"""The client of an LLM, which every request goes through: context window, costs, retries, concurrency."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock

from kcard.batching import alike, batched, in_order
from kcard.errors import LLMError
from kcard.interfaces import LLM, Batching, Generator, Scheduling, Streaming, Windowed, replies
from kcard.llms.parsing import named_option
from kcard.types import Choice, Passage, Question, Reply, Request, Sampling, Usage

__all__ = ["LLMClient", "QuestionCosts", "TimedGenerator", "add_counts", "fit", "generate"]


# Truncation of a request to the LLM's context window.

Fits = Callable[[Request], bool]


def fit(request: Request, llm: LLM) -> tuple[Request, str | None]:
    """Truncate the request to the LLM's window; return it with a note for the user, or unchanged with None if it fits.

    Truncation order, until the rest fits: in-context examples, one by one from the first, which is the farthest;
    earlier turns, then the tail of the question, if they would leave knowledge less than half of the window; knowledge
    from its end, where the least relevant stands, and the tail of the last remaining passage; cards to choose from,
    from the end.
    """
    if not isinstance(llm, Windowed) or llm.window is None or llm.count(request) <= llm.window:
        return request, None
    window, cuts = llm.window, []

    def fits(shorter: Request) -> bool:
        return llm.count(shorter) <= window

    if llm.count(replace(request, examples=())) < llm.count(request):
        # Of the examples that are shown, the last ones that fit; the others are not counted.
        shots = request.shots
        fitting = _largest(len(shots), lambda n: fits(replace(request, examples=shots[len(shots) - n :])))
        request = replace(request, examples=shots[len(shots) - fitting :])
        if fitting < len(shots):
            cuts.append(f"{len(shots) - fitting} of {len(shots)} in-context examples")
    if fits(request):
        return request, _note(window, cuts)
    bare = replace(request, knowledge=(), choices=())
    shared = llm.count(bare) < llm.count(
        request
    )  # not so for the embedded reader: it reads each text by itself
    room = window // 2 if shared else window
    if request.turns and llm.count(bare) > room:
        request, bare = replace(request, turns=()), replace(bare, turns=())
        cuts.append("earlier exchanges on the question")
    if llm.count(bare) > room:
        text = request.question
        length = _largest(len(text), lambda n: llm.count(replace(bare, question=_head(text, n))) <= room)
        request = replace(request, question=_head(text, max(length, 1)))
        cuts.append(f"the question after its first {len(request.question)} characters")
    for cut in (_cut_knowledge, _cut_choices):
        if not fits(request):
            request, cut_text = cut(request, fits)
            cuts += [cut_text] if cut_text else []
    return request, _note(window, cuts)


def _note(window: int, cuts: Sequence[str]) -> str | None:
    return f"the LLM reads {window} tokens at most; left out: {', '.join(cuts)}" if cuts else None


def _cut_knowledge(request: Request, fits: Fits) -> tuple[Request, str | None]:
    texts = request.knowledge
    if not texts:
        return request, None
    fitting = _largest(len(texts), lambda n: fits(replace(request, knowledge=texts[:n])))
    if fitting:
        return replace(request, knowledge=texts[:fitting]), f"{len(texts) - fitting} of {len(texts)} passages"
    first = texts[0]
    length = _largest(len(first), lambda n: fits(replace(request, knowledge=(_head(first, n),))))
    head = _head(first, length)
    rest = f"{len(texts) - 1} of {len(texts)} passages and " if len(texts) > 1 else ""
    cut = f"{rest}the end of the most relevant passage" if head else "all passages"
    return replace(request, knowledge=(head,) if head else ()), cut


def _cut_choices(request: Request, fits: Fits) -> tuple[Request, str | None]:
    cards = request.choices
    if request.kind != "choose" or not cards:
        return request, None
    fitting = max(1, _largest(len(cards), lambda n: fits(replace(request, choices=cards[:n]))))
    return replace(
        request, choices=cards[:fitting]
    ), f"{len(cards) - fitting} of {len(cards)} cards to choose from"


def _head(text: str, length: int) -> str:
    """Return the first `length` characters, cut back to a whole word if there is one."""
    if length >= len(text):
        return text
    head, blank, _ = text[: length + 1].rpartition(" ")
    return head if blank and head.strip() else text[:length]


def _largest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest n in 0..count that fits, given that all below it do; 0 if none does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def generate(
    writer: Generator,
    questions: Sequence[str],
    cards: Sequence[Sequence[str]],
    documents: int,
    sampling: Sampling,
) -> list[list[Passage]]:
    """Generate, for each question, `documents` passages of each of its own cards, in as few calls as possible; see
    Generator."""
    if isinstance(writer, Scheduling):
        return writer.generate_each(questions, cards, documents, sampling)
    written: list[list[Passage]] = [[] for _ in questions]
    for names, rows in alike(map(tuple, cards)).items():
        if names:
            passages = writer.generate([questions[row] for row in rows], names, documents, sampling)
            for row, own in zip(rows, passages, strict=True):
                written[row] = own
    return written


GIVE_UP = 64  # consecutive failures after which the remaining requests are skipped
TRIES = 4  # to fit a prompt into a window whose size only refusals reveal


@dataclass(frozen=True)
class QuestionCosts:
    """What one question cost the LLM, failed requests included; `notes` are sentences for the user."""

    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def usage(self, card_seconds: float) -> Usage:
        return Usage(self.tokens_in, self.tokens_out, self.seconds, card_seconds)


class LLMClient:
    """The client of an LLM: truncates requests to its window and accounts for costs by question.

    Replies are kept until the question's account is closed, so that after a failure only failed requests are repeated.
    Once a question is opened, requests with its text carry its options and demonstrations.

    concurrency  concurrent requests, or the batch size for an LLM that is Batching; None: the LLM's own, else one
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
        """Return a sentence that tells the user which LLM answers."""
        return str(getattr(self._llm, "announcement", type(self._llm).__name__))

    def open(self, question: Question) -> None:
        """Open the account of a question; that of another question with the same text is closed."""
        if self._opened.get(question.text, question) != question:
            self.close(question.text)
        self._opened[question.text] = question

    def close(self, question: str) -> QuestionCosts:
        """Return what the question cost and close its account."""
        self._replies.pop(question, None)
        self._opened.pop(question, None)
        notes = [note for _, note in sorted(self._notes.pop(question, ()), key=lambda numbered: numbered[0])]
        return replace(self._accounts.pop(question, QuestionCosts()), notes=tuple(dict.fromkeys(notes)))

    def truncate(self, request: Request) -> Request:
        """Return the request as the LLM reads it, truncated to its window."""
        return fit(self._about(request), self._llm)[0]

    def _about(self, request: Request) -> Request:
        """Add the options and demonstrations of the request's question."""
        question = self._opened.get(request.question)
        if question is None:
            return request
        own = {example.kind for example in question.examples}
        others = tuple(example for example in request.examples if example.kind not in own)
        choices = question.choices if request.kind in {"need", "what", "answer"} else request.choices
        return replace(request, choices=choices, examples=others + question.examples)

    def reply(self, request: Request) -> Reply:
        """Return the reply. Raises QuestionsFailed if the LLM raises LLMError."""
        (reply,) = replies(self, [request])
        return reply

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield each reply, or its error, in order and as soon as it is ready. Equal requests are sent once."""
        full_requests = [self._about(request) for request in requests]
        outcomes: dict[Request, Reply | LLMError | None] = {
            request: self._replies[request.question].get(request) for request in full_requests
        }
        arriving = _give_up_after_failures(
            [request for request, reply in outcomes.items() if reply is None], self._ask
        )
        for request in full_requests:
            while (reply := outcomes[request]) is None:
                arrived, outcomes[arrived] = next(arriving)
            yield reply

    def _ask(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Reply | LLMError]]:
        if isinstance(self._llm, Batching):
            for batch in batched(requests, self.concurrency):
                yield from zip(batch, self._ask_batch(self._llm, batch), strict=True)
        else:
            numbered = [(request, next(self._numbers)) for request in requests]
            yield from zip(requests, in_order(self._ask_one, numbered, self.concurrency), strict=True)

    def _ask_one(self, numbered: tuple[Request, int]) -> Reply | LLMError:
        try:
            *_, reply = self._pieces(*numbered, lambda shortened: iter([self._llm.reply(shortened)]))
        except LLMError as error:
            return error
        assert isinstance(reply, Reply)
        return reply

    def _ask_batch(self, llm: Batching, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield the replies of one batch, whose seconds are divided among its requests."""
        started = time.perf_counter()
        shortened = [fit(request, self._llm) for request in requests]
        replied = list(llm.reply_all([request for request, _ in shortened]))
        share = (time.perf_counter() - started) / len(requests)
        for request, reply, (_, note) in zip(requests, replied, shortened, strict=True):
            if isinstance(reply, LLMError):
                self.enter(request, None, share, None)
                yield reply
            else:
                chosen = _with_choice(request, reply)
                self.enter(request, chosen, share, note)
                yield chosen

    @property
    def streams(self) -> bool:
        """Whether the LLM can stream its replies."""
        return isinstance(self._llm, Streaming)

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the text in pieces, in one piece if the LLM can't stream, then the reply."""
        if isinstance(self._llm, Streaming):
            yield from self._pieces(self._about(request), next(self._numbers), self._llm.stream)
        else:
            reply = self.reply(request)
            yield from (reply.text, reply)

    def _pieces(
        self, request: Request, number: int, ask: Callable[[Request], Iterator[str | Reply]]
    ) -> Iterator[str | Reply]:
        """Yield the reply in pieces. If a failure before the first reveals a smaller window, truncate and try again."""
        begun = False
        for tries_left in reversed(range(TRIES)):
            shortened, note = fit(request, self._llm)
            started = time.perf_counter()
            try:
                for piece in ask(shortened):
                    begun = True
                    if isinstance(piece, Reply):
                        piece = _with_choice(request, piece)
                        self.enter(request, piece, time.perf_counter() - started, note, number)
                    yield piece
                return
            except LLMError:
                self.enter(request, None, time.perf_counter() - started, number=number)
                if begun or not tries_left or self.truncate(request) == shortened:
                    raise

    def enter(
        self,
        request: Request,
        reply: Reply | None,
        seconds: float,
        note: str | None = None,
        number: int | None = None,
    ) -> None:
        """Add a request's costs to its question's account.

        reply   None if the request failed
        number  fixes the order of notes, whichever request ends first; None: last
        """
        number = next(self._numbers) if number is None else number
        notes = [(number, text) for text in [*([note] if note else []), *_remarks(request, reply)]]
        with self._lock:
            account = self._accounts[request.question]
            self._accounts[request.question] = QuestionCosts(
                account.calls + 1,
                add_counts(account.tokens_in, reply.tokens_in if reply else 0),
                add_counts(account.tokens_out, reply.tokens_out if reply else 0),
                account.seconds + seconds,
            )
            self._notes[request.question] += notes
            if reply is not None:
                self._replies[request.question][request] = reply


def _give_up_after_failures(
    requests: Sequence[Request],
    ask: Callable[[Sequence[Request]], Iterator[tuple[Request, Reply | LLMError]]],
) -> Iterator[tuple[Request, Reply | LLMError]]:
    """Yield replies; skip the rest after GIVE_UP consecutive failures, since an endpoint that is down takes hours."""
    streak = 0
    for done, (request, reply) in enumerate(ask(requests), 1):
        yield request, reply
        streak = streak + 1 if isinstance(reply, LLMError) else 0
        if streak == GIVE_UP:
            reason = f"skipped after {streak} consecutive failures; last error: {reply}"
            yield from ((left, LLMError(reason)) for left in requests[done:])
            return


def add_counts(total: int | None, more: int | None) -> int | None:
    """Return the sum; None if one of them is unknown."""
    return None if total is None or more is None else total + more


def _with_choice(request: Request, reply: Reply) -> Reply:
    """Add the option that the text names, unless the backend told which it chose."""
    if request.kind != "answer" or not request.choices or reply.choice is not None:
        return reply
    return replace(reply, choice=(named_option(reply.text, request.choices) or "") if reply.known else "")


def _remarks(request: Request, reply: Reply | None) -> list[str]:
    """Return notes for the user on a reply without content."""
    if reply is None:
        return []
    if reply.remark:
        return [reply.remark]
    if request.kind == "need" and reply.yes is None:
        text = reply.text.strip()[:80]
        return [f"asked whether it needs more, the LLM said {text!r}, neither yes nor no; this counts as yes"]
    if request.kind == "answer" and not reply.text.strip():
        return ["the LLM's answer is empty"]
    if reply.choice == "" and reply.known and not request.draft:
        return [
            f"the LLM's answer {reply.text.strip()[:80]!r} names none of the options; it counts as no choice"
        ]
    return []


class TimedGenerator:
    """Times the cards of a pool: the seconds of each call are divided among its questions."""

    def __init__(self, writer: Generator) -> None:
        self._writer = writer
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def cards(self) -> Sequence[Choice]:
        return self._writer.cards

    @property
    def is_sequential(self) -> bool:
        """Whether larger batches load cards less often; see Pool."""
        return bool(getattr(self._writer, "is_sequential", False))

    def close(self, question: str) -> float:
        """Return the question's seconds and reset them."""
        return self._seconds.pop(question, 0.0)

    def generate(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        return self.generate_each(questions, [cards] * len(questions), documents, sampling)

    def generate_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        started = time.perf_counter()
        written = generate(self._writer, questions, cards, documents, sampling)
        share = (time.perf_counter() - started) / max(len(questions), 1)
        for question in questions:
            self._seconds[question] += share
        return written
