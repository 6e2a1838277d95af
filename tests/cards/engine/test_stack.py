"""Pools whose cards write together: who does, who does not and why, what each document depends on, how much is held."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from kcard import system
from kcard.cards.card import Card
from kcard.cards.models.batched import decoder, generate
from kcard.cards.models.batched import lora as adapters
from kcard.cards.models.batched.lora import added
from kcard.cards.models.loader import MAX_FLOAT32_PARAMETERS
from kcard.cards.models.stack import StackedCard
from kcard.cards.models.transformers_backend import CausalCard
from kcard.cards.pool import CardPool
from kcard.errors import ModelUnavailable
from kcard.types import Sampling
from tests.cards.engine.cards import GREEDY, QUESTIONS, SAMPLED, full, lora, prefixed, texts


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    """Of four bases and shapes, mixed: adapters with other ranks, targets and tokens, whole models, prefixes."""
    folder = tmp_path_factory.mktemp("mixed")
    return [
        lora(folder, "llama", "lakes", 1, r=4),
        full(folder, "opt", "rivers", 2),
        lora(folder, "gpt-neox", "dams", 3),
        lora(folder, "llama", "seas", 4, r=6, use_rslora=True, targets=["gate_proj", "q_proj"]),
        prefixed(folder, "wells", 5),
        full(folder, "opt", "moors", 6),
        prefixed(folder, "ponds", 7),
        lora(folder, "opt", "moats", 8, trainable_token_indices=list(range(40, 140))),
        lora(folder, "opt", "falls", 9, trainable_token_indices={"embed_tokens": [1, 90, 4]}),
    ]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts each batch had that the engine wrote."""
    found: list[int] = []
    plain = generate.decode

    def counted(decoder: Any, batch: Any, *more: Any) -> Any:
        found.append(batch.prompts)
        return plain(decoder, batch, *more)

    monkeypatch.setattr("kcard.cards.models.stack.decode", counted)
    return found


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_all_cards_write_what_each_writes_with_transformers_and_peft(
    cards: list[Card], sampling: Sampling
) -> None:
    pool = CardPool(cards)
    together = texts(pool, [card.name for card in cards], sampling)
    for number, card in enumerate(cards):
        alone = CausalCard(card, pool.models).generate(QUESTIONS, 2, sampling)
        own = [row[2 * number : 2 * number + 2] for row in together]
        assert own == [[p.text for p in row] for row in alone], card.name


def test_cards_of_one_base_or_shape_share_a_batch_with_all_their_questions_and_peft_is_not_asked(
    cards: list[Card], batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.cards.models.loader.Loader.lora", None)
    texts(CardPool(cards), [card.name for card in cards])
    assert sorted(batches) == [3, 6, 6, 6, 6]


def test_a_document_does_not_depend_on_who_shares_its_batch(cards: list[Card]) -> None:
    names = [card.name for card in cards]
    together = texts(CardPool(cards), names)
    assert texts(CardPool(cards, rows=3), names) == together
    turned = texts(CardPool(cards), names[::-1], questions=QUESTIONS[::-1])
    pool = CardPool(cards)
    for number, name in enumerate(names):
        place = number % len(QUESTIONS)
        own = together[place][2 * number : 2 * number + 2]
        assert texts(pool, [name], questions=[QUESTIONS[place]]) == [own]
        last = 2 * (len(names) - number)
        assert turned[-1 - place][last - 2 : last] == own


# peft says so when a fingerprint is measured without the adapter.
@pytest.mark.filterwarnings("ignore:Careful, disabling adapter layers with bias:UserWarning")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"use_dora": True}, "its use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, r"its modules_to_save is \['lm_head'\]"),
        ({"bias": "lora_only"}, "its bias is 'lora_only'"),
        ({"targets": ["embed_tokens"]}, "it changes base_model.model.model.embed_tokens.lora_embedding_A"),
    ],
    ids=["dora", "saved modules", "bias", "embeddings"],
)
def test_what_can_not_be_stacked_writes_by_itself_and_says_why_once(
    options: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, batches: list[int]
) -> None:
    pair = [lora(tmp_path, "llama", "lakes", 1), lora(tmp_path, "llama", "odd", 2, **options)]
    pool = CardPool(pair)
    with caplog.at_level(logging.WARNING):
        first = texts(pool, ["lakes", "odd"], GREEDY)
        assert texts(pool, ["odd"], GREEDY) == [row[2:] for row in first]
    (record,) = caplog.records
    assert "card odd runs alone" in record.getMessage()
    assert re.search(why, record.getMessage()), record.getMessage()
    assert batches == [3]


def test_cards_with_the_same_tokenizer_files_share_one(cards: list[Card]) -> None:
    pool = CardPool(cards)
    texts(pool, ["lakes", "seas", "dams"])
    writers = [pool.generator(name) for name in ("lakes", "seas", "dams")]
    assert all(isinstance(writer, StackedCard) for writer in writers)
    assert len({id(writer.prompter.tokenizer) for writer in writers if isinstance(writer, StackedCard)}) == 1


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_budget_is_respected_and_changes_no_document(
    share: float, cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [card.name for card in cards]
    free = CardPool(cards)
    expected = [texts(free, names), texts(free, names[:3])]
    whole = free.models.cache.used
    pool = CardPool(cards, memory=int(whole * share))
    held, put, most = pool.models.cache, pool.models.cache.put, list[int]()

    def watched(key: Any, value: Any, size: int) -> None:
        put(key, value, size)
        most.append(held.used)

    monkeypatch.setattr(held, "put", watched)
    assert [texts(pool, names), texts(pool, names[:3])] == expected
    assert max(most) <= whole * share


def test_a_base_that_does_not_fit_alone_is_refused_with_its_size(cards: list[Card]) -> None:
    message = r"the base of card 'lakes' needs 1\d\d kB for its weights, but"
    with pytest.raises(ModelUnavailable, match=message):
        texts(CardPool(cards, memory=50_000), ["lakes"])


def test_adapters_that_do_not_fit_together_are_stacked_in_parts(tmp_path: Path, batches: list[int]) -> None:
    names = ["a", "b", "c", "d", "e"]
    many = [lora(tmp_path, "llama", name, seed, r=8) for seed, name in enumerate(names)]
    free = CardPool(many)
    expected = texts(free, names, GREEDY)
    on = next(iter(free.models.groups.values())).stack
    assert batches == [15]
    tight = CardPool(many, memory=decoder.size(on.base()) + added(on.base(), [*on.ranks.values()]) // 2)
    assert texts(tight, names, GREEDY) == expected
    assert batches[1:] == [6, 6, 3]


def test_no_document_and_no_question_are_nothing(cards: list[Card]) -> None:
    pool = CardPool(cards)
    assert pool.generate(QUESTIONS, [["lakes"]] * len(QUESTIONS), 0, SAMPLED) == [[], [], []]
    assert pool.generate([], [], 2, SAMPLED) == []


@pytest.mark.numeric
def test_only_large_models_are_in_bf16_on_a_processor_that_has_it(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dtype(able: bool, small: int) -> str:
        monkeypatch.setattr(system, "multiplies_bf16", lambda: able)
        monkeypatch.setattr("kcard.cards.models.loader.MAX_FLOAT32_PARAMETERS", small)
        pool = CardPool(cards[:1])
        writer = pool.generator("lakes")
        assert isinstance(writer, StackedCard)
        return writer.measure([("Who?", "Ann.")]).dtype

    assert dtype(True, MAX_FLOAT32_PARAMETERS) == "float32"
    assert dtype(True, 0) == "bfloat16"
    assert dtype(False, 0) == "float32"


def test_an_adapter_is_not_read_again_however_unevenly_adapters_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c", "d"]
    pool = CardPool([lora(tmp_path, "llama", name, seed) for seed, name in enumerate(names)])
    texts(pool, names)  # each is read once for its fingerprint and once for the stack
    read: list[str] = []
    plain = adapters.read

    def noted(folder: Path, dtype: Any) -> Any:
        read.append(folder.name)
        return plain(folder, dtype)

    monkeypatch.setattr(adapters, "read", noted)
    for name in "abacadbcd":
        texts(pool, [name])
    assert read == []
