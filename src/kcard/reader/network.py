"""The network of the embedded reader: all-MiniLM-L6-v2, trained whole, with heads for what it says of a passage.

It knows questions and texts, not cards; reading.py makes sense of its numbers. How it was trained: weights/README.md.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kcard import minilm
from kcard.networks import Network, padded_rows, read_weights
from kcard.protocols import Array

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "MAX_TOKENS",
    "QUESTION_TOKENS",
    "WEIGHTS",
    "Encoded",
    "Outputs",
    "ReaderNetwork",
    "Tokens",
    "encode",
    "joined",
    "load",
    "shared",
    "trained_weights",
]

WEIGHTS = Path(__file__).resolve().parent / "weights"
MAX_TOKENS = 288
QUESTION_TOKENS = 64
HEADS = "heads."


@dataclass(frozen=True)
class Tokens:
    """Token ids of a text, and where they stand in it: (start, end) in characters."""

    ids: Sequence[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Encoded:
    """`[CLS] question [SEP] text [SEP]` of n pairs, padded to t tokens.

    ids, mask, types  (n, t), int32; types are 1 from the text on
    text              (n, t), int32, 1 for the tokens of the text
    offsets           of each pair, for each token of its text: start and end in characters
    begins            of each pair: the place of its text's first token
    """

    ids: "npt.NDArray[np.int32]"
    mask: "npt.NDArray[np.int32]"
    types: "npt.NDArray[np.int32]"
    text: "npt.NDArray[np.int32]"
    offsets: Sequence[Sequence[tuple[int, int]]]
    begins: Sequence[int]


@dataclass(frozen=True)
class Outputs:
    """What the heads give for n pairs of t tokens.

    starts, ends  (n, t), logits of the first and last token of the answer
    evidence      (n, t), log-odds that a token belongs to the sentences that the answer rests on
    relevance     (n,), log-odds that the text answers the question
    """

    starts: Array
    ends: Array
    evidence: Array
    relevance: Array


ReaderNetwork = Callable[[Sequence[Encoded]], list[Outputs]]  # of several batches


@dataclass(frozen=True)
class _Loaded:
    """The shipped graph with trained weights."""

    network: Network

    def __call__(self, batches: Sequence[Encoded]) -> list[Outputs]:
        inputs = [{"ids": b.ids, "mask": b.mask, "types": b.types, "text": b.text} for b in batches]
        return [
            Outputs(spans[..., 0], spans[..., 1], spans[..., 2], relevance[:, 0])
            for spans, relevance in self.network.run_all(inputs)
        ]


def encode(pairs: Sequence[tuple[str, str]]) -> Encoded:
    """Tokenise (question, text) pairs; of a question at most QUESTION_TOKENS are read, of a text what fits."""
    words = minilm.words()
    texts = (Tokens(row.ids, row.offsets) for row in words.encodings([text for _, text in pairs]))
    return joined(list(zip(words.ids([question for question, _ in pairs]), texts, strict=True)))


def joined(pairs: Sequence[tuple[Sequence[int], Tokens]]) -> Encoded:
    """Put token ids of questions and tokens of texts together."""
    rows, types, inside, offsets, begins = [], [], [], [], []
    for question, text in pairs:
        question = question[:QUESTION_TOKENS]
        room = MAX_TOKENS - 3 - len(question)
        read, begin = text.ids[:room], len(question) + 2
        rows.append([minilm.CLS, *question, minilm.SEP, *read, minilm.SEP])
        types.append([0] * begin + [1] * (len(read) + 1))
        inside.append([0] * begin + [1] * len(read))
        begins.append(begin)
        offsets.append(text.offsets[:room])
    mask = padded_rows([[1] * len(row) for row in rows])
    text_mask = np.zeros_like(mask)
    short = padded_rows(inside)
    text_mask[:, : short.shape[1]] = short
    return Encoded(padded_rows(rows), mask, padded_rows(types), text_mask, offsets, begins)


def load(folder: Path) -> ReaderNetwork:
    """Load a trained reader. Raises ModelUnavailable where its files are missing."""
    changes, heads = trained_weights(folder)
    return _Loaded(Network("reader", {**minilm.adapted(changes), **heads}))


def trained_weights(folder: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Read what training changed of the encoder, and the heads, both by name, float32.

    Raises ModelUnavailable where the file is missing.
    """
    weights = read_weights(folder / "reader.safetensors")
    heads = {name: value for name, value in weights.items() if name.startswith(HEADS)}
    changes = {name: value for name, value in weights.items() if name not in heads}
    return changes, {name.removeprefix(HEADS): value for name, value in heads.items()}


@functools.cache
def shared() -> ReaderNetwork:
    """The shipped network, loaded once a process."""
    return load(WEIGHTS)
