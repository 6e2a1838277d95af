"""all-MiniLM-L6-v2 as plain arithmetic: a BERT of six layers, read from its two files.

transformers does the same, to the bit where its kernels do, but its import takes longer than a whole answer. Where a
model is to be adapted, take encoder.model(); a test holds this one to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from torch import Tensor

__all__ = ["CLS", "PAD", "SEP", "MiniLMNetwork", "States", "Words", "padded"]

PAD, CLS, SEP = 0, 101, 102
HEADS, LAYERS, EPSILON = 12, 6, 1e-12


@dataclass(frozen=True)
class States:
    """What the last layer gives, (n, tokens, 384)."""

    last_hidden_state: "Tensor"


@dataclass(frozen=True)
class MiniLMNetwork:
    """The transformer; `weights` by their names in the checkpoint, float32."""

    weights: "Mapping[str, Tensor]"

    @classmethod
    def read(cls, folder: Path) -> "MiniLMNetwork":
        """Of the model in a folder."""
        from safetensors.torch import load_file

        return cls(load_file(folder / "model.safetensors"))

    def merged(self, adapter: "Mapping[str, Tensor]", scale: float) -> "MiniLMNetwork":
        """With a PEFT LoRA adapter added to the weights that it was trained on, `scale` being its alpha / r."""
        weights, prefix, down = dict(self.weights), "base_model.model.", ".lora_A.weight"
        for name, first in adapter.items():
            if name.endswith(down):
                layer = name.removeprefix(prefix).removesuffix(down) + ".weight"
                second = adapter[name.replace(".lora_A.", ".lora_B.")]
                weights[layer] = weights[layer] + scale * (second.float() @ first.float())
        return MiniLMNetwork(weights)

    def changed(self, changes: "Mapping[str, Tensor]") -> "MiniLMNetwork":
        """With these added to the weights of the same names."""
        return MiniLMNetwork(
            {name: w + changes[name] if name in changes else w for name, w in self.weights.items()}
        )

    def __call__(
        self, input_ids: "Tensor", attention_mask: "Tensor", token_type_ids: "Tensor | None" = None
    ) -> States:
        """States of padded rows of token ids, all (n, tokens), the mask 1 where a token stands."""
        import torch
        from torch.nn.functional import embedding

        words, kinds, places = (
            self.weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        )
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        states = embedding(input_ids, words) + embedding(types, kinds) + places[: input_ids.shape[1]]
        states = self._norm(states, "embeddings.LayerNorm")
        # Without padding a mask would only cost time, and pick another kernel.
        whole = bool(attention_mask.all())
        mask = (
            None if whole else attention_mask[:, None, None, :].bool().expand(-1, 1, input_ids.shape[1], -1)
        )
        for number in range(LAYERS):
            states = self._layer(states, mask, f"encoder.layer.{number}")
        return States(states)

    def _layer(self, states: "Tensor", mask: "Tensor | None", name: str) -> "Tensor":
        from torch.nn.functional import gelu, scaled_dot_product_attention

        rows, length, width = states.shape
        query, key, value = (
            self._linear(states, f"{name}.attention.self.{part}")
            .view(rows, length, HEADS, width // HEADS)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        seen = self._linear(
            seen.transpose(1, 2).reshape(rows, length, width), f"{name}.attention.output.dense"
        )
        states = self._norm(seen + states, f"{name}.attention.output.LayerNorm")
        inner = gelu(self._linear(states, f"{name}.intermediate.dense"))
        return self._norm(self._linear(inner, f"{name}.output.dense") + states, f"{name}.output.LayerNorm")

    def _linear(self, x: "Tensor", name: str) -> "Tensor":
        from torch.nn.functional import linear

        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: "Tensor", name: str) -> "Tensor":
        from torch.nn.functional import layer_norm

        weight = self.weights[f"{name}.weight"]
        return layer_norm(x, weight.shape, weight, self.weights[f"{name}.bias"], EPSILON)


@dataclass(frozen=True)
class Words:
    """The WordPiece tokenizer (uncased). It neither cuts nor pads, and puts no special tokens around a text."""

    _tokenizer: "Tokenizer"

    @classmethod
    def read(cls, folder: Path) -> "Words":
        """Of the model in a folder."""
        from tokenizers import Tokenizer

        found = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found.no_truncation()
        found.no_padding()
        return cls(found)

    def encodings(self, texts: Sequence[str]) -> "list[Encoding]":
        """Of each text its `ids`, and as `offsets` where they stand in it: (start, end) in characters."""
        found: list[Encoding] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return found

    def encoding(self, text: str) -> "Encoding":
        """The same of one text, in this thread."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        return [list(found.ids) for found in self.encodings(texts)]

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.encoding(text).ids)


def padded(rows: Sequence[Sequence[int]], length: int) -> "tuple[Tensor, Tensor]":
    """Token ids and mask, both (n, length)."""
    import torch

    ids: Any = torch.full((len(rows), length), PAD)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return ids, mask
