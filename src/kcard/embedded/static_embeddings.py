"""Static embeddings: one vector per token, mean-pooled over a text, without a network.

The table was distilled from all-MiniLM-L6-v2 and then trained on people's questions with the passages that answer them
(weights/static/README.md). A text takes microseconds, so embedding passages when a card is made, and questions when
they are asked, costs next to nothing; the reader's reranking compensates for the lower accuracy.
"""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcard.batching import batched
from kcard.embedded import minilm
from kcard.errors import ModelUnavailable
from kcard.interfaces import Array
from kcard.manifest import file_digest

NAME = "kcard-static"
DIMENSIONS = 256
WEIGHTS = Path(__file__).resolve().parent / "weights" / "static"
AT_ONCE = 256  # texts per batch
MAX_TOKENS = 1024  # per text


def embed(texts: Sequence[str]) -> Array:
    """Return unit-length vectors, shape (n, 256); zeros for a text without tokens.

    A vector depends on its text alone. Raises ModelUnavailable if the table is missing.
    """
    steps, scale = load_table()
    vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
    done = 0
    for part in batched(texts, AT_ONCE):
        rows = [ids[:MAX_TOKENS] for ids in minilm.words().ids(part)]
        lengths = np.array([len(row) for row in rows])
        tokens = np.fromiter((token for row in rows for token in row), np.int64, int(lengths.sum()))
        weighted = steps[tokens] * scale[tokens]
        filled = np.flatnonzero(lengths)
        if len(filled):
            starts = np.cumsum(lengths) - lengths
            sums = np.add.reduceat(weighted, starts[filled], axis=0)
            norms = np.linalg.norm(sums, axis=1, keepdims=True)
            vectors[done + filled] = sums / np.maximum(norms, 1e-12)
        done += len(part)
    return vectors


def token_weights(tokens: Sequence[int]) -> Array:
    """Return the norm of each token's vector, shape (n,), which is small for common words."""
    return vector_lengths()[np.asarray(tokens, np.int64)]


@functools.cache
def vector_lengths() -> Array:
    steps, scale = load_table()
    return np.asarray(np.linalg.norm(steps.astype(np.float32), axis=1) * scale[:, 0], np.float32)


@functools.cache
def digest() -> str:
    """Return the sha256 of the table and the tokenizer's model, which determine vectors."""
    return hashlib.sha256(f"{file_digest(_path())} {minilm.SHA256}".encode()).hexdigest()


@functools.cache
def load_table() -> tuple[npt.NDArray[np.int8], Array]:
    """Load the table, (30522, 256), and row steps, (30522, 1)."""
    from safetensors.numpy import load_file

    saved = load_file(_path())
    return saved["tokens.steps"], saved["tokens.scale"]


def _path() -> Path:
    path = WEIGHTS / "static.safetensors"
    if not path.is_file():
        raise ModelUnavailable(f"the static embeddings are missing from {WEIGHTS}: reinstall kcard")
    return path
