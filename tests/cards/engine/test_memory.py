"""The budget of cards: what leaves, when, and what is said of a wrong one."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kcard.cards.lm.memory import AGE, Memory, share
from kcard.cards.lm.stacks import read_ahead
from kcard.cards.pool import Pool
from kcard.cli.main import app
from kcard.errors import UsageError


def there(memory: Memory) -> str:
    return "".join(key for key in "abcdefx" if key in memory)


def test_what_was_used_least_leaves_when_the_budget_is_reached() -> None:
    memory = Memory(10)
    for key in "abc":
        memory.put(key, key, 3)
    assert memory.get("a") == "a"
    memory.put("d", "d", 4)
    assert (there(memory), memory.used) == ("acd", 10)
    memory.put("c", "c", 5)
    assert (there(memory), memory.used) == ("ac", 8)


def test_of_what_was_used_equally_often_the_one_used_longest_ago_leaves() -> None:
    memory = Memory(10)
    for key in "abc":
        memory.put(key, key, 3)
    for key in "bac":
        memory.get(key)
    memory.put("d", "d", 4)
    assert there(memory) == "acd"


def test_uses_are_remembered_of_what_left_and_lose_weight_with_time() -> None:
    memory = Memory(2)

    def use(key: str, times: int) -> None:
        memory.put(key, key, 1)
        for _ in range(times - 1):
            memory.get(key)

    use("a", 5)
    use("b", 3)
    use("c", 2)
    assert there(memory) == "ac"
    use("b", 1)
    assert there(memory) == "ab"
    use("c", 10 * AGE)
    use("b", 1)
    assert there(memory) == "bc"


def test_what_is_expected_leaves_last() -> None:
    memory = Memory(10)
    for key in "abc":
        memory.put(key, key, 3)
    memory.get("c")
    memory.expected.update("ab")
    memory.make_room(4)
    assert there(memory) == "ab"
    memory.make_room(7)
    assert there(memory) == "b"


def test_a_reservation_counts_and_lets_nothing_leave_that_is_expected() -> None:
    memory = Memory(10)
    for key in "abc":
        memory.put(key, key, 3)
    memory.expected.update("ab")
    assert not memory.reserve(5)
    assert (there(memory), memory.used) == ("abc", 9)
    assert memory.reserve(4)
    assert (there(memory), memory.used) == ("ab", 10)
    memory.release(4)
    assert memory.used == 6


def test_who_leaves_is_told() -> None:
    left: list[object] = []
    memory = Memory(2, left=lambda key, value: left.append((key, value)))
    memory.put("a", 1, 1)
    memory.put("b", 2, 1)
    memory.drop("b")
    memory.make_room(2)
    assert left == [("a", 1)]


def test_what_is_larger_than_the_budget_is_there_alone() -> None:
    memory = Memory(10)
    memory.put("a", "a", 5)
    memory.put("b", "b", 50)
    assert (there(memory), memory.used) == ("b", 50)
    memory.put("c", "c", 1)
    assert (there(memory), memory.used) == ("c", 1)


def test_room_is_made_before_something_is_there() -> None:
    memory = Memory(10)
    memory.put("a", "a", 5)
    memory.put("b", "b", 5)
    memory.make_room(4)
    assert there(memory) == "b"
    memory.make_room(11)
    assert (there(memory), memory.used) == ("", 0)


def test_what_takes_no_room_stays() -> None:
    memory = Memory(10)
    memory.put("x", "x", 0)
    for key in "abcdef":
        memory.put(key, key, 6)
    assert there(memory) == "fx"


def test_what_was_dropped_takes_no_memory() -> None:
    memory = Memory(10)
    memory.put("a", "a", 6)
    memory.drop("a")
    memory.drop("a")
    assert (there(memory), memory.used) == ("", 0)


def test_without_a_budget_it_is_half_of_the_machines_memory() -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert Memory().limit == share("cpu") == whole // 2


def test_a_wrong_budget_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="memory is 0: it must be at least 1 byte"):
        Pool([], memory=0)
    done = CliRunner().invoke(app, ["ask", "Who?", "--memory", "lots"])
    assert isinstance(done.exception, UsageError)
    assert "size 'lots'" in str(done.exception)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="there is no posix_fadvise here")
def test_the_weights_that_come_next_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[-1]))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "passages.jsonl").write_bytes(b"text")
    read_ahead([tmp_path])
    assert advised == [os.POSIX_FADV_WILLNEED]
