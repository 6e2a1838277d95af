"""The budget of cards: what leaves, when, and what is said of a wrong one."""

import os

import pytest
from typer.testing import CliRunner

from kcard.cards.models.loader import AGE, ModelCache
from kcard.cards.pool import CardPool
from kcard.cli.main import app
from kcard.errors import UsageError


def there(memory: ModelCache) -> str:
    return "".join(key for key in "abcdefx" if key in memory)


def test_what_was_used_least_leaves_when_the_budget_is_reached() -> None:
    memory = ModelCache(10)
    for key in "abc":
        memory.put(key, key, 3)
    assert memory.get("a") == "a"
    memory.put("d", "d", 4)
    assert (there(memory), memory.used) == ("acd", 10)
    memory.put("c", "c", 5)
    assert (there(memory), memory.used) == ("ac", 8)


def test_of_what_was_used_equally_often_the_one_used_longest_ago_leaves() -> None:
    memory = ModelCache(10)
    for key in "abc":
        memory.put(key, key, 3)
    for key in "bac":
        memory.get(key)
    memory.put("d", "d", 4)
    assert there(memory) == "acd"


def test_uses_are_remembered_of_what_left_and_lose_weight_with_time() -> None:
    memory = ModelCache(2)

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


def test_what_is_larger_than_the_budget_is_there_alone() -> None:
    memory = ModelCache(10)
    memory.put("a", "a", 5)
    memory.put("b", "b", 50)
    assert (there(memory), memory.used) == ("b", 50)
    memory.put("c", "c", 1)
    assert (there(memory), memory.used) == ("c", 1)


def test_room_is_made_before_something_is_there() -> None:
    memory = ModelCache(10)
    memory.put("a", "a", 5)
    memory.put("b", "b", 5)
    memory.make_room(4)
    assert there(memory) == "b"
    memory.make_room(11)
    assert (there(memory), memory.used) == ("", 0)


def test_what_takes_no_room_stays() -> None:
    memory = ModelCache(10)
    memory.put("x", "x", 0)
    for key in "abcdef":
        memory.put(key, key, 6)
    assert there(memory) == "fx"


def test_what_was_dropped_takes_no_memory() -> None:
    memory = ModelCache(10)
    memory.put("a", "a", 6)
    memory.drop("a")
    memory.drop("a")
    assert (there(memory), memory.used) == ("", 0)


def test_without_a_budget_it_is_half_of_the_machines_memory() -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert ModelCache().limit == whole // 2


def test_a_wrong_budget_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="memory is 0: it must be at least 1 byte"):
        CardPool([], memory=0)
    done = CliRunner().invoke(app, ["ask", "Who?", "--memory", "lots"])
    assert isinstance(done.exception, UsageError)
    assert "size 'lots'" in str(done.exception)
