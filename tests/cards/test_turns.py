"""Whole models that take turns: how often each is loaded, what is in memory meanwhile, and that documents stay."""

import os
import re
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

from kcard.cards.card import Card, CardHandle
from kcard.cards.models import weights
from kcard.cards.models.loader import MAX_COUNTED_USES, ModelCache
from kcard.cards.models.stack import Group
from kcard.cards.pool import LARGE_BYTES, CardPool, why_in_turns
from kcard.cli.main import app
from kcard.errors import CardError, ModelUnavailable, UsageError
from kcard.manifest import Manifest
from kcard.types import Sampling
from tests.cards.engine.cards import full, sealed
from tests.cards.engine.models import WORDS
from tests.fakes import notes_to

NAMES = ["a", "b", "c", "d", "e"]
QUESTIONS = ["Where does the Rhine end?", "The Seine?", "Which river flows through Vienna?"]
SAMPLED = Sampling(temperature=1.0, tokens=6)


@dataclass
class Reading:
    """Cards in the order in which their models were read; `most`: models that were referred to at once."""

    cards: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    most: int = 0

    def note(self, folder: Path, decoder: Any) -> None:
        self.cards.append(folder.name)
        self.made.append(weakref.ref(decoder.embed.table))
        self.most = max(self.most, sum(one() is not None for one in self.made))

    def taken(self) -> str:
        """The cards since this was last called."""
        found, self.cards = "".join(self.cards), []
        return found


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    found, plain = Reading(), weights.read

    def noted(card: Card, models: Any) -> Any:
        read = plain(card, models)
        found.note(card.folder, read.decoder)
        return read

    monkeypatch.setattr(weights, "read", noted)
    return found


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    folder = tmp_path_factory.mktemp("turns")
    return [full(folder, "opt", name, seed) for seed, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def size(cards: list[Card]) -> int:
    return weights.size(cards[0].folder, "cpu")


def written(pool: CardPool, wanted: list[list[str]], questions: list[str] = QUESTIONS) -> list[list[str]]:
    return [[p.text for p in row] for row in pool.generate(questions, wanted, 2, SAMPLED)]


def every(names: list[str] = NAMES) -> list[list[str]]:
    return [names] * len(QUESTIONS)


def test_a_batch_begins_with_the_cards_that_the_last_one_left_loaded(
    cards: list[Card], size: int, reading: Reading
) -> None:
    pool = CardPool(cards, memory=2 * size)
    written(pool, every())
    assert reading.taken() == "abcde"
    written(pool, every())
    assert reading.taken() == "abc"
    written(pool, every())
    assert reading.taken() == "ade"


def test_questions_are_grouped_by_the_cards_that_they_chose(
    cards: list[Card], size: int, reading: Reading
) -> None:
    pool = CardPool(cards, memory=size)
    chosen = [[name] for name in "abcabcabcb"]
    written(pool, chosen, [f"What is {n}?" for n in range(10)])
    assert reading.taken() == "acb"
    written(pool, chosen, [f"What is {n}?" for n in range(10)])
    assert reading.taken() == "ac"


@pytest.mark.parametrize("room", [1, 1.5, 4.9, 5, None])
def test_documents_do_not_depend_on_the_budget(cards: list[Card], size: int, room: float | None) -> None:
    pool = CardPool(cards, memory=None if room is None else int(room * size))
    together = [written(pool, every()), written(pool, every())]
    alone = [[p for name in NAMES for p in written(CardPool(cards), [[name]], [q])[0]] for q in QUESTIONS]
    assert together == [alone, alone]
    mixed = [["e", "a"], [], ["b"]]
    assert written(pool, mixed) == [alone[0][8:] + alone[0][:2], [], alone[2][2:4]]


@pytest.mark.parametrize("room", [1, 3])
def test_no_more_is_in_memory_than_the_budget(
    cards: list[Card], size: int, room: int, reading: Reading
) -> None:
    pool = CardPool(cards, memory=room * size)
    for _ in range(4):
        written(pool, every())
        assert pool.models.cache.used <= room * size
    assert reading.most <= room


def test_an_error_of_a_card_that_is_read_again_is_its_own_and_the_others_go_on(
    cards: list[Card], size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = CardPool(cards, memory=2 * size)
    expected = written(pool, every())
    wrote = list[str]()
    again, plain = weights.embedded, Group.generate

    def broken(folder: Path, device: str) -> Any:
        if folder.name == "b":
            raise OSError("disk error")
        return again(folder, device)

    def noted(*given: Any) -> Any:
        wrote.append(given[1][0].card.name)
        return plain(*given)

    monkeypatch.setattr(weights, "embedded", broken)
    monkeypatch.setattr(Group, "generate", noted)
    with caplog.at_level("WARNING"):
        assert written(pool, every()) == [[*row[:2], "", "", *row[4:]] for row in expected]
    assert wrote == ["d", "e", "a", "b", "c"]
    (line,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert re.fullmatch(r"card b is left out: card 'b': .* can't be loaded: disk error.*", line)
    with pytest.raises(CardError, match=r"card 'b': .* can't be loaded: disk error"):
        written(pool, every(["b"]))
    others = [name for name in NAMES if name != "b"]
    assert written(pool, every(others)) == [row[:2] + row[4:] for row in expected]
    monkeypatch.setattr(weights, "embedded", again)
    assert written(pool, every()) == expected
    assert pool.models.cache.used == 2 * size


def test_an_interruption_leaves_a_pool_that_writes_the_same(
    cards: list[Card], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = CardPool(cards, memory=3 * size)
    expected = written(pool, every())
    with monkeypatch.context() as patched:
        plain, calls = Group.generate, list[int]()

        def interrupted(*given: Any) -> Any:
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return plain(*given)

        patched.setattr(Group, "generate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            written(pool, every())
    assert written(pool, every()) == expected
    assert pool.models.cache.used <= 3 * size


def test_a_card_that_does_not_fit_alone_or_on_the_device_is_refused_with_its_size(
    cards: list[Card], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = rf"card 'a' needs 130 kB for its weights, but --memory is 130 kB: set --memory to {size} bytes"
    with pytest.raises(ModelUnavailable, match=refused):
        written(CardPool(cards, memory=size - 1), every())
    monkeypatch.setattr("kcard.cards.models.loader.device_bytes", lambda _: 1000)
    with pytest.raises(ModelUnavailable, match=r"but device cpu has 1\.0 kB: use a larger device"):
        written(CardPool(cards), every())


def test_a_card_is_verified_when_its_turn_comes(cards: list[Card], size: int, reading: Reading) -> None:
    opened: list[str] = []

    def handle(card: Card) -> CardHandle:
        def folder() -> Path:
            opened.append(card.name + reading.taken())
            return card.folder

        return CardHandle(card.manifest, folder, size)

    pool = CardPool([handle(card) for card in cards], memory=2 * size)
    written(pool, every())
    assert opened == ["a", "ba", "cb", "dc", "ed"]


@pytest.mark.parametrize(
    ("sizes", "limit", "device", "reason"),
    [
        ([], 1, "cpu", ""),
        ([5, 5], 30, "cpu", ""),
        ([5, 5], 29, "cpu", "may take 30 B, and weights may take 29 B"),
        ([5, 5], 29, "cuda", "may take 30 B, and weights may take 29 B"),
        ([LARGE_BYTES], 100 * LARGE_BYTES, "cpu", "models of 200 MB or more gain nothing"),
        ([LARGE_BYTES, LARGE_BYTES], 100 * LARGE_BYTES, "cuda", ""),
    ],
)
def test_models_take_turns_where_a_stack_does_not_fit_or_saves_nothing(
    sizes: list[int], limit: int, device: str, reason: str
) -> None:
    assert reason in (why := why_in_turns(sizes, limit, device))
    assert bool(reason) == bool(why)


def test_why_cards_take_turns_is_told_once(cards: list[Card], size: int) -> None:
    messages: list[str] = []
    pool = CardPool(cards, memory=2 * size, on_event=notes_to(messages))
    for _ in range(2):
        written(pool, every())
    (message,) = messages
    assert message.startswith("5 cards run one after another (a, b, c, ...): in one batch they may take")
    messages.clear()
    written(CardPool(cards, on_event=notes_to(messages)), every())
    written(CardPool(cards, memory=size, on_event=notes_to(messages)), [["a"]] * len(QUESTIONS))
    assert messages == []


def test_models_that_the_engine_does_not_know_take_turns_too(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": WORDS}
    pair = []
    for seed, name in enumerate(["old", "older"]):
        torch.manual_seed(seed)
        GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path / name)
        pair.append(sealed(tmp_path / name, Manifest(name=name, description=name)))
    names = [card.name for card in pair]
    pool = CardPool(pair, memory=weights.size(pair[0].folder, "cpu"))
    expected = written(CardPool(pair), every(names))
    assert [written(pool, every(names)) for _ in range(2)] == [expected] * 2
    assert [pool.is_loaded(name) for name in names] == [True, False]  # the last one that generated


def test_a_card_whose_index_is_large_takes_no_turn(cards: list[Card], size: int, reading: Reading) -> None:
    def handle(card: Card) -> CardHandle:
        return CardHandle(card.manifest, lambda: card.folder, LARGE_BYTES, lambda: size)

    pool = CardPool([handle(card) for card in cards], memory=15 * size)
    assert not pool.is_sequential
    assert CardPool([handle(card) for card in cards], memory=14 * size).is_sequential
    written(pool, every())
    assert reading.taken() == "abcde"
    assert not any(card.folder in pool.models.cache for card in cards)  # their stack is


# The budget of models: what leaves, when, and what is said of a wrong one.


@pytest.mark.parametrize(
    ("steps", "left", "used"),
    [
        # A letter with a number puts so much, a letter alone is used, a number alone makes room.
        pytest.param("a3 b3 c3 a d4", "acd", 10, id="what was used least leaves"),
        pytest.param("a3 b3 c3 a d4 c5", "ac", 8, id="a key that is put again has its new size"),
        pytest.param("a3 b3 c3 b a c d4", "acd", 10, id="of equals the one used longest ago leaves"),
        pytest.param("a5 b50", "b", 50, id="what is larger than the budget is there alone"),
        pytest.param("a5 b50 c1", "c", 1, id="until something else comes"),
        pytest.param("a5 b5 4", "b", 5, id="room is made"),
        pytest.param("a5 b5 11", "", 0, id="room for all"),
        pytest.param("x0 a6 b6 c6 d6 e6 f6", "fx", 6, id="what takes no room stays"),
    ],
)
def test_the_budget_of_models_is_kept(steps: str, left: str, used: int) -> None:
    memory = ModelCache(10)
    for step in steps.split():
        if step.isdigit():
            memory.make_room(int(step))
        elif step[1:]:
            memory.put(step[0], step[0], int(step[1:]))
        else:
            assert memory.get(step) == step
    assert ("".join(key for key in "abcdefx" if key in memory), memory.used) == (left, used)


def test_uses_are_remembered_of_what_left_and_lose_weight_with_time() -> None:
    memory = ModelCache(2)
    uses = [("a", 5, "a"), ("b", 3, "ab"), ("c", 2, "ac"), ("b", 1, "ab")]
    for key, times, left in [*uses, ("c", 10 * MAX_COUNTED_USES, "ac"), ("b", 1, "bc")]:
        memory.put(key, key, 1)
        for _ in range(times - 1):
            memory.get(key)
        assert "".join(key for key in "abc" if key in memory) == left


def test_without_a_budget_it_is_half_of_the_machines_memory() -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert ModelCache().limit == whole // 2


def test_a_wrong_budget_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="memory is 0: it must be at least 1 byte"):
        CardPool([], memory=0)
    done = CliRunner().invoke(app, ["ask", "Who?", "--memory", "lots"])
    assert isinstance(done.exception, UsageError)
    assert "size 'lots'" in str(done.exception)
