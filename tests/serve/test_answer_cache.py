"""Answers are kept for questions that come again; equal questions at a time are answered once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kcard.serve.service import AnswerCache, ServedAnswer
from kcard.types import Answer, Decision


class Finding:
    """Finds answers once they are let through; `found` are those that were begun."""

    def __init__(self) -> None:
        self.version, self.begun, self.ended = 1, list[str](), list[str]()
        self.let = asyncio.Event()

    async def current(self) -> int:
        return self.version

    def __call__(self, question: str) -> Callable[[], Awaitable[Answer]]:
        async def find() -> Answer:
            self.begun.append(question)
            await self.let.wait()
            if question == "fails":
                raise ValueError("no answer")
            self.ended.append(question)
            return Answer(question, f"answer to {question}", "direct", Decision("never", 1.0, False))

        return find


def run(work: Callable[[AnswerCache, Finding], Coroutine[Any, Any, None]], most: int = 2) -> None:
    async def main() -> None:
        await asyncio.wait_for(work(AnswerCache(most), Finding()), 10)

    asyncio.run(main())


def test_a_question_that_comes_again_is_answered_from_the_cache_until_others_take_its_place() -> None:
    async def work(cache: AnswerCache, finding: Finding) -> None:
        finding.let.set()

        async def ask(question: str) -> bool:
            served = await cache.get(finding.current, question, finding(question))
            assert served.answer.answer == f"answer to {question}"
            return served.cached

        assert [await ask(q) for q in "aabacab"] == [False, True, False, True, False, True, False]

    run(work)


def test_equal_questions_at_a_time_are_answered_once() -> None:
    async def work(cache: AnswerCache, finding: Finding) -> None:
        tasks = [asyncio.create_task(cache.get(finding.current, q, finding(q))) for q in "aab"]
        await asyncio.sleep(0.01)
        finding.let.set()
        results: list[ServedAnswer] = await asyncio.gather(*tasks)
        assert finding.begun == ["a", "b"]
        assert [one.cached for one in results] == [False, True, False]

    run(work, most=0)


def test_who_asked_first_may_leave_and_when_all_have_left_the_answer_is_not_found() -> None:
    async def work(cache: AnswerCache, finding: Finding) -> None:
        tasks = [asyncio.create_task(cache.get(finding.current, q, finding(q))) for q in "aabb"]
        await asyncio.sleep(0.01)
        for leaving in (tasks[0], tasks[2], tasks[3]):
            leaving.cancel()
        await asyncio.sleep(0.01)
        finding.let.set()
        assert (await tasks[1]).answer.answer == "answer to a"
        await asyncio.sleep(0.01)
        assert finding.ended == ["a"]
        assert not (await cache.get(finding.current, "b", finding("b"))).cached

    run(work)


def test_when_cards_change_answers_are_dropped_and_those_being_found_are_not_kept() -> None:
    async def work(cache: AnswerCache, finding: Finding) -> None:
        task = asyncio.create_task(cache.get(finding.current, "a", finding("a")))
        await asyncio.sleep(0.01)
        finding.version = 2
        finding.let.set()
        await task
        answers = [await cache.get(finding.current, "a", finding("a")) for _ in range(2)]
        finding.version = 3
        answers.append(await cache.get(finding.current, "a", finding("a")))
        assert [one.cached for one in answers] == [False, True, False]

    run(work)


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    async def work(cache: AnswerCache, finding: Finding) -> None:
        tasks = [asyncio.create_task(cache.get(finding.current, "fails", finding("fails"))) for _ in "ab"]
        await asyncio.sleep(0.01)
        finding.let.set()
        for task in tasks:
            with pytest.raises(ValueError, match="no answer"):
                await task
        with pytest.raises(ValueError, match="no answer"):
            await cache.get(finding.current, "fails", finding("fails"))
        assert finding.begun == ["fails", "fails"]

    run(work)
