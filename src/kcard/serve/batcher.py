"""Questions that arrive while others are answered wait, and are answered together in the next batch."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kcard.batches import QUESTIONS
from kcard.serve.errors import Busy

__all__ = ["Batcher"]

Route = TypeVar("Route", bound=Hashable)
Result = TypeVar("Result")
Other = TypeVar("Other")


@dataclass(eq=False)
class _Waiting(Generic[Route]):
    route: Route
    question: str
    future: "asyncio.Future[object]" = field(repr=False)
    loop: asyncio.AbstractEventLoop = field(repr=False)


class Batcher(Generic[Route, Result]):
    """One thread answers batches of questions of one route, the oldest first.

    Args:
        answer: gives one result a question, in order; called in the thread
        most: questions in a batch
        waiting: questions that may wait; further ones are refused
        dropped: called in the thread with the result of a question whose client left during its batch

    A question whose client has left before its batch begins is not answered.
    """

    def __init__(
        self,
        answer: Callable[[Route, Sequence[str]], Iterator[Result]],
        most: int = QUESTIONS,
        waiting: int = 256,
        dropped: Callable[[Result], object] = lambda _: None,
    ) -> None:
        self._answer, self._most, self._limit, self._dropped = answer, most, waiting, dropped
        self._queue: deque[_Waiting[Route]] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kcard-answers")

    def __len__(self) -> int:
        """Questions that wait."""
        return len(self._queue)

    async def submit(self, route: Route, question: str) -> Result:
        """The question's result. Raises Busy where too many wait, and whatever `answer` raises."""
        loop = asyncio.get_running_loop()
        entry = _Waiting(route, question, loop.create_future(), loop)
        with self._lock:
            if len(self._queue) >= self._limit:
                raise Busy(f"{self._limit} questions are waiting: try again later", retry_after=1)
            self._queue.append(entry)
            if not self._running:
                self._running = True
                self._thread.submit(self._run)
        return await entry.future  # type: ignore[return-value]

    async def call(self, function: Callable[..., Other], *arguments: object) -> Other:
        """Call it in the thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it in the thread some time; nobody waits for it."""
        with contextlib.suppress(RuntimeError):  # closed
            self._thread.submit(function, *arguments)

    def close(self) -> None:
        """Answer nothing that waits, and end the thread after its batch."""
        with self._lock:
            self._queue.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        """Answer one batch; the next is submitted anew, behind calls that wait for the thread."""
        batch = self._next()
        if not batch:
            return
        try:
            results = self._answer(batch[0].route, [entry.question for entry in batch])
            for entry, result in zip(batch, results, strict=True):
                self._settle(entry, result, None)
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            for entry in batch:
                self._settle(entry, None, error)
        self.post(self._run)

    def _next(self) -> "list[_Waiting[Route]]":
        """The oldest question and those of the same route; the others keep their order."""
        with self._lock:
            alive = [entry for entry in self._queue if not entry.future.done()]
            same = [entry for entry in alive if entry.route == alive[0].route][: self._most]
            taken = set(map(id, same))
            self._queue = deque(entry for entry in alive if id(entry) not in taken)
            self._running = bool(same)
            return same

    def _settle(self, entry: "_Waiting[Route]", result: "Result | None", error: Exception | None) -> None:
        def settle() -> None:
            if error is None and entry.future.done():
                self.post(self._dropped, result)
            elif error is None:
                entry.future.set_result(result)
            elif not entry.future.done():
                entry.future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            entry.loop.call_soon_threadsafe(settle)
