"""Passes of the embedded models run on several threads, each of which torch uses alone."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from kcard.parallel import in_parallel, share
from kcard.reader.network import shared
from kcard.reader.reading import read, read_all


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_and_each_pass_has_one_thread() -> None:
    found = in_parallel(lambda number: (number, torch.get_num_threads()), list(range(20)))
    assert found == [(number, 1) for number in range(20)]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_that_begin_later_keep_torchs_own_number() -> None:
    in_parallel(str, [1, 2])
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]


@pytest.mark.usefixtures("two_threads")
def test_an_error_of_a_pass_is_raised() -> None:
    with pytest.raises(ValueError, match="'x'"):
        in_parallel(int, ["1", "x", "3"])


def test_a_forked_process_has_threads_of_its_own() -> None:
    code = """
import os, torch
from kcard.parallel import in_parallel
torch.set_num_threads(2)
in_parallel(str, [1, 2])
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0 if in_parallel(str, [1, 2]) == ["1", "2"] else 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=os.environ)


@pytest.mark.usefixtures("two_threads")
def test_the_share_of_a_thread_is_neither_tiny_nor_more_than_the_most() -> None:
    assert [share(tokens, 1024) for tokens in (0, 100, 600, 9000)] == [128, 128, 300, 1024]
    assert share(9000, 64) == 64


@pytest.mark.usefixtures("two_threads")
def test_questions_that_are_read_together_are_read_as_alone() -> None:
    asked = [
        (
            "Who discovered Triton?",
            ["Triton was discovered by William Lassell in 1846.", "Mars is red. " * 60],
        ),
        (
            "What orbits Neptune?",
            ["Triton was discovered by William Lassell in 1846.", "", "Nereid orbits it."],
        ),
    ]
    together = read_all(asked, shared())
    for (question, passages), readings in zip(asked, together, strict=True):
        for alone, reading in zip(read(question, passages, shared()), readings, strict=True):
            assert reading.relevance == pytest.approx(alone.relevance, abs=1e-4)
            assert [span.text for span in reading.answers] == [span.text for span in alone.answers]
            assert [(s.start, s.end) for s in reading.sentences] == [
                (s.start, s.end) for s in alone.sentences
            ]
