"""The budget of cards: what leaves, when, and what is said of a wrong one."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kcard.cards.lm.memory import Memory, share
from kcard.cards.lm.stacks import read_ahead
from kcard.cards.pool import Pool
from kcard.cli.main import app
from kcard.errors import UsageError


def there(memory: Memory) -> str:
    return "".join(key for key in "abcdefx" if key in memory)


def test_what_was_used_longest_ago_leaves_when_the_budget_is_reached() -> None:
    memory = Memory(10)
    for key in "abc":
        memory.put(key, key, 3)
    assert memory.get("a") == "a"
    memory.put("d", "d", 4)
    assert (there(memory), memory.used) == ("acd", 10)
    memory.put("c", "c", 5)
    assert (there(memory), memory.used) == ("cd", 9)


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
