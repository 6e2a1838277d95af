"""The network of the embedded reader: all-MiniLM-L6-v2, trained whole, with heads for what it says of a passage.

It knows questions and texts, not cards; reading.py makes sense of its numbers. How it was trained: weights/README.md.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import encoder, minilm
from kcard.errors import ModelUnavailable

if TYPE_CHECKING:
    from torch import Tensor

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
]

WEIGHTS = Path(__file__).resolve().parent / "weights"
MAX_TOKENS = 288
QUESTION_TOKENS = 64
IMPOSSIBLE = -1e4


@dataclass(frozen=True)
class Tokens:
    """Token ids of a text, and where they stand in it: (start, end) in characters."""

    ids: Sequence[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Encoded:
    """`[CLS] question [SEP] text [SEP]` of n pairs, padded to t tokens.

    ids, mask, types  (n, t); types are 1 from the text on
    text              (n, t), bool: the tokens of the text
    offsets           of each pair, for each token of its text: start and end in characters
    begins            of each pair: the place of its text's first token
    """

    ids: "Tensor"
    mask: "Tensor"
    types: "Tensor"
    text: "Tensor"
    offsets: Sequence[Sequence[tuple[int, int]]]
    begins: Sequence[int]


@dataclass(frozen=True)
class Outputs:
    """What the heads give for n pairs of t tokens.

    starts, ends  (n, t), logits of the first and last token of the answer
    evidence      (n, t), log-odds that a token belongs to the sentences that the answer rests on
    relevance     (n,), log-odds that the text answers the question
    """

    starts: "Tensor"
    ends: "Tensor"
    evidence: "Tensor"
    relevance: "Tensor"


@dataclass(frozen=True)
class ReaderNetwork:
    """The transformer and its heads: `tokens` (3, 384) for start, end and evidence; `pooled` (384, 768) and
    `pair` (1, 384) for relevance."""

    model: Any
    heads: "Mapping[str, Tensor]"

    def __call__(self, pairs: Encoded) -> Outputs:
        import torch
        from torch.nn.functional import linear

        heads = self.heads
        states = self.model(pairs.ids, pairs.mask, pairs.types).last_hidden_state
        outside = ~pairs.text.unsqueeze(-1)
        each = linear(states, heads["tokens.weight"], heads["tokens.bias"]).masked_fill(outside, IMPOSSIBLE)
        most = states.masked_fill(outside, IMPOSSIBLE).amax(1)
        pooled = linear(
            torch.cat([states[:, 0], most], -1), heads["pooled.weight"], heads["pooled.bias"]
        ).tanh()
        relevance = linear(pooled, heads["pair.weight"], heads["pair.bias"])
        return Outputs(each[..., 0], each[..., 1], each[..., 2], relevance[:, 0])


def encode(pairs: Sequence[tuple[str, str]]) -> Encoded:
    """(question, text) pairs; of a question at most QUESTION_TOKENS are read, of a text what fits."""
    words = encoder.words()
    texts = (Tokens(found.ids, found.offsets) for found in words.encodings([text for _, text in pairs]))
    return joined(list(zip(words.ids([question for question, _ in pairs]), texts, strict=True)))


def joined(pairs: Sequence[tuple[Sequence[int], Tokens]]) -> Encoded:
    """The same of token ids of questions, and tokens of texts."""
    import torch

    rows, types, offsets, begins = [], [], [], []
    for asked, text in pairs:
        question = asked[:QUESTION_TOKENS]
        room = MAX_TOKENS - 3 - len(question)
        read = text.ids[:room]
        rows.append([minilm.CLS, *question, minilm.SEP, *read, minilm.SEP])
        begins.append(len(question) + 2)
        types.append([0] * begins[-1] + [1] * (len(read) + 1))
        offsets.append(text.offsets[:room])
    length = max(map(len, rows))
    ids, mask = minilm.padded(rows, length)
    kinds, _ = minilm.padded(types, length)
    inside = torch.zeros_like(ids, dtype=torch.bool)
    for row, (begin, places) in enumerate(zip(begins, offsets, strict=True)):
        inside[row, begin : begin + len(places)] = True
    return Encoded(ids, mask, kinds, inside, offsets, begins)


def load(folder: Path) -> ReaderNetwork:
    """A trained reader: what it changed of the encoder, in steps of 8 bits, and its heads.

    Raises ModelUnavailable where its files are missing.
    """
    from safetensors.torch import load_file

    path = folder / "reader.safetensors"
    if not path.is_file():
        raise ModelUnavailable(f"the embedded reader's weights are missing from {folder}: reinstall kcard")
    saved = load_file(path)
    changes = {name.removesuffix(".steps"): steps for name, steps in saved.items() if name.endswith(".steps")}
    changed = {name: steps.float() * saved[f"{name}.scale"].float() for name, steps in changes.items()}
    heads = {
        name.removeprefix("heads."): value.float()
        for name, value in saved.items()
        if name.startswith("heads.")
    }
    return ReaderNetwork(encoder.network().changed(changed), heads)


@functools.cache
def shared() -> ReaderNetwork:
    """The shipped network, loaded once a process."""
    return load(WEIGHTS)
