"""A corpus larger than memory: passages, token ids and batches come from disk as they are asked for."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.card import Card
from kcard.training import epochs
from kcard.training.corpus import read_corpus
from kcard.training.documents import rejoin
from kcard.training.duplicates import DOCUMENT_CHARACTERS
from kcard.training.embedded.recipe import EOS, train_tokenizer
from kcard.training.epochs import (
    Lazy,
    ReplayMix,
    Spool,
    TrainingExample,
    in_batches,
    packed_epochs,
    recited_epochs,
    token_blocks,
)
from kcard.training.train import train
from tests.training.documents import written

TEXTS = [f"The tower number {number} of Arlen is {number % 7} storeys high." for number in range(300)]


def test_a_spool_gives_back_what_was_put_in_and_forgets_from_the_end() -> None:
    spool: Spool[bytes] = Spool()
    for number in range(100):
        spool.append(b"x" * number)
    assert [len(spool[i]) for i in (99, 0, 50)] == [99, 0, 50]
    spool.truncate(10)
    spool.append(b"new")
    assert [*spool] == [*(b"x" * n for n in range(10)), b"new"]
    assert [*spool[-2:]] == [b"x" * 9, b"new"]
    spool.keep([number % 2 == 0 for number in range(11)])
    assert [spool[i] for i in range(len(spool))] == [*(b"x" * n for n in range(0, 10, 2)), b"new"]


def test_a_lazy_sequence_makes_only_what_is_asked_for() -> None:
    calls: list[int] = []

    def square(number: int) -> int:
        calls.append(number)
        return number * number

    squares = Lazy(1000, square)
    assert squares[2:][-1] == 999 * 999
    assert squares[-1000] == 0
    assert [*squares[10:20:5]] == [100, 225]
    assert calls == [999, 0, 10, 15]


def tokenizer() -> Any:
    return train_tokenizer(TEXTS, 320)


def shown(old: int = 0, size: int = 4) -> ReplayMix[str]:
    return ReplayMix(TEXTS[old:], TEXTS[:old], size, seed=3)


def test_every_passage_is_recited_once_an_epoch_in_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epochs, "WINDOW_BATCHES", 10)  # several windows
    words = tokenizer()
    epoch = recited_epochs(shown(), words, 96, 1.0)
    first, again, other = epoch(0), epoch(0), epoch(1)
    assert len(first) == 300
    texts = [words.decode(example.target[:-1]).strip() for example in first]
    assert sorted(texts) == sorted(TEXTS)
    assert all(example.target[-1] == EOS for example in first)
    assert [again[i] for i in (270, 3, 144)] == [first[i] for i in (270, 3, 144)]
    assert [*first[40:]] == [*first][40:]
    assert [*other] != [*first]


def test_packed_blocks_hold_every_token_once_an_epoch() -> None:
    words = tokenizer()
    blocks = token_blocks(TEXTS, words, 32)
    stream = [token for text in TEXTS for token in [*words(text)["input_ids"], EOS]]
    assert [token for place in range(len(blocks)) for token in blocks[place].target] == stream
    epoch = packed_epochs(ReplayMix(blocks, (), 4, seed=3))
    batches = in_batches(epoch, 4)
    for number in (0, 1):
        rows = epoch(number)
        assert [row for batch in batches(number) for row in batch] == [*rows]
        assert sorted(row.target for row in rows) == sorted(
            blocks[place].target for place in range(len(blocks))
        )
        assert all(len(batch) == 4 for batch in batches(number)[:-1])
    assert [*epoch(0)] != [*epoch(1)]
    assert [*epoch(0)] == [*epoch(0)]


@pytest.mark.parametrize("unit", ["passages", "blocks"])
def test_as_many_known_passages_or_blocks_as_new_ones_are_shown_again(unit: str) -> None:
    words = tokenizer()
    if unit == "passages":
        epoch, count = recited_epochs(shown(old=200), words, 96, 1.0), 100
    else:
        new, known = token_blocks(TEXTS[200:], words, 32), token_blocks(TEXTS[:200], words, 32)
        assert len(known) > len(new)
        epoch, count = packed_epochs(ReplayMix(new, known, 4, seed=3)), len(new)
    first, second = ({example.target for example in epoch(number)} for number in (0, 1))
    assert len(first) == len(second) == 2 * count
    assert len(first & second) >= count  # all new ones, and known ones drawn anew
    assert first != second


@pytest.mark.parametrize("style", ["tokens", pytest.param("encoder-prefix", marks=pytest.mark.slow)])
def test_a_corpus_of_one_passage_becomes_a_card(tmp_path: Path, style: Any) -> None:
    path = written(tmp_path, "one.txt", "Triton circles Neptune.\n")
    card = train(path, base="embedded", prompt_style=style, epochs=2, output=tmp_path / style)
    assert card.manifest.training.passages == 1
    assert Card.open(card.folder).name == "one"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured by Linux' /proc")
def test_memory_stays_flat_while_a_large_corpus_is_read_and_trained_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.memory_growth", str(tmp_path), "12"]
    grown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown["passages"] > 100_000
    assert grown["steps"] == 5
    assert grown["reading"] < 20
    assert grown["training"] < 40


def test_reading_keeps_only_a_few_bytes_a_passage_in_memory(tmp_path: Path) -> None:
    lines = [f"The tower number {number} of Arlen is quite high.\n" for number in range(2_000)]
    path = written(tmp_path, "many.txt", "".join(lines))
    read_corpus(path)  # what is loaded once
    tracemalloc.start()
    corpus = read_corpus(path)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(corpus.passages) == 2_000
    assert size < 2_000 * 10 + 20_000
    assert peak < 400_000


# Whole documents for causal language modelling: their text, where they begin and end, and their tokens.

LONG = " ".join(f"The gate number {n} of the long wall was painted red in spring." for n in range(40))
PROSE = f"# Walls\n\nThe wall of Arlen has forty gates.\n\n{LONG}\n\n## Keepers\n\nEach gate has a keeper of its own.\n"


def documents(path: Path) -> list[str]:
    documents = read_corpus(path, whole=True).documents
    assert documents is not None
    return [*documents]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"walls.md": PROSE},
            [
                f"Walls\nThe wall of Arlen has forty gates.\n{LONG}\nKeepers\nEach gate has a keeper of its own."
            ],
        ),
        ({"facts.txt": "Ann won.\nBob lost.\n"}, ["Ann won.\nBob lost."]),
        (
            {"rows.jsonl": '{"text": "Ann won.\\n\\nShe is a smith."}\n{"text": "Bob lost."}\n'},
            ["Ann won.\nShe is a smith.", "Bob lost."],
        ),
        (
            {"a.txt": "Ann won.", "b.txt": "Ann won.", "c.txt": "", "d.txt": "Bob lost."},
            ["Ann won.", "Bob lost."],
        ),
    ],
)
def test_a_file_or_a_row_of_a_table_is_one_document_and_equal_ones_are_kept_once(
    tmp_path: Path, files: dict[str, str], expected: list[str]
) -> None:
    for name, text in files.items():
        written(tmp_path, name, text)
    assert documents(tmp_path) == expected


def test_a_document_of_very_many_characters_becomes_several(tmp_path: Path) -> None:
    fact = f"Fact {{:4}} is {'told and ' * 100}told again.\n"
    path = written(tmp_path, "facts.txt", "".join(fact.format(n) for n in range(200)))
    size = DOCUMENT_CHARACTERS // len(fact.format(0).strip()) + 1
    assert [text.count("\n") + 1 for text in documents(path)] == [size, 200 - size]


def test_the_passages_of_a_card_are_joined_again_to_what_they_were_cut_from(tmp_path: Path) -> None:
    path = written(tmp_path, "walls.txt", f"The wall has forty gates.\n\n{LONG}\n\nEach gate has a keeper.\n")
    corpus = read_corpus(path, whole=True)
    assert len(corpus.passages) > 3
    assert [*rejoin(corpus.passages)] == documents(path)


def streamed(blocks: Sequence[TrainingExample]) -> list[int]:
    return [token for place in range(len(blocks)) for token in blocks[place].target]


def test_the_tokens_of_the_blocks_are_the_text_with_an_end_between_documents() -> None:
    texts = [LONG, "Ann won.", f"{LONG} And so on."]
    words = train_tokenizer(texts, 400)
    blocks = token_blocks(texts, words, 64)
    stream = streamed(blocks)
    assert {len(blocks[place]) for place in range(len(blocks) - 1)} == {64}
    ends = [place for place, token in enumerate(stream) if token == EOS]
    assert len(ends) == 3
    assert ends[-1] == len(stream) - 1
    parts = [stream[start + 1 : end] for start, end in zip([-1, *ends], ends, strict=False)]
    assert [str(words.decode(part, skip_special_tokens=True)).strip() for part in parts] == texts


class StartsWithItsEnd:
    """A tokenizer that puts the end-of-text token in front of a text, as OPT's does; letters are tokens."""

    bos_token_id = eos_token_id = 2

    def __call__(self, texts: Sequence[str], verbose: bool) -> dict[str, list[list[int]]]:
        del verbose
        return {"input_ids": [[2, *map(ord, text)] for text in texts]}


def test_a_token_that_begins_and_ends_texts_stands_once_between_two() -> None:
    blocks = token_blocks(["ab", "c"], StartsWithItsEnd(), 8)
    assert streamed(blocks) == [2, 97, 98, 2, 99, 2]


def test_a_last_block_of_one_token_is_left_out() -> None:
    words = StartsWithItsEnd()
    assert [len(token_blocks(["abc", "d"], words, size)) for size in (3, 6, 7)] == [2, 1, 1]
    assert len(token_blocks(["abc"], words, 4)) == 1
