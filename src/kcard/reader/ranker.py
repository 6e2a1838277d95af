"""The ranker: three layers that read a question and the likeliest window of a passage together.

It decides which of many candidates the reader, which is twice as deep and reads whole passages, reads at all.
How it was trained: recipes/ranker, ranker_weights/README.md.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kcard import minilm, static_embeddings
from kcard.networks import Network, read_weights, token_row
from kcard.protocols import Array

__all__ = ["LAYERS", "WEIGHTS", "best_window", "load", "pair_tokens", "rank_all", "shared"]

WEIGHTS = Path(__file__).resolve().parent / "ranker_weights"
LAYERS = 3
QUESTION_TOKENS = 32
WINDOW = 32  # tokens; it learned from windows of 64, and ranks as well by 32


def rank_all(pairs: Sequence[tuple[str, str]], network: Network | None = None) -> Array:
    """Score how likely each (question, passage) is one that answers: log-odds up to a constant, shape (n,).

    By the shipped network, unless another is given.
    """
    words = minilm.words()
    questions = dict.fromkeys(question for question, _ in pairs)
    ids = dict(zip(questions, words.ids(list(questions)), strict=True))
    passages = words.ids([passage for _, passage in pairs])
    rows = [
        token_row(*pair_tokens(ids[question], passage))
        for (question, _), passage in zip(pairs, passages, strict=True)
    ]
    return np.array([score[0, 0] for (score,) in (network or shared()).run_all(rows)], np.float32)


def pair_tokens(question: Sequence[int], passage: Sequence[int], size: int = WINDOW) -> tuple[list[int], int]:
    """Join a question and the best window of a passage, `[CLS] question [SEP] window [SEP]`; and say where it begins.

    `size`: tokens of the window.
    """
    cut = list(question[:QUESTION_TOKENS])
    start = best_window(cut, passage, size)
    window = passage[start : start + size]
    return [minilm.CLS, *cut, minilm.SEP, *window, minilm.SEP], len(cut) + 2


def best_window(question: Sequence[int], passage: Sequence[int], size: int) -> int:
    """Return where the `size` tokens of a passage begin that say most of what the question says.

    A token counts as much as its static vector is long, which common words' are not.
    """
    if len(passage) <= size:
        return 0
    shared = np.isin(np.asarray(passage), np.asarray(question)) * static_embeddings.token_weights(passage)
    sums = np.concatenate([[0.0], np.cumsum(shared)])
    windows = sums[size:] - sums[:-size]
    # Of equal ones the middle, so that what was found stands in context.
    best = np.flatnonzero(windows >= windows.max() - 1e-6)
    return int(best[len(best) // 2])


def load(folder: Path) -> Network:
    """Load a trained ranker. Raises ModelUnavailable where its file is missing."""
    return Network("ranker", {**minilm.word_table(), **read_weights(folder / "ranker.safetensors")})


@functools.cache
def shared() -> Network:
    """The shipped network, loaded once a process."""
    return load(WEIGHTS)
