"""Limits of the processes that answer questions: time, memory, the queue, and clients that leave.

The processes run a small program that does what the question says: sleep, wait, die, write nonsense, or tell its id.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kcard.hub.server import questions as asking
from kcard.hub.server.questions import Program
from kcard.hub.server.web import ask
from tests.hub.server.asking_hub import MOONS, asking_hub, publish_passages
from tests.hub.server.browser_session import Browser, text
from tests.hub.shared_hub import Shared

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    verb, argument, *started = (json.loads(line)["question"] + " ").split(" ")
    if started and started[0]: open(started[0], "w").close()
    if verb == "sleep": time.sleep(float(argument))
    while verb == "until" and not os.path.exists(argument): time.sleep(0.02)
    if verb == "die": os._exit(1)
    if verb == "fill": bytearray(int(argument))
    if verb == "nonsense": print("nonsense", flush=True)
    if verb == "folder":
        print(json.dumps({"folder": argument}), flush=True)
        print(json.dumps({"done": json.loads(sys.stdin.readline())}), flush=True)
        continue
    print(json.dumps({"done": {"answer": {"answer": f"process {os.getpid()}"}}}), flush=True)
"""
CHILD = Program((sys.executable, "-c", PROGRAM), lambda _folder: {})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ask, "OF_CLIENT", 10_000)
        with asking_hub(folder, CHILD, exam_required=False) as shared:
            publish_passages(shared, folder / "moons", "lab/moons", MOONS, "Moons")
            yield shared


def question(shared: Shared, what: str, who: str | None = None) -> httpx.Response:
    browser = Browser(shared)
    if who is not None:
        browser.log_in(who).open("/ask")
    return browser.send("/ask", {"card": "lab/moons", "question": what})


def process(answer: httpx.Response) -> int:
    """Which one answered."""
    page = text(answer)
    assert "process " in page, page
    return int(page.partition("process ")[2].split()[0])


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def until(gone: int) -> None:
    wait_for(lambda: not running(gone))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_one_process_answers_one_question_after_the_other(shared: Shared) -> None:
    assert process(question(shared, "tell")) == process(question(shared, "tell", "bob"))


def test_a_question_that_takes_too_long_ends_with_its_process(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = process(question(shared, "tell"))
    monkeypatch.setattr(asking, "SECONDS", 0.5)
    answer = question(shared, "sleep 60")
    assert answer.status_code == 400
    assert "it took longer than 0.5 s" in text(answer)
    until(gone=first)
    monkeypatch.undo()
    assert process(question(shared, "tell")) != first


@pytest.mark.parametrize("fatal", ["die", "fill 100000000000000"])
def test_a_process_that_dies_is_told_of_and_replaced(shared: Shared, fatal: str) -> None:
    first = process(question(shared, "tell"))
    answer = question(shared, fatal)
    assert answer.status_code == 400
    assert "its process ended" in text(answer)
    assert process(question(shared, "tell")) != first


def test_a_process_that_was_killed_while_it_was_idle_is_replaced(shared: Shared) -> None:
    first = process(question(shared, "tell"))
    os.kill(first, 9)
    until(gone=first)
    wait_for(lambda: question(shared, "tell").status_code == 200)
    assert process(question(shared, "tell")) != first


def test_what_can_not_be_read_is_an_error_of_the_server(shared: Shared) -> None:
    answer = question(shared, "nonsense")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert question(shared, "tell").status_code == 200


def test_a_process_gets_no_folder_but_those_of_its_question(shared: Shared) -> None:
    assert "unknown card bob/private@v1" in text(question(shared, "folder bob/private@v1"))
    assert "unknown card ../../etc" in text(question(shared, "folder ../../etc"))


@contextmanager
def occupied(shared: Shared, folder: Path) -> Iterator["Future[httpx.Response]"]:
    """A question that occupies the process until the block ends."""
    started, end = folder / "started", folder / "end"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(question, shared, f"until {end} {started}", "bob")
        try:
            wait_for(started.exists)
            yield first
        finally:
            end.touch()


def test_the_queue_is_short_and_each_client_has_few_places_in_it(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_WAITING", 2)
    with ThreadPoolExecutor(8) as pool:
        with occupied(shared, tmp_path) as first:
            of_bob = [pool.submit(question, shared, "tell", "bob") for _ in range(3)]
            wait_for(lambda: sum(each.done() for each in of_bob) == 2)
            others = [pool.submit(question, shared, "tell", who) for who in ("ada", "cleo", "dan")]
            wait_for(lambda: sum(each.done() for each in others) == 2)
            refused = [each.result() for each in of_bob + others if each.done()]
        answers = [each.result() for each in [first, *of_bob, *others]]
    assert [answer.status_code for answer in refused] == [503] * 4
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 4
    for answer in refused:
        assert answer.headers["retry-after"] == "10"
        assert "too many questions are waiting" in text(answer)
    assert question(shared, "tell", "dan").status_code == 200


def test_a_question_waits_only_so_long(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WAIT_SECONDS", 0.3)
    with occupied(shared, tmp_path) as first:
        assert question(shared, "tell").status_code == 503
    assert first.result().status_code == 200


def leave(shared: Shared, what: str, started: Path | None = None) -> None:
    """Ask, and close the connection before the answer, but after a process has written the file `started`."""
    what = what if started is None else f"{what} {started}"
    url = httpx.URL(shared.url)
    body = f"card=lab%2Fmoons&question={what.replace(' ', '+')}".encode()
    head = (
        f"POST /ask HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nOrigin: {shared.url}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((str(url.host), int(url.port or 0))) as connection:
        connection.sendall(head.encode() + body)
        if started is None:
            time.sleep(0.7)
        else:
            wait_for(started.exists)


def test_a_long_question_ends_when_its_client_leaves(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "GRACE_SECONDS", 0.2)
    first = process(question(shared, "tell"))
    leave(shared, "sleep 60", tmp_path / "started")
    until(gone=first)
    assert process(question(shared, "tell")) != first


def test_a_short_question_of_a_client_who_leaves_keeps_the_process(shared: Shared, tmp_path: Path) -> None:
    first = process(question(shared, "tell"))
    leave(shared, "sleep 0.5", tmp_path / "started")
    assert process(question(shared, "tell")) == first


def test_a_client_who_leaves_while_waiting_frees_the_place(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_WAITING", 1)
    with ThreadPoolExecutor(1) as pool:
        with occupied(shared, tmp_path):
            leave(shared, "tell")
            waiting = pool.submit(question, shared, "tell")
            for _ in range(20):
                time.sleep(0.5)
                if not waiting.done():  # it has the place
                    break
                waiting = pool.submit(question, shared, "tell")
        assert waiting.result().status_code == 200
