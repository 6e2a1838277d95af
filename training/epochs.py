"""What fine-tuning shows a model: the batches of an epoch, made as they are asked for.

Passages and their token ids lie on disk. In memory are a few numbers a passage and the window of the epoch that is
being gone through, so that a corpus may be larger than memory.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcard.batches import batched
from kcard.cards.lm.prompt_styles import prompt_ids
from kcard.sampling import derive_seed
from kcard.training.example_batches import TrainingExample, grouped
from kcard.training.lazy import Lazy
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.spool import Spool
from kcard.training.token_blocks import TokenBlocks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Batches", "Epochs", "Shown", "TokenIds", "packed_epochs", "recited_epochs", "windowed_epochs"]

T = TypeVar("T")
Batches = Sequence[Sequence[TrainingExample]]
Epochs = Callable[[int], Batches]

AT_ONCE = 1000
BATCHES = 100  # a window of passages to recite
COUNTED = 100_000  # passages that word frequencies are taken from, spread over the corpus


@dataclass(frozen=True)
class Shown(Generic[T]):
    """The items of an epoch: all that are new, and as many of those that are known, drawn anew each time.

    size  rows a batch
    """

    new: Sequence[T]
    known: Sequence[T]
    size: int
    seed: int

    @property
    def items(self) -> Sequence[T]:
        """The new ones, then the known."""
        border = len(self.new)

        def item(index: int) -> T:
            return self.new[index] if index < border else self.known[index - border]

        return Lazy(border + len(self.known), item)

    def windows(self, epoch: int, size: int) -> "list[npt.NDArray[np.int64]]":
        """Indexes into `items` in random order, in windows of `size`."""
        import numpy as np

        rng = np.random.default_rng(derive_seed(self.seed, "epoch", epoch))
        new, known = len(self.new), len(self.known)
        order = np.arange(new)
        if known:
            order = np.concatenate([order, new + rng.choice(known, min(new, known), replace=False)])
        rng.shuffle(order)
        return [order[at : at + size] for at in range(0, len(order), size)]

    def rng(self, epoch: int, window: int) -> Random:
        return Random(derive_seed(self.seed, "epoch", epoch, "window", window))


class TokenIds:
    """The token ids of every text, on disk; `lengths` is in memory, 4 bytes a text."""

    def __init__(self, texts: Iterable[str], encode: Callable[[list[str]], list[list[int]]]) -> None:
        import numpy as np

        self._spool = Spool()
        lengths: list[npt.NDArray[np.uint32]] = []
        for part in batched(texts, AT_ONCE):
            rows = encode(part)
            lengths.append(np.array([len(row) for row in rows], np.uint32))
            for row in rows:
                self._spool.append(np.array(row, np.uint32).tobytes())
        self.lengths = np.concatenate(lengths)

    def __getitem__(self, index: int) -> "npt.NDArray[np.uint32]":
        import numpy as np

        return np.frombuffer(self._spool[index], np.uint32)


def recited_epochs(
    shown: Shown[str],
    tokenizer: Any,
    room: int,
    share: float,
    study: Mapping[str, Sequence[str]] | None = None,
) -> Epochs:
    """Each passage under a fresh pseudo-query at rate `share`; among a hundred batches rows of like length meet.
    `study`: see PseudoQueries."""
    texts = shown.items

    def encode(part: list[str]) -> list[list[int]]:
        found = tokenizer(part, add_special_tokens=False)["input_ids"]
        return [[*ids[: room * 2 // 3 - 1], tokenizer.eos_token_id] for ids in found]

    targets = TokenIds(texts, encode)
    ask = PseudoQueries(texts[:: max(1, len(texts) // COUNTED)], study)

    def examples(rows: Sequence[int], rng: Random) -> list[TrainingExample]:
        found = []
        for row in rows:
            asked = ask(texts[row], rng) + "\n" if rng.random() < share else ""
            prompt = prompt_ids(tokenizer, asked)[: room // 3]
            found.append(TrainingExample(tuple(prompt), tuple(targets[row].tolist())))
        return found

    return windowed_epochs(shown, examples)


def windowed_epochs(
    shown: Shown[Any], examples: Callable[[Sequence[int], Random], Sequence[TrainingExample]]
) -> Epochs:
    """Batches of what `examples` makes of items, given by their places in `shown`; among a hundred batches rows of
    like length meet."""

    def epoch(number: int) -> Batches:
        windows = shown.windows(number, BATCHES * shown.size)

        def window(at: int) -> Batches:
            rng = shown.rng(number, at)
            return grouped(examples(windows[at].tolist(), rng), shown.size, rng)

        return _batches([_ceil(len(rows), shown.size) for rows in windows], window)

    return epoch


def packed_epochs(new: TokenBlocks, known: TokenBlocks | None, size: int, seed: int) -> Epochs:
    """Blocks of contiguous text in random order, `size` a batch: all that are new, and as many that are known, drawn
    anew each time."""
    import numpy as np

    def epoch(number: int) -> Batches:
        rng = np.random.default_rng(derive_seed(seed, "epoch", number))
        order = np.arange(len(new))
        if known is not None:
            drawn = rng.choice(len(known), min(len(new), len(known)), replace=False)
            order = np.concatenate([order, len(new) + drawn])
        rng.shuffle(order)

        def block(index: int) -> TrainingExample:
            if index < len(new):
                return new[index]
            assert known is not None
            return known[index - len(new)]

        def batch(place: int) -> list[TrainingExample]:
            return [block(index) for index in order[place * size : (place + 1) * size].tolist()]

        return Lazy(_ceil(len(order), size), batch)

    return epoch


def _ceil(count: int, size: int) -> int:
    return -(-count // size)


def _batches(counts: Sequence[int], window: Callable[[int], Batches]) -> Batches:
    """The batches of all windows, of which window i has counts[i]; the latest one is kept."""
    ends = list(accumulate(counts))
    latest = functools.lru_cache(maxsize=1)(window)

    def batch(index: int) -> Sequence[TrainingExample]:
        at = bisect_right(ends, index)
        return latest(at)[index - ends[at] + counts[at]]

    return Lazy(ends[-1], batch)
