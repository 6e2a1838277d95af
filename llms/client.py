"""The client of an LLM, which every request goes through: context window, costs, retries, concurrency."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import count

from kcard.batching import MAX_FAILED_REQUESTS, FailureStreak, batched, in_order
from kcard.errors import LLMError, one_line
from kcard.interfaces import LLM, replies
from kcard.llms.parsing import admits_ignorance, named_option
from kcard.trace import Call
from kcard.types import Reply, Request

# Truncation of a request to the LLM's context window.

Fits = Callable[[Request], bool]


def fit(request: Request, llm: LLM) -> tuple[Request, str | None]:
    """Truncate the request to the LLM's window; return it with a note for the user, or unchanged with None if it fits.

    Truncation order, until the rest fits: in-context examples, one by one from the first, which is the farthest;
    earlier turns, then the tail of the question, if they would leave knowledge less than half of the window; knowledge
    from its end, where the least relevant stands, and the tail of the last remaining passage; cards to choose from,
    from the end.
    """
    if llm.window is None or llm.count(request) <= llm.window:
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
    room = window
    # Half of the window for knowledge; the embedded reader reads each text by itself, so that nothing is shared.
    if llm.count(bare) < llm.count(request):
        room = window // 2
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
            if cut_text:
                cuts.append(cut_text)
    return request, _note(window, cuts)


def _note(window: int, cuts: Sequence[str]) -> str | None:
    if not cuts:
        return None
    return f"the LLM reads {window} tokens at most; left out: {', '.join(cuts)}"


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
    if not head:
        return replace(request, knowledge=()), "all passages"
    cut = "the end of the most relevant passage"
    if len(texts) > 1:
        cut = f"{len(texts) - 1} of {len(texts)} passages and {cut}"
    return replace(request, knowledge=(head,)), cut


def _cut_choices(request: Request, fits: Fits) -> tuple[Request, str | None]:
    cards = request.choices
    if request.kind != "choose" or not cards:
        return request, None
    fitting = max(1, _largest(len(cards), lambda n: fits(replace(request, choices=cards[:n]))))
    cut = f"{len(cards) - fitting} of {len(cards)} cards to choose from"
    return replace(request, choices=cards[:fitting]), cut


def _head(text: str, length: int) -> str:
    """Return the first `length` characters, cut back to a whole word if there is one."""
    if length >= len(text):
        return text
    head, blank, _ = text[: length + 1].rpartition(" ")
    if blank and head.strip():
        return head
    return text[:length]


def _largest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest n in 0..count that fits, given that all below it do; 0 if none does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


NUMBERS = count()  # of requests, in the order in which they are made
TRIES = 4  # to fit a prompt into a window whose size only refusals reveal


class LLMClient(LLM):
    """The client of an LLM: truncates requests to its window, and adds each to the trace of its question.

    A request that has a reply in the trace is not made again, so that after a failure only failed ones are repeated.

    concurrency  concurrent requests, or the batch size for an LLM that is batched; None: the LLM's own
    """

    def __init__(self, llm: LLM, concurrency: int | None = None) -> None:
        self._llm = llm
        self.concurrency = concurrency or llm.concurrency
        self.announcement = llm.announcement or type(llm).__name__

    @property
    def streams(self) -> bool:
        """Whether a reply comes in several pieces."""
        return self._llm.streams

    def truncate(self, request: Request) -> Request:
        """Return the request as the LLM reads it, truncated to its window."""
        return fit(request, self._llm)[0]

    def reply(self, request: Request) -> Reply:
        """Return the reply. Raises QuestionsFailed if the LLM raises LLMError."""
        (reply,) = replies(self, [request])
        return reply

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield each reply, or its error, in order and as soon as it is ready. Equal requests are sent once.

        After MAX_FAILED_REQUESTS consecutive failures the rest is skipped, since an endpoint that is down takes hours.
        """
        outcomes: dict[Request, Reply | LLMError] = {}
        pending: dict[Request, None] = {}
        for request in requests:
            if request.origin and request in request.origin.trace.replies:
                outcomes[request] = request.origin.trace.replies[request]
            else:
                pending[request] = None
        arriving, streak = self._ask([*pending]), FailureStreak(MAX_FAILED_REQUESTS)
        for request in requests:
            while request not in outcomes:
                arrived, outcome = next(arriving)
                outcomes[arrived] = outcome
                if streak.record(isinstance(outcome, LLMError)):
                    arriving.close()
                    reason = f"skipped after {streak.limit} consecutive failures; last error: {outcome}"
                    for left in pending:
                        outcomes.setdefault(left, LLMError(reason))
            yield outcomes[request]

    def _ask(self, requests: Sequence[Request]) -> Generator[tuple[Request, Reply | LLMError], None, None]:
        """Send requests in batches if the LLM takes batches, else concurrently; yield each with its outcome."""
        if not self._llm.is_batched:
            numbered = [(request, next(NUMBERS)) for request in requests]
            yield from zip(requests, in_order(self._ask_one, numbered, self.concurrency), strict=True)
            return
        for batch in batched(requests, self.concurrency):
            started = time.perf_counter()
            shortened = [fit(request, self._llm) for request in batch]
            outcomes = list(self._llm.reply_all([request for request, _ in shortened]))
            share = (time.perf_counter() - started) / len(batch)
            for request, outcome, (sent, note) in zip(batch, outcomes, shortened, strict=True):
                yield request, self._record(request, sent, outcome, share, note)

    def _ask_one(self, numbered: tuple[Request, int]) -> Reply | LLMError:
        try:
            *_, reply = self._pieces(*numbered, lambda shortened: iter([self._llm.reply(shortened)]))
        except LLMError as error:
            return error
        assert isinstance(reply, Reply)
        return reply

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the text in pieces, in one piece if the LLM can't stream, then the reply."""
        return self._pieces(request, next(NUMBERS), self._llm.stream)

    def _pieces(
        self, request: Request, number: int, ask: Callable[[Request], Iterator[str | Reply]]
    ) -> Iterator[str | Reply]:
        """Yield the reply in pieces. If a failure before the first reveals a smaller window, truncate and try again."""
        begun = False
        for tries_left in reversed(range(TRIES)):
            sent, note = fit(request, self._llm)
            started = time.perf_counter()
            try:
                for piece in ask(sent):
                    begun = True
                    if isinstance(piece, str):
                        yield piece
                    else:
                        seconds = time.perf_counter() - started
                        self._record(request, sent, piece, seconds, note, number)
                        yield _with_choice(request, piece)
                return
            except LLMError as error:
                self._record(request, sent, error, time.perf_counter() - started, number=number)
                if begun or not tries_left or self.truncate(request) == sent:
                    raise

    def record(self, request: Request, reply: Reply, seconds: float) -> None:
        """Add a reply that somebody else got to the trace of the request's question."""
        self._record(request, self.truncate(request), reply, seconds)

    def _record(
        self,
        request: Request,
        sent: Request,
        outcome: Reply | LLMError,
        seconds: float,
        note: str | None = None,
        number: int | None = None,
    ) -> Reply | LLMError:
        """Add a request to its question's trace. Return the outcome, a reply with the option that it names.

        sent    the request after truncation, which `note` tells
        number  None: the next
        """
        reply = _with_choice(request, outcome) if isinstance(outcome, Reply) else None
        if reply and request.kind == "answer" and not request.choices and admits_ignorance(reply.text):
            reply = replace(reply, known=False)
        if request.origin is None:
            return reply or outcome
        if number is None:
            number = next(NUMBERS)
        notes = _remarks(request, reply)
        if note:
            notes.insert(0, note)
        error = one_line(outcome) if isinstance(outcome, LLMError) else ""
        trace = request.origin.trace
        trace.add(Call(number, sent, reply, seconds, error, tuple(notes)))
        if reply is not None:
            trace.replies[request] = reply
        return reply or outcome


def _with_choice(request: Request, reply: Reply) -> Reply:
    """Add the option that the text names, unless the backend told which it chose."""
    if request.kind != "answer" or not request.choices or reply.choice is not None:
        return reply
    named = named_option(reply.text, request.choices) if reply.known else None
    return replace(reply, choice=named or "")


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
