"""A small OPT as plain arithmetic, read from its files: what the embedded memory and embedded cards are.

transformers does the same, to the bit where its kernels do, but its import takes longer than a whole answer; a test
holds this one to it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OFFSET", "OPTNetwork", "Output", "is_plain"]

OFFSET = 2  # of the first position in its table
PLAIN: Mapping[str, Any] = {
    "model_type": "opt",
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "_remove_final_layer_norm": False,
    "tie_word_embeddings": True,
}


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether a config is that of an OPT as embedded models are: PLAIN, and as wide outside as inside."""
    wide = config.get("word_embed_proj_dim", config.get("hidden_size")) == config.get("hidden_size")
    return (
        wide
        and all(config.get(key, plain) == plain for key, plain in PLAIN.items())
        and "model_type" in config
    )


State = Sequence[tuple["Tensor", "Tensor"]]


@dataclass(frozen=True)
class Output:
    """Logits, (1, tokens, vocabulary), and the keys and values of all layers."""

    logits: "Tensor"
    past_key_values: "State"


@dataclass(frozen=True)
class OPTNetwork:
    """`weights` by their names in the checkpoint, float32."""

    weights: "Mapping[str, Tensor]"
    layers: int
    heads: int

    @classmethod
    def read(cls, folder: Path) -> "OPTNetwork":
        """Of the model in a folder, which must be an OPT as PLAIN has it."""
        from safetensors.torch import load_file

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not is_plain(config):
            raise ValueError(f"{folder} holds no OPT as kcard trains it: see PLAIN in kcard.opt")
        weights = {name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()}
        return cls(weights, config["num_hidden_layers"], config["num_attention_heads"])

    def __call__(
        self, input_ids: "Tensor", past_key_values: "State | None" = None, use_cache: bool = True
    ) -> Output:
        """One row of token ids, (1, tokens), after what `past_key_values` holds."""
        from torch.nn.functional import linear

        start = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        table = self._weight("embed_tokens")
        places = self._weight("embed_positions")[OFFSET + start : OFFSET + start + input_ids.shape[1]]
        states = table[input_ids] + places
        kept = []
        for number in range(self.layers):
            before = None if past_key_values is None else past_key_values[number]
            states, seen = self._layer(states, before, f"layers.{number}")
            kept.append(seen)
        return Output(linear(self._norm(states, "final_layer_norm"), table), kept if use_cache else ())

    def _layer(
        self, states: "Tensor", before: "tuple[Tensor, Tensor] | None", name: str
    ) -> "tuple[Tensor, tuple[Tensor, Tensor]]":
        import torch
        from torch.nn.functional import relu, scaled_dot_product_attention

        rows, length, width = states.shape
        inner = self._norm(states, f"{name}.self_attn_layer_norm")
        query = self._linear(inner, f"{name}.self_attn.q_proj") * (width // self.heads) ** -0.5
        key, value = (self._linear(inner, f"{name}.self_attn.{part}_proj") for part in "kv")
        query, key, value = (
            x.view(rows, length, self.heads, width // self.heads).transpose(1, 2) for x in (query, key, value)
        )
        if before is not None:
            key, value = torch.cat([before[0], key], dim=2), torch.cat([before[1], value], dim=2)
        mixed = scaled_dot_product_attention(query, key, value, scale=1.0, is_causal=length > 1)
        mixed = mixed.transpose(1, 2).reshape(rows, length, width)
        states = states + self._linear(mixed, f"{name}.self_attn.out_proj")
        inner = relu(self._linear(self._norm(states, f"{name}.final_layer_norm"), f"{name}.fc1"))
        return states + self._linear(inner, f"{name}.fc2"), (key, value)

    def _linear(self, x: "Tensor", name: str) -> "Tensor":
        from torch.nn.functional import linear

        return linear(x, self._weight(name), self._weight(name, "bias"))

    def _norm(self, x: "Tensor", name: str) -> "Tensor":
        from torch.nn.functional import layer_norm

        weight = self._weight(name)
        return layer_norm(x, weight.shape, weight, self._weight(name, "bias"))

    def _weight(self, name: str, kind: str = "weight") -> "Tensor":
        return self.weights[f"model.decoder.{name}.{kind}"]
