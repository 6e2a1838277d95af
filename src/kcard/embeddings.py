"""Embeddings that are remembered: those of the embedded encoder, and of any other that names itself."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from kcard import cache, encoder
from kcard.protocols import Array

__all__ = ["embed", "remembered"]


def embed(texts: Sequence[str]) -> Array:
    """What encoder.embed gives, to the bit, each text embedded once (see cache.py)."""
    return remembered(_digest(), texts, encoder.embed) if texts else encoder.embed(texts)


def remembered(model: str, texts: Sequence[str], compute: Callable[[Sequence[str]], Array]) -> Array:
    """What `compute` gives for the texts, float32, shape (n, d), n at least 1; only for those that are not known.

    `model`: the digest of all that decides a vector but the text: weights, pooling, precision, what may be cut.
    """
    keys = [cache.key("embedding", model, text) for text in texts]
    rows = cache.remembered(
        keys, lambda places: [row.tobytes() for row in _float32(compute([texts[i] for i in places]))]
    )
    return np.stack([np.frombuffer(row, dtype=np.float32) for row in rows])


def _float32(rows: Array) -> Array:
    return np.ascontiguousarray(rows, dtype=np.float32)


@functools.cache
def _digest() -> str:
    """The embedded encoder: its weights, our code around it, and the libraries that do the sums."""
    parts = [
        encoder.SHA256,
        cache.source_digest(Path(encoder.__file__)),
        version("torch"),
        version("transformers"),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
