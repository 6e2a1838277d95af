"""Batches of each epoch, and sequences on disk.

Passages and their token ids are kept on disk. In memory are a few numbers per passage and the current window of the
epoch, so that a corpus may be larger than memory.
"""

import functools
import pickle
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar, overload

from kcard.batching import batched, batched_by_size
from kcard.cards.models.prompting import all_prompt_ids, prompt_ids
from kcard.errors import CorpusError
from kcard.training.embedded.pseudo_queries import PseudoQueries
from kcard.types import derive_seed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

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


# The work of reading a corpus, divided among processes; results keep the order of the work.

PIECES_A_READER = 8  # pieces of work per process that are handed out at a time

R = TypeVar("R")


def parallel_map(
    function: Callable[[T], R], work: Iterable[T], readers: int, *, threads: bool = False
) -> Iterator[R]:
    """Map `function` over pieces of work in worker processes, in order; with one reader or piece, in this process.

    Pieces and results must be picklable. Raises CorpusError if a process is killed. `threads`: in threads instead, for
    a function that leaves the work to processes of its own.
    """
    if readers == 1:
        yield from map(function, work)
        return
    for pieces in batched(work, PIECES_A_READER * readers):
        if len(pieces) == 1:
            yield from map(function, pieces)
            continue
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import BrokenProcessPool

        try:
            workers = "threads" if threads else "processes"
            parallel = Parallel(n_jobs=readers, prefer=workers)
            results: list[R] = parallel(delayed(function)(piece) for piece in pieces)
        except BrokenProcessPool as error:
            raise CorpusError(
                f"one of {readers} reading processes was killed: if memory is short, use readers 1 (--readers 1)"
            ) from error
        yield from results


# Bytes on disk, and sequences that may be larger than memory.

LENGTH_BYTES = 4  # bytes of a record's length, which precedes it


def no_room(error: OSError) -> CorpusError:
    return CorpusError(
        f"not enough space for the corpus in {tempfile.gettempdir()} ({error.strerror}): free some, or set "
        "TMPDIR to a folder with more"
    )


def close_quietly(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written then is of no use now
        file.close()


class Scratch:
    """A file to append to and read back, in the system's temporary folder and removed with the process; `size` is in
    bytes. Raises CorpusError if the disk is full."""

    def __init__(self) -> None:
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner
        except OSError as error:
            raise no_room(error) from error
        self.size, self._at = 0, -1
        weakref.finalize(self, close_quietly, self._file)

    def append(self, data: bytes) -> None:
        try:
            if self._at != self.size:
                self._file.seek(self.size)
            self._at = -1
            self._file.write(data)
        except OSError as error:
            raise no_room(error) from error
        self.size = self._at = self.size + len(data)

    def read(self, start: int, length: int) -> bytes:
        try:
            if self._at != start:
                self._file.seek(start)  # which flushes the buffer
            data = self._file.read(length)
        except OSError as error:
            raise no_room(error) from error
        self._at = start + len(data)
        return data

    def truncate(self, size: int) -> None:
        """Discard everything from byte `size` on."""
        self.size = min(self.size, size)


class Spool(Sequence[T], Generic[T]):
    """Items on disk, 8 bytes of memory each; a slice reads them on access, too.

    dumps, loads  turn an item into bytes and back
    """

    def __init__(
        self,
        dumps: Callable[[T], bytes] = pickle.dumps,
        loads: Callable[[bytes], T] = pickle.loads,
    ) -> None:
        self._bytes, self._starts = Scratch(), array("Q")
        self._dumps, self._loads = dumps, loads

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[T]: ...
    def __getitem__(self, index: Any) -> T | Lazy[T]:
        if isinstance(index, slice):
            return Lazy(len(self), self.__getitem__)[index]
        start = self._starts[index]
        length = int.from_bytes(self._bytes.read(start, LENGTH_BYTES), "little")
        return self._loads(self._bytes.read(start + LENGTH_BYTES, length))

    def append(self, item: T) -> None:
        start, record = self._bytes.size, self._dumps(item)
        self._bytes.append(len(record).to_bytes(LENGTH_BYTES, "little") + record)
        self._starts.append(start)

    def truncate(self, count: int) -> None:
        """Discard all but the first `count` items."""
        if count < len(self._starts):
            self._bytes.truncate(self._starts[count])
            del self._starts[count:]

    def keep(self, mask: Iterable[bool]) -> None:
        """Discard the items for which `mask` is false; their bytes stay on disk."""
        at = 0
        for start, keep in zip(self._starts, mask, strict=True):
            if keep:
                self._starts[at] = start  # in place: at this moment memory holds the whole corpus' places
                at += 1
        del self._starts[at:]


def spool_of(kind: Callable[..., T]) -> Spool[T]:
    """Return an empty spool of a dataclass' values. Only their fields are stored: of each class name that is unpickled,
    CPython would keep a copy in its cache of attributes."""
    return Spool(
        dumps=lambda item: pickle.dumps([*vars(item).values()]),
        loads=lambda record: kind(*pickle.loads(record)),
    )


# Examples become batches: rows of like length together, so that little is padding.

IGNORED_LABEL = -100


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
    labels = torch.full((len(batch), longest), IGNORED_LABEL)
    for row, example in enumerate(batch):
        tokens = torch.tensor(example.prompt + example.target)
        ids[row, : len(tokens)] = tokens
        labels[row, len(example.prompt) : len(tokens)] = tokens[len(example.prompt) :]
    return ids, labels


# A stream of tokens, cut into blocks, for causal language modelling.

TOKENIZED_CHARACTERS = 100_000  # characters that are tokenised at a time


def token_blocks(documents: Iterable[str], tokenizer: Any, size: int) -> Spool[TrainingExample]:
    """Tokenise documents, one after the other, each between the tokenizer's initial tokens and an end-of-text token,
    and cut them into blocks of `size` tokens on disk.

    A tokenizer whose texts begin with that very token (OPT's) puts one between two documents, not two. The last block
    may be shorter; one of a single token, from which nothing can be learned, is left out.
    """
    blocks = spool_of(TrainingExample)
    end, is_framed, stream = tokenizer.eos_token_id, False, list[int]()

    def cut(least: int) -> None:
        """Move all blocks of at least `least` tokens from the stream to the disk."""
        starts = range(0, len(stream) - least + 1, size)
        for start in starts:
            blocks.append(TrainingExample((), tuple(stream[start : start + size])))
        del stream[: len(starts) * size]

    for part in batched_by_size(documents, len, TOKENIZED_CHARACTERS):
        for ids in all_prompt_ids(tokenizer, part):
            is_framed = ids[:1] == [end]
            stream += ids if is_framed else [*ids, end]
        cut(size)
    stream += [end] * is_framed
    cut(min(2, size))
    return blocks


Epochs = Callable[[int], Sequence[TrainingExample]]  # of an epoch's number: its examples, in order
BatchEpochs = Callable[[int], Sequence[Sequence[TrainingExample]]]  # its batches

TEXTS_AT_ONCE = 1000
WINDOW_BATCHES = 100  # a window of passages to recite
MAX_COUNTED_PASSAGES = 100_000  # passages that word frequencies are taken from, spread over the corpus


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

    def order(self, epoch: int) -> "npt.NDArray[np.int64]":
        """Return shuffled indexes into `items`."""
        import numpy as np

        rng = np.random.default_rng(derive_seed(self.seed, "epoch", epoch))
        new, old = len(self.new), len(self.old)
        order = np.arange(new)
        if old:
            order = np.concatenate([order, new + rng.choice(old, min(new, old), replace=False)])
        rng.shuffle(order)
        return order

    def rng(self, epoch: int, window: int) -> Random:
        return Random(derive_seed(self.seed, "epoch", epoch, "window", window))


def recited_epochs(
    shown: ReplayMix[str],
    tokenizer: Any,
    room: int,
    share: float,
) -> Epochs:
    """Learn to recite each passage, after a fresh pseudo-query in a `share` of cases. Within a hundred batches, rows of
    similar length are grouped.

    room  tokens of the model's context window, of which a pseudo-query takes at most a third
    """
    texts = shown.items

    targets: Spool[tuple[int, ...]] = Spool()
    for part in batched(texts, TEXTS_AT_ONCE):
        for ids in tokenizer(part, add_special_tokens=False)["input_ids"]:
            targets.append((*ids[: room * 2 // 3 - 1], tokenizer.eos_token_id))
    ask = PseudoQueries(texts[:: max(1, len(texts) // MAX_COUNTED_PASSAGES)])

    def examples(rows: Sequence[int], rng: Random) -> list[TrainingExample]:
        batch = []
        for row in rows:
            query = ask(texts[row], rng) + "\n" if rng.random() < share else ""
            prompt = prompt_ids(tokenizer, query)[: room // 3]
            batch.append(TrainingExample(tuple(prompt), targets[row]))
        return batch

    def epoch(number: int) -> Sequence[TrainingExample]:
        size, order = WINDOW_BATCHES * shown.size, shown.order(number)

        @functools.lru_cache(maxsize=1)  # only one window is in memory
        def window(at: int) -> list[TrainingExample]:
            rng, rows = shown.rng(number, at), order[at * size : (at + 1) * size].tolist()
            return [*chain.from_iterable(grouped(examples(rows, rng), shown.size, rng))]

        return Lazy(len(order), lambda index: window(index // size)[index % size])

    return epoch


def packed_epochs(shown: ReplayMix[TrainingExample]) -> Epochs:
    """Order blocks of contiguous text at random."""

    items = shown.items

    def epoch(number: int) -> Sequence[TrainingExample]:
        order = shown.order(number)
        return Lazy(len(order), lambda place: items[int(order[place])])

    return epoch


def in_batches(epochs: Epochs, size: int) -> BatchEpochs:
    """Cut each epoch into batches of `size` examples; the last one may be smaller."""

    def epoch(number: int) -> Sequence[Sequence[TrainingExample]]:
        examples = epochs(number)
        return Lazy(-(-len(examples) // size), lambda index: examples[index * size : (index + 1) * size])

    return epoch
