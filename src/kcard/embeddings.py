"""Embeddings that are remembered: those of the embedded encoder, and of any other that names itself.

Texts that come together again and again, such as the descriptions of all cards of a pool, are kept as one matrix.
"""

import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from kcard import cache, encoder, networks
from kcard.config import settings
from kcard.protocols import Array

__all__ = ["embed", "matrix", "remembered"]

MANY = 1000  # texts take seconds to embed
MATRICES = 256_000_000  # bytes on disk; 10,000 cards take 15 MB


def embed(texts: Sequence[str]) -> Array:
    """Return what encoder.embed returns, each text embedded once (see cache.py)."""
    return remembered(_digest(), texts, encoder.embed) if texts else encoder.embed(texts)


def matrix(texts: Sequence[str]) -> Array:
    """The same, read back in one piece where it was made before, under the sha256 of encoder and texts; read-only."""
    limit = min(settings().cache_mb * 1_000_000, MATRICES)
    if not limit or not texts:
        return embed(texts)
    whole = cache.key("matrix", _digest(), *texts)
    disk = cache.Cache(cache.folder() / "matrices.sqlite", limit)
    if (known := disk.read([whole]).get(whole)) is not None:
        return np.frombuffer(known, dtype=np.float32).reshape(len(texts), -1)
    if len(texts) > MANY:
        logging.getLogger(__name__).warning(
            "reading %d descriptions for the first time, which takes a while", len(texts)
        )
    made = embed(texts)
    disk.write({whole: made.tobytes()})
    return made


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
        cache.source_digest(Path(encoder.__file__), Path(networks.__file__)),
        version("onnxruntime"),
        version("tokenizers"),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
