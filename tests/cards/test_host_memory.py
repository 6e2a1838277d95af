"""Models that leave the device stay in the memory of the host; here both are the memory of a CPU."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kcard.cards.format.folder import Card
from kcard.cards.lm import rereading, weights
from kcard.cards.lm.engine import trees
from kcard.cards.lm.host import HostMemory, host_share, on_device
from kcard.cards.lm.loader import Loader
from kcard.cards.lm.memory import Memory
from kcard.cards.pool import Pool
from kcard.cli.main import app
from kcard.errors import UsageError
from kcard.integrators.assembly import make_loader
from kcard.integrators.options import AskOptions
from kcard.sampling import Sampling
from tests.cards.engine.cards import full, lora

NAMES = ["a", "b", "c", "d", "e", "f"]
QUESTIONS = ["Where does the Rhine end?", "The Seine?"]
SAMPLED = Sampling(temperature=1.0, tokens=6)


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    folder = tmp_path_factory.mktemp("host")
    return [full(folder, "opt", name, seed) for seed, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def size(cards: list[Card]) -> int:
    return weights.size(cards[0].folder, "cpu")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cards whose files were read again."""
    found: list[str] = []
    again = rereading.read

    def noted(source: Any) -> Any:
        found.append(source.folder.name)
        return again(source)

    monkeypatch.setattr(rereading, "read", noted)
    return found


def written(pool: Pool, names: list[str] = NAMES) -> list[list[str]]:
    return [[p.text for p in row] for row in pool.write(QUESTIONS, names, 2, SAMPLED)]


def pool_of(cards: list[Card], memory: int, host: int) -> Pool:
    return Pool(cards, loader=Loader(memory=memory, host_memory=host))


# With room for exactly the 4 others it is sometimes one, since two cards that change places need room for a third.
@pytest.mark.parametrize(("host", "files"), [(0, 4), (1, 3), (2, 2), (3, 1), (5, 0), (9, 0)])
def test_a_batch_reads_the_files_of_cards_that_are_in_neither_memory(
    host: int, files: int, cards: list[Card], size: int, read: list[str]
) -> None:
    expected = written(Pool(cards))
    pool = pool_of(cards, 2 * size, host * size)
    for sweep in range(4):
        read.clear()
        assert written(pool) == expected
        assert len(read) == (files if sweep else 0)
        assert pool._models.held.used <= 2 * size
        if pool._models.host is not None:
            assert pool._models.host.memory.used <= host * size


def test_cards_in_the_memory_of_the_host_come_before_those_in_files(
    cards: list[Card], size: int, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(cards, 2 * size, 2 * size)
    written(pool)
    order: list[str] = []
    plain: Any = pool._turns.writer("a").group.write  # type: ignore[attr-defined]

    def noted(*given: Any) -> Any:
        order.append(given[1][0].card.name)
        return plain(*given[1:])

    monkeypatch.setattr("kcard.cards.lm.stacked.Group.write", noted)
    written(pool)
    assert order == ["e", "f", "c", "d", "a", "b"]
    assert read == ["a", "b"]


def test_a_card_whose_files_are_gone_is_copied_back(
    cards: list[Card], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(cards, 2 * size, 6 * size)
    expected = written(pool)

    def gone(*_: Any) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(rereading, "read", gone)
    monkeypatch.setattr(weights, "read", gone)
    assert written(pool) == expected


def test_what_is_expected_and_is_not_on_the_device_keeps_its_place(cards: list[Card]) -> None:
    decoder = weights.read(cards[0], Loader()).decoder
    device = Memory(10**9)
    host = HostMemory(2 * trees.size(decoder), device)
    host.keep("a", decoder)
    host.keep("b", decoder)
    host.memory.expected.add("b")
    host.keep("c", decoder)
    assert [key in host.memory for key in "abc"] == [False, True, True]
    host.memory.expected.add("c")
    host.keep("d", decoder)
    assert [key in host.memory for key in "bcd"] == [True, True, False]
    device.put("c", decoder, 1)
    host.keep("d", decoder)
    assert [key in host.memory for key in "bcd"] == [True, False, True]


def test_a_copy_is_equal_and_ties_what_was_tied(cards: list[Card]) -> None:
    decoder = weights.read(cards[0], Loader()).decoder
    host = HostMemory(10**9, Memory(10**9))
    host.keep("a", decoder)
    copy = host.peek("a")
    assert copy is not None
    assert on_device(copy, "cpu") is copy
    assert trees.size(copy) == trees.size(decoder) == host.memory.used
    for one, other in zip(trees.tensors(copy), trees.tensors(decoder), strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()


def test_pinned_tensors_count_as_torch_allocates_them() -> None:
    assert trees.size((torch.zeros(5), torch.zeros(8)), rounded=True) == 32 + 32
    assert trees.size((torch.zeros(5), torch.zeros(8))) == 20 + 32


def test_where_no_more_can_be_pinned_the_card_leaves_and_a_warning_says_so(
    cards: list[Card], size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full_up(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory")

    pool = pool_of(cards, 2 * size, 6 * size)
    expected = written(pool)
    assert pool._models.host is not None
    for key in list(pool._models.host.memory):
        pool._models.host.memory.drop(key)
    monkeypatch.setattr(HostMemory, "_copied", full_up)
    with caplog.at_level(logging.WARNING):
        assert written(pool) == expected
    assert "can't be kept in the memory of the host: CUDA error: out of memory" in caplog.text
    assert pool._models.host.memory.used == 0


def test_bases_of_adapters_are_not_copied(tmp_path: Path) -> None:
    card = lora(tmp_path, "llama", "lakes", 1)
    models = Loader(host_memory=10**9)
    pool = Pool([card], loader=models)
    first = written(pool, ["lakes"])
    models.held.make_room(models.held.limit)
    assert models.host is not None
    assert models.host.memory.used == 0
    assert written(pool, ["lakes"]) == first


def test_the_host_keeps_a_quarter_of_its_memory_for_a_gpu_and_none_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kcard.cards.lm.host.device_bytes", lambda _: 1000)
    assert (host_share("cuda"), host_share("cpu")) == (250, 0)
    assert Loader().host is None


def test_the_bound_is_an_option() -> None:
    made = make_loader(AskOptions(host_memory="2GB"))
    assert made.host is not None
    assert made.host.budget == 2 * 10**9
    assert make_loader(AskOptions(host_memory="0")).host is None
    done = CliRunner().invoke(app, ["ask", "Who?", "--host-memory", "lots"])
    assert isinstance(done.exception, UsageError)
    assert "size 'lots'" in str(done.exception)
