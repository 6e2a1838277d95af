"""The embedded sentence encoder: all-MiniLM-L6-v2, whose mean token state is a text's embedding.

Relevance, card choice, the encoder prefix of cards and several gates use it; a retrieval card's index does not
(kcard.static_embeddings). transformers reads the same model where it is to be adapted.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcard import minilm
from kcard.minilm import DIMENSIONS, NAME, SHA256, folder, words
from kcard.networks import Network, token_row
from kcard.protocols import Array
from kcard.quiet import quiet_loading

if TYPE_CHECKING:
    from transformers import BertModel

__all__ = [
    "DIMENSIONS",
    "NAME",
    "SHA256",
    "embed",
    "folder",
    "model",
    "word_vectors",
    "words",
]

MAX_TOKENS = 256


def model(attention: str = "sdpa") -> "BertModel":
    """A fresh copy of the transformer, for others to adapt: 6 layers, 384 wide, 22.6M parameters, fp32."""
    from transformers import BertModel

    with quiet_loading():
        loaded: BertModel = BertModel.from_pretrained(
            folder(), add_pooling_layer=False, attn_implementation=attention
        )
    loaded.eval()
    return loaded


@functools.cache
def _network() -> Network:
    return Network("encoder", minilm.weights())


def embed(texts: Sequence[str], tokens: int = MAX_TOKENS) -> Array:
    """Return unit-length sentence embeddings, shape (n, 384): the mean over token states, as the model's card says.

    `tokens`: of a text, special ones included, that are read at most. A vector depends on its text alone.
    """
    ids = [[minilm.CLS, *row[: tokens - 2], minilm.SEP] for row in words().ids(texts)]
    outputs = _network().run_all([token_row(row, len(row)) for row in ids])
    return np.concatenate([np.zeros((0, DIMENSIONS), np.float32), *(vector for (vector,) in outputs)])


def word_vectors(texts: Sequence[str]) -> Array:
    """Return unit-length embeddings of single words without context, (n, 384): the network's input embeddings less
    their mean; zeros for a word that is none of its tokens."""
    table, mean = _word_embeddings()
    ids = np.array([row[0] if len(row) == 1 else minilm.PAD for row in words().ids(texts)], np.int64)
    centred = table[ids] - mean
    centred /= np.maximum(np.linalg.norm(centred, axis=-1, keepdims=True), 1e-12)
    return np.asarray(centred * (ids != minilm.PAD)[:, None], np.float32)


@functools.cache
def _word_embeddings() -> tuple[Array, Array]:
    """The network's table, (30522, 384), and its mean."""
    table = minilm.weights()["embeddings.word_embeddings.weight"]
    return table, table.mean(0)
