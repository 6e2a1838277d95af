"""Calls run several at a time; results and exceptions come in the order of the items."""

import time
from threading import Event, Lock

import pytest

from kcard.batching import QUESTIONS, in_order, questions_together


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_at_most_so_many_calls_run_at_a_time_and_their_results_are_in_order(workers: int) -> None:
    lock, running, most = Lock(), [0], [0]

    def call(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01 * (2 - number % 2))  # the later one ends first
        with lock:
            running[0] -= 1
        return number

    assert list(in_order(call, range(10), workers)) == list(range(10))
    assert most[0] == workers


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_comes_in_its_place_and_ends_the_rest(workers: int) -> None:
    begun: list[int] = []

    def call(n: int) -> int:
        begun.append(n)
        time.sleep(0.01)
        if n == 1:
            raise ValueError("no")
        return n

    results = in_order(call, range(50), workers)
    assert next(results) == 0
    with pytest.raises(ValueError, match="no"):
        next(results)
    time.sleep(0.05)
    assert len(begun) < 10


def test_no_call_begins_once_the_iterator_is_closed() -> None:
    begun, go = list[int](), Event()

    def call(number: int) -> None:
        begun.append(number)
        if number:
            go.wait(10)

    results = in_order(call, range(50), 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    count = len(begun)
    go.set()
    time.sleep(0.05)
    assert len(begun) <= count + 1


# Items so many at a time.


@pytest.mark.parametrize(("requests", "questions"), [(None, QUESTIONS), (1, QUESTIONS), (4, 16), (25, 100)])
def test_questions_are_asked_together_four_for_each_request_at_a_time(
    requests: int | None, questions: int
) -> None:
    assert questions_together(requests) == questions
