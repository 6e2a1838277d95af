"""Questions that wait are answered together, oldest first; those whose client has left are not."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from kcard.serve.schema import Overloaded
from kcard.serve.service import Batcher


class Gated:
    """Answers a batch once it is let through; `batches` are those that began."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.begun, self.let = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, route: str, questions: Sequence[str]) -> Iterator[str]:
        self.batches.append((route, list(questions)))
        self.begun.release()
        assert self.let.acquire(timeout=10)
        for question in questions:
            if question == "fails":
                raise ValueError("no answer")
            yield f"{route}: {question}"


async def begin(
    batcher: Batcher[str, str], gated: Gated, *entries: tuple[str, str]
) -> list["asyncio.Task[str]"]:
    """Ask the first question, and the others once its batch has begun."""
    tasks = [asyncio.create_task(batcher.submit(*entries[0]))]
    await asyncio.to_thread(gated.begun.acquire, timeout=10)
    tasks += [asyncio.create_task(batcher.submit(*one)) for one in entries[1:]]
    await asyncio.sleep(0.01)
    return tasks


def test_what_comes_during_a_batch_is_answered_in_the_next_ones_by_route() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated, most=2)
        tasks = await begin(batcher, gated, ("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("b", "5"))
        for _ in range(9):
            gated.let.release()
        assert await asyncio.gather(*tasks) == ["a: 1", "b: 2", "a: 3", "b: 4", "b: 5"]
        assert gated.batches == [("a", ["1"]), ("b", ["2", "4"]), ("a", ["3"]), ("b", ["5"])]

    asyncio.run(run())


def test_a_question_whose_client_left_is_not_answered() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated)
        first, left, last = await begin(batcher, gated, ("a", "1"), ("a", "2"), ("a", "3"))
        left.cancel()
        await asyncio.sleep(0.01)
        gated.let.release(2)
        assert list(await asyncio.gather(first, last)) == ["a: 1", "a: 3"]
        assert gated.batches[1:] == [("a", ["3"])]

    asyncio.run(run())


def test_the_result_of_a_question_whose_client_left_meanwhile_is_handed_over() -> None:
    async def run() -> None:
        gated, dropped = Gated(), list[str]()
        batcher: Batcher[str, str] = Batcher(gated, dropped=dropped.append)
        (left,) = await begin(batcher, gated, ("a", "1"))
        left.cancel()
        await asyncio.sleep(0.01)
        gated.let.release(2)
        assert await batcher.submit("a", "2") == "a: 2"
        await batcher.call(lambda: None)  # behind what was posted
        assert dropped == ["a: 1"]

    asyncio.run(run())


def test_more_than_may_wait_is_refused_at_once() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated, waiting=1)
        tasks = await begin(batcher, gated, ("a", "1"), ("a", "2"))
        with pytest.raises(Overloaded, match="1 questions are waiting"):
            await batcher.submit("a", "3")
        gated.let.release(2)
        assert await asyncio.gather(*tasks) == ["a: 1", "a: 2"]

    asyncio.run(run())


def test_a_failure_reaches_those_who_wait_for_it_and_the_next_batch_is_answered() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated)
        first, fails, after = await begin(batcher, gated, ("a", "1"), ("b", "fails"), ("a", "2"))
        gated.let.release(3)
        assert await first == "a: 1"
        with pytest.raises(ValueError, match="no answer"):
            await fails
        assert await after == "a: 2"

    asyncio.run(run())
