"""The network of the embedded reader: all-MiniLM-L6-v2, trained whole, with heads for what it says of a passage.

It knows questions and texts, not cards; reading.py makes sense of its numbers. How it was trained: weights/README.md.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard import minilm
from kcard.networks import Network, read_weights, token_row
from kcard.protocols import Array

__all__ = [
    "FILE",
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
FILE = "reader.safetensors"


@dataclass(frozen=True)
class Tokens:
    """Token ids of a text, and where they stand in it: (start, end) in characters."""

    ids: Sequence[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Encoded:
    """`[CLS] question [SEP] text [SEP]` of one pair.

    ids      token ids; those from `begin` on, but for the last, are the text's
    offsets  of each token of the text: start and end in characters
    """

    ids: Sequence[int]
    begin: int
    offsets: Sequence[tuple[int, int]]

    @property
    def text(self) -> slice:
        """The tokens of the text."""
        return slice(self.begin, self.begin + len(self.offsets))


@dataclass(frozen=True)
class Outputs:
    """What the heads give for one pair whose text has t tokens.

    starts, ends  (t,), logits of the first and last token of the answer
    evidence      (t,), log-odds that a token belongs to the sentences that the answer rests on
    relevance     log-odds that the text answers the question
    """

    starts: Array
    ends: Array
    evidence: Array
    relevance: float


ReaderNetwork = Callable[[Sequence[Encoded]], list[Outputs]]


@dataclass(frozen=True)
class _Loaded:
    """The shipped graph with trained weights."""

    network: Network

    def __call__(self, pairs: Sequence[Encoded]) -> list[Outputs]:
        outputs = []
        rows = self.network.run_all([token_row(pair.ids, pair.begin) for pair in pairs])
        for pair, (spans, relevance) in zip(pairs, rows, strict=True):
            starts, ends, evidence = spans[0, pair.text].T
            outputs.append(Outputs(starts, ends, evidence, float(relevance[0, 0])))
        return outputs


def encode(pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
    """Tokenise (question, text) pairs; of a question at most QUESTION_TOKENS are read, of a text what fits."""
    words = minilm.words()
    texts = (Tokens(row.ids, row.offsets) for row in words.encodings([text for _, text in pairs]))
    questions = words.ids([question for question, _ in pairs])
    return [joined(question, text) for question, text in zip(questions, texts, strict=True)]


def joined(question: Sequence[int], text: Tokens) -> Encoded:
    """Put token ids of a question and tokens of a text together."""
    question = question[:QUESTION_TOKENS]
    room = MAX_TOKENS - 3 - len(question)
    ids = [minilm.CLS, *question, minilm.SEP, *text.ids[:room], minilm.SEP]
    return Encoded(ids, len(question) + 2, text.offsets[:room])


def load(folder: Path) -> ReaderNetwork:
    """Load a trained reader. Raises ModelUnavailable where its file is missing."""
    return _Loaded(Network("reader", {**minilm.word_table(), **read_weights(folder / FILE)}))


@functools.cache
def shared() -> ReaderNetwork:
    """The shipped network, loaded once a process."""
    return load(WEIGHTS)
