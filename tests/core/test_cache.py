"""The cache forgets at worst: damaged, full, locked or unwritable, it changes no value and raises nothing."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kcard import cache
from kcard.cache import Cache, key, remembered
from kcard.embedded import minilm

TEXTS = [
    "Ron Wyden won Oregon.",
    "Ganymede circles Jupiter.",
    "été à l'ombre 月",
    "",
    "Ron Wyden won Oregon.",
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test knows what another one computed."""
    forget()
    yield
    forget()


def forget() -> None:
    cache.memory.clear()


class Doubling:
    """Computes twice the text, and remembers for what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> list[str]:
        def compute(places: list[int]) -> list[bytes]:
            self.asked += [texts[i] for i in places]
            return [(texts[i] * 2).encode() for i in places]

        return [value.decode() for value in remembered([key("test", text) for text in texts], compute)]


def file(home: Path) -> Path:
    return home / "cache" / "values.sqlite"


def test_what_is_known_is_not_computed_again_in_this_process_nor_in_the_next(home: Path) -> None:
    double = Doubling()
    assert double(["a", "b", "a"]) == ["aa", "bb", "aa"]
    assert double.asked == ["a", "b"]
    assert double(["c", "b"]) == ["cc", "bb"]
    assert double.asked == ["a", "b", "c"]
    forget()
    assert double(["a", "b", "c"]) == ["aa", "bb", "cc"]
    assert double.asked == ["a", "b", "c"]
    assert file(home).exists()


def test_keys_tell_apart_where_one_part_ends() -> None:
    assert key("a", "bc") != key("ab", "c") != key("abc")
    assert key("\ud800") != key("?")


def test_a_cache_of_size_zero_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_CACHE_MB", "0")
    double = Doubling()
    assert double(["a", "a"]) == double(["a", "a"]) == ["aa", "aa"]
    assert double.asked == ["a", "a"]
    assert not home.exists()


def test_a_damaged_file_is_replaced(home: Path) -> None:
    file(home).parent.mkdir(parents=True)
    file(home).write_bytes(b"no database" * 1000)
    double = Doubling()
    for _ in range(3):
        assert double(["a", "b"]) == ["aa", "bb"]
        forget()
    assert double.asked in (["a", "b"], ["a", "b"] * 2)


@pytest.mark.parametrize(
    "value", ["x''", "'12345678xx'", "'text'", "7", "NULL", "(SELECT value FROM entries WHERE id = 2)"]
)
def test_a_damaged_value_and_that_of_another_key_count_as_none(home: Path, value: str) -> None:
    double = Doubling()
    double(["a", "b"])
    with sqlite3.connect(file(home)) as database:
        database.execute(f"UPDATE entries SET value = {value} WHERE id = 1")
    database.close()
    forget()
    assert double(["a", "b"]) == ["aa", "bb"]
    assert double.asked == ["a", "b", "a"]


@pytest.mark.parametrize("where", ["", "cache", "cache/values.sqlite"])
def test_where_it_cannot_lie_it_is_done_without(home: Path, where: str) -> None:
    path = home / where
    path.parent.mkdir(parents=True, exist_ok=True)
    if where.endswith("sqlite"):
        path.mkdir()
    else:
        path.write_text("a file where the folder should be", encoding="utf-8")
    double = Doubling()
    assert double(["a"]) == ["aa"]
    forget()
    assert double(["a"]) == ["aa"]
    assert double.asked == ["a", "a"]


def test_it_stays_within_its_size_and_the_oldest_go_first(tmp_path: Path) -> None:
    cache_ = Cache(tmp_path / "values.sqlite", limit=300_000)
    keys = [key(str(i)) for i in range(1000)]
    for start in range(0, 1000, 100):
        cache_.write({k: k * 32 for k in keys[start : start + 100]})
    assert cache_.path.stat().st_size < 600_000
    values = cache_.read(keys)
    assert list(values) == keys[-len(values) :]
    assert 100 <= len(values) <= 300
    Cache(cache_.path, limit=10).write({keys[0]: b"one"})
    assert cache_.read(keys) == {}


FULL = """
import resource, sys
sys.dont_write_bytecode = True
from kcard.cache import key, remembered
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
keys = [key(str(i)) for i in range(300)]
for _ in range(2):
    values = remembered(keys, lambda places: [keys[i] * 32 for i in places])
    assert values == [k * 32 for k in keys]
"""
TOGETHER = """
import sys
from kcard.cache import Cache, key
from pathlib import Path
found = Cache(Path(sys.argv[1]), 10_000_000)
for i in range(25):
    found.write({key(str(i)): str(i).encode() * 50, key(sys.argv[2], str(i)): b"own"})
    for j in range(i + 1):
        assert found.read([key(str(j))]).get(key(str(j))) in (None, str(j).encode() * 50)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_a_full_disk_is_done_without() -> None:
    subprocess.run([sys.executable, "-c", FULL], check=True)


def test_several_processes_use_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    running = [subprocess.Popen([sys.executable, "-c", TOGETHER, str(path), name]) for name in "abc"]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    stored = Cache(path, 10_000_000).read([key(str(i)) for i in range(25)])
    assert stored == {key(str(i)): str(i).encode() * 50 for i in range(25)}


def test_remembered_embeddings_are_those_of_the_encoder_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = cache.embed(TEXTS)
    in_memory = cache.embed(TEXTS)
    forget()
    on_disk = cache.embed(TEXTS)
    monkeypatch.setenv("KCARD_CACHE_MB", "0")
    uncached = cache.embed(TEXTS)
    for vectors in (in_memory, on_disk, uncached):
        np.testing.assert_array_equal(vectors, computed)
    np.testing.assert_allclose(computed, minilm.embed(TEXTS), atol=1e-6)
    assert cache.embed([]).shape == (0, 384)


def test_embeddings_of_one_model_are_not_taken_for_those_of_another() -> None:
    one = cache.remembered_embeddings("one", ["a"], lambda texts: np.ones((len(texts), 2), dtype=np.float32))
    other = cache.remembered_embeddings(
        "other", ["a"], lambda texts: np.zeros((len(texts), 3), dtype=np.float32)
    )
    assert (one.tolist(), other.tolist()) == ([[1, 1]], [[0, 0, 0]])


def test_a_locked_file_is_done_without(home: Path) -> None:
    double = Doubling()
    double(["a"])
    with closing(sqlite3.connect(file(home), isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert double(["b"]) == ["bb"]
    forget()
    assert double(["a", "b"]) == ["aa", "bb"]
    assert double.asked == ["a", "b", "b"]
