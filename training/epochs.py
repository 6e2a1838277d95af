"""Batches of each epoch, and sequences on disk.

Passages and their token ids are kept on disk. In memory are a few numbers per passage and the current window of the
epoch, so that a corpus may be larger than memory.
"""

import functools
import json
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from random import Random
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar, overload

from kcard.batching import batched
from kcard.cards.models.prompting import all_prompt_ids, prompt_ids
from kcard.errors import CorpusError
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.training.readers.files import Block
from kcard.types import Source, derive_seed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

__all__ = [
    "IGNORED",
    "BatchEpochs",
    "Epochs",
    "Lazy",
    "ReplayMix",
    "Scratch",
    "Spool",
    "TokenBlocks",
    "TokenIds",
    "TrainingExample",
    "block_bytes",
    "block_of",
    "bucketed",
    "collate",
    "grouped",
    "in_batches",
    "packed_epochs",
    "parallel_map",
    "recited_epochs",
    "source_bytes",
    "source_of",
    "windowed_epochs",
]


# Sequences that make their items on access, so that none need to be in memory.

T = TypeVar("T")


class Lazy(Sequence[T], Generic[T]):
    """`length` items, item i being `make(i)`; a slice is a Lazy too."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._indexes = range(length)
        self._make = make

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Lazy[T]": ...
    def __getitem__(self, index: Any) -> "T | Lazy[T]":
        if not isinstance(index, slice):
            return self._make(self._indexes[index])
        chosen: Lazy[T] = Lazy(0, self._make)
        chosen._indexes = self._indexes[index]
        return chosen


# Blocks and passages as bytes, for a Spool.


def block_bytes(name: str, block: Block) -> bytes:
    """Serialise a block of the named document."""
    row = (name, block.kind, block.text, block.line, block.level, block.file, block.section, block.lines)
    return json.dumps(row, ensure_ascii=False).encode()


def block_of(record: bytes) -> tuple[str, Block]:
    """Return the document's name and the block."""
    name, *values, lines = json.loads(record)
    return name, replace(Block(*values), lines=_pairs(lines))


def source_bytes(source: Source) -> bytes:
    row = (source.text, source.file, source.line, source.score, source.section, source.lines)
    return json.dumps(row, ensure_ascii=False).encode()


def source_of(record: bytes) -> Source:
    *values, lines = json.loads(record)
    return replace(Source(*values), lines=_pairs(lines))


def _pairs(lines: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((words, line) for words, line in lines)


# The work of reading a corpus, divided among processes; results keep the order of the work.

AHEAD = 8  # pieces of work per process that are handed out at a time

R = TypeVar("R")


def parallel_map(function: Callable[[T], R], work: Iterable[T], readers: int) -> Iterator[R]:
    """Map `function` over pieces of work in worker processes, in order; with one reader or piece, in this process.

    Pieces and results must be picklable. Raises CorpusError if a process is killed.
    """
    if readers == 1:
        yield from map(function, work)
        return
    rest = iter(work)
    while pieces := [*islice(rest, AHEAD * readers)]:
        if len(pieces) == 1:
            yield from map(function, pieces)
            continue
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import BrokenProcessPool

        try:
            results: list[R] = Parallel(n_jobs=readers)(delayed(function)(piece) for piece in pieces)
        except BrokenProcessPool as error:
            raise CorpusError(
                f"one of {readers} reading processes was killed: if memory is short, use readers 1 (--readers 1)"
            ) from error
        yield from results


# Bytes on disk: an unnamed file in the system's temporary folder, removed with the process.


class Scratch:
    """A file to append to and read back; `size` is in bytes. Raises CorpusError if the disk is full."""

    def __init__(self) -> None:
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner
        except OSError as error:
            raise _no_room(error) from error
        self.size = self._at = 0
        weakref.finalize(self, close_quietly, self._file)

    def append(self, data: bytes) -> None:
        try:
            if self._at != self.size:
                self._file.seek(self.size)
            self._at = -1
            self._file.write(data)
        except OSError as error:
            raise _no_room(error) from error
        self.size = self._at = self.size + len(data)

    def read(self, start: int, length: int) -> bytes:
        try:
            if self._at != start:
                self._file.seek(start)  # which flushes the buffer
            data = self._file.read(length)
        except OSError as error:
            raise _no_room(error) from error
        self._at = start + len(data)
        return data

    def truncate(self, size: int) -> None:
        """Discard everything from byte `size` on."""
        self.size = min(self.size, size)


def _no_room(error: OSError) -> CorpusError:
    return CorpusError(
        f"not enough space for the corpus in {tempfile.gettempdir()} ({error.strerror}): free some, or set "
        "TMPDIR to a folder with more"
    )


def close_quietly(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written then is of no use now
        file.close()


# Records on disk: a sequence that may be larger than memory, with 8 bytes of memory per record.

LENGTH = 4  # bytes of a record's length, which precedes it


class Spool:
    """Records of bytes. Raises CorpusError if the disk is full."""

    def __init__(self) -> None:
        self._bytes = Scratch()
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> bytes:
        start = self._starts[index]
        length = int.from_bytes(self._bytes.read(start, LENGTH), "little")
        return self._bytes.read(start + LENGTH, length)

    def append(self, record: bytes) -> None:
        start = self._bytes.size
        self._bytes.append(len(record).to_bytes(LENGTH, "little") + record)
        self._starts.append(start)

    def truncate(self, count: int) -> None:
        """Discard all but the first `count` records."""
        if count < len(self._starts):
            self._bytes.truncate(self._starts[count])
            del self._starts[count:]

    def keep(self, mask: Iterable[bool]) -> None:
        """Discard the records for which `mask` is false; their bytes stay on disk."""
        at = 0
        for start, keep in zip(self._starts, mask, strict=True):
            if keep:
                self._starts[at] = start  # in place: at this moment memory holds the whole corpus' places
                at += 1
        del self._starts[at:]


# Examples become batches: rows of like length together, so that little is padding.

IGNORED = -100


@dataclass(frozen=True)
class TrainingExample:
    """`prompt` is read, `target` is learned; both are whole, special tokens included.

    `vector`: the row of the question embeddings that makes the prefix, in prompts with one.
    """

    prompt: tuple[int, ...]
    target: tuple[int, ...]
    vector: int = 0

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target)

    @property
    def learned(self) -> int:
        """Tokens with a loss: the target, whose first one needs something before it."""
        return len(self.target) if self.prompt else len(self.target) - 1


def bucketed(examples: Sequence[TrainingExample], tokens: int, rng: Random) -> list[list[TrainingExample]]:
    """Make batches of at most `tokens` tokens with padding, in random order; a longer example is a batch of its own."""
    batches: list[list[TrainingExample]] = []
    batch: list[TrainingExample] = []
    jitter = {id(example): len(example) + 3 * rng.random() for example in examples}
    for example in sorted(examples, key=lambda e: jitter[id(e)]):
        # Sorted with jitter, so the longest so far may lie a few tokens above this one.
        longest = max([len(example), *(len(e) for e in batch[-8:])])
        if batch and longest * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch = []
        batch.append(example)
    if batch:
        batches.append(batch)
    rng.shuffle(batches)
    return batches


def grouped(examples: Sequence[TrainingExample], size: int, rng: Random) -> list[list[TrainingExample]]:
    """Make batches of `size` examples, in random order, grouped by similar length within a hundred batches."""
    order = rng.sample(range(len(examples)), len(examples))
    batches: list[list[TrainingExample]] = []
    for window in batched(order, 100 * size):
        near = sorted((examples[i] for i in window), key=len)
        batches += batched(near, size)
    rng.shuffle(batches)
    return batches


def collate(batch: Sequence[TrainingExample], pad: int) -> "tuple[Tensor, Tensor]":
    """Return token ids and labels, both (rows, longest), padded on the right; prompt and padding have no label."""
    import torch

    longest = max(len(example) for example in batch)
    ids = torch.full((len(batch), longest), pad)
    labels = torch.full((len(batch), longest), IGNORED)
    for row, example in enumerate(batch):
        tokens = torch.tensor(example.prompt + example.target)
        ids[row, : len(tokens)] = tokens
        labels[row, len(example.prompt) : len(tokens)] = tokens[len(example.prompt) :]
    return ids, labels


# A stream of tokens on disk, cut into blocks, for causal language modelling.

TOKEN_BLOCKS_AT_ONCE = 100_000  # characters that are tokenised at a time
BYTES = 4  # per token


class TokenBlocks:
    """Tokenised documents, one after the other, each between the tokenizer's initial tokens and an end-of-text token,
    in blocks of `size` tokens.

    A tokenizer whose texts begin with that very token (OPT's) puts one between two documents, not two. The last block
    may be shorter; one of a single token, from which nothing can be learned, is left out.
    """

    def __init__(self, documents: Iterable[str], tokenizer: Any, size: int) -> None:
        self._bytes, self.size = Scratch(), size
        end, framed = tokenizer.eos_token_id, False
        for part in _batch_by_length(documents):
            for ids in all_prompt_ids(tokenizer, part):
                framed = ids[:1] == [end]
                self._append(ids if framed else [*ids, end])
        if framed:
            self._append([end])

    def __len__(self) -> int:
        return -(-max(self.tokens - 1, 0) // self.size)

    @property
    def tokens(self) -> int:
        return self._bytes.size // BYTES

    def __getitem__(self, index: int) -> TrainingExample:
        import numpy as np

        start = index * self.size
        length = min(self.size, self.tokens - start)
        ids = np.frombuffer(self._bytes.read(start * BYTES, length * BYTES), np.uint32)
        return TrainingExample((), tuple(ids.tolist()))

    def _append(self, ids: list[int]) -> None:
        import numpy as np

        self._bytes.append(np.array(ids, np.uint32).tobytes())


def _batch_by_length(documents: Iterable[str]) -> Iterator[list[str]]:
    """Group documents into lists of about TOKEN_BLOCKS_AT_ONCE characters."""
    part: list[str] = []
    size = 0
    for document in documents:
        if part and size + len(document) > TOKEN_BLOCKS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(document)
        size += len(document)
    if part:
        yield part


Epochs = Callable[[int], Sequence[TrainingExample]]  # of an epoch's number: its examples, in order
BatchEpochs = Callable[[int], Sequence[Sequence[TrainingExample]]]  # its batches

AT_ONCE = 1000
BATCHES = 100  # a window of passages to recite
COUNTED = 100_000  # passages that word frequencies are taken from, spread over the corpus


@dataclass(frozen=True)
class ReplayMix(Generic[T]):
    """The items of an epoch: all new ones and as many old ones, which are drawn again in each epoch.

    size  rows per batch
    """

    new: Sequence[T]
    old: Sequence[T]
    size: int
    seed: int

    @property
    def items(self) -> Sequence[T]:
        """The new items, then the old ones."""
        border = len(self.new)

        def item(index: int) -> T:
            return self.new[index] if index < border else self.old[index - border]

        return Lazy(border + len(self.old), item)

    def windows(self, epoch: int, size: int) -> "list[npt.NDArray[np.int64]]":
        """Return shuffled indexes into `items`, in windows of `size`."""
        import numpy as np

        rng = np.random.default_rng(derive_seed(self.seed, "epoch", epoch))
        new, old = len(self.new), len(self.old)
        order = np.arange(new)
        if old:
            order = np.concatenate([order, new + rng.choice(old, min(new, old), replace=False)])
        rng.shuffle(order)
        return [order[at : at + size] for at in range(0, len(order), size)]

    def rng(self, epoch: int, window: int) -> Random:
        return Random(derive_seed(self.seed, "epoch", epoch, "window", window))


class TokenIds:
    """The token ids of every text, on disk; `lengths` is in memory, 4 bytes per text."""

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
    shown: ReplayMix[str],
    tokenizer: Any,
    room: int,
    share: float,
    study: Mapping[str, Sequence[str]] | None = None,
) -> Epochs:
    """Learn to recite each passage, after a fresh pseudo-query in a `share` of cases. Within a hundred batches, rows of
    similar length are grouped. `study`: see PseudoQueries."""
    texts = shown.items

    def encode(part: list[str]) -> list[list[int]]:
        rows = tokenizer(part, add_special_tokens=False)["input_ids"]
        return [[*ids[: room * 2 // 3 - 1], tokenizer.eos_token_id] for ids in rows]

    targets = TokenIds(texts, encode)
    ask = PseudoQueries(texts[:: max(1, len(texts) // COUNTED)], study)

    def examples(rows: Sequence[int], rng: Random) -> list[TrainingExample]:
        batch = []
        for row in rows:
            query = ask(texts[row], rng) + "\n" if rng.random() < share else ""
            prompt = prompt_ids(tokenizer, query)[: room // 3]
            batch.append(TrainingExample(tuple(prompt), tuple(targets[row].tolist())))
        return batch

    return windowed_epochs(shown, examples)


def windowed_epochs(
    shown: ReplayMix[Any], examples: Callable[[Sequence[int], Random], Sequence[TrainingExample]]
) -> Epochs:
    """Order what `examples` makes of items, given by their places in `shown`; within a hundred batches, rows of similar
    length follow each other."""

    def epoch(number: int) -> Sequence[TrainingExample]:
        size = BATCHES * shown.size
        windows = shown.windows(number, size)

        def window(at: int) -> list[TrainingExample]:
            rng = shown.rng(number, at)
            return [*chain.from_iterable(grouped(examples(windows[at].tolist(), rng), shown.size, rng))]

        latest = functools.lru_cache(maxsize=1)(window)  # only one window is in memory
        return Lazy(sum(map(len, windows)), lambda index: latest(index // size)[index % size])

    return epoch


def packed_epochs(new: TokenBlocks, old: TokenBlocks | None, seed: int) -> Epochs:
    """Order blocks of contiguous text at random: all new ones and as many old ones, drawn anew in each epoch."""
    import numpy as np

    def epoch(number: int) -> Sequence[TrainingExample]:
        rng = np.random.default_rng(derive_seed(seed, "epoch", number))
        order = np.arange(len(new))
        if old is not None:
            drawn = rng.choice(len(old), min(len(new), len(old)), replace=False)
            order = np.concatenate([order, len(new) + drawn])
        rng.shuffle(order)

        def block(place: int) -> TrainingExample:
            index = int(order[place])
            if index < len(new):
                return new[index]
            assert old is not None
            return old[index - len(new)]

        return Lazy(len(order), block)

    return epoch


def in_batches(epochs: Epochs, size: int) -> BatchEpochs:
    """Cut each epoch into batches of `size` examples; the last one may be smaller."""

    def epoch(number: int) -> Sequence[Sequence[TrainingExample]]:
        examples = epochs(number)
        count = len(examples)

        def batch(index: int) -> list[TrainingExample]:
            return [examples[place] for place in range(index * size, min(count, (index + 1) * size))]

        return Lazy(-(-count // size), batch)

    return epoch
