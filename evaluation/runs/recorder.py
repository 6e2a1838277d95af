"""An LLM whose every request is recorded, for the questions that it was made for."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from kcard.errors import KcardError, LLMError, one_line
from kcard.evaluation.runs.result import Call
from kcard.llms.prompts import render
from kcard.protocols import LLM, Batching, Prompting, Windowed
from kcard.request import Reply, Request

__all__ = ["Recorder"]


class Recorder:
    """The same LLM to whoever asks it; what was asked is collected question by question.

    A request belongs to the question that it holds or, where the question was cut to fit into a window, begins. Other
    requests belong to the question that is collected next, so everything is collected once. It is thread-safe.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._lock = threading.Lock()
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        if isinstance(llm, Batching):
            self.reply_all = partial(self._reply_all, llm)  # so that this one is Batching too

    @property
    def announcement(self) -> str:
        """What answers, for the user; empty where the LLM does not say."""
        return str(getattr(self._llm, "announcement", ""))

    @property
    def concurrency(self) -> int:
        """Requests that the LLM takes at a time."""
        return int(getattr(self._llm, "concurrency", 1))

    @property
    def window(self) -> int | None:
        """The most tokens that a request may take; None: not known."""
        return self._llm.window if isinstance(self._llm, Windowed) else None

    def count(self, request: Request) -> int:
        """The tokens of a request; asked only of an LLM that has a window."""
        return cast(Windowed, self._llm).count(request)

    def reply(self, request: Request) -> Reply:
        """The LLM's reply. Raises LLMError, as the LLM does, which is recorded too."""
        started = time.perf_counter()
        try:
            reply = self._llm.reply(request)
        except KcardError as error:
            self._record(request, error, time.perf_counter() - started)
            raise
        self._record(request, reply, time.perf_counter() - started)
        return reply

    def _reply_all(self, llm: Batching, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """The replies of one batch, whose seconds are shared among its requests."""
        started = time.perf_counter()
        found = list(llm.reply_all(requests))
        for request, reply in zip(requests, found, strict=True):
            self._record(request, reply, (time.perf_counter() - started) / len(found))
        yield from found

    def collect(self, question: str, others: Sequence[str] = ()) -> tuple[Call, ...]:
        """The requests for this question, in order, which are then forgotten.

        `others`: the questions that are still to be collected, whose requests stay.
        """
        with self._lock:
            theirs = {
                text for text in self._calls if text != question and any(_holds(o, text) for o in others)
            }
            taken = [text for text in self._calls if text not in theirs]
            return tuple(call for text in taken for call in self._calls.pop(text))

    def _record(self, request: Request, reply: Reply | KcardError, seconds: float) -> None:
        prompt = self._prompt(request)
        if isinstance(reply, Reply):
            call = Call(request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, seconds)
        else:
            call = Call(request.kind, prompt, "", seconds=seconds, error=one_line(reply))
        with self._lock:
            self._calls[request.question].append(call)

    def _prompt(self, request: Request) -> str:
        return self._llm.prompt(request) if isinstance(self._llm, Prompting) else render(request)


def _holds(question: str, asked: str) -> bool:
    return bool(asked) and question.startswith(asked)
