"""Embedded cards read without transformers, whose import takes longer than a whole answer.

What is read has the parts that the engine takes a decoder from (kcard.cards.lm.engine.families), by their names in
transformers, and can't be run by itself.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kcard.opt import OFFSET, is_plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["read"]

EPSILON = 1e-5  # of every LayerNorm


def read(folder: Path, device: str) -> Any | None:
    """The model in a folder, float32; None where it is none of those. Raises where its weights don't fit its config."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not is_plain(config) or not (folder / "model.safetensors").is_file():
        return None
    model = _model(config, load_file(folder / "model.safetensors"))
    model.config = SimpleNamespace(
        **{"layer_norm_elementwise_affine": True, "do_layer_norm_before": True, "tie_word_embeddings": True}
        | config
    )
    model.generation_config = SimpleNamespace(eos_token_id=_ends(folder, config))
    return model.requires_grad_(False).to(device=device, dtype=torch.float32).eval()


def _ends(folder: Path, config: dict[str, Any]) -> Any:
    """Where texts end: as the generation config says, else the model's."""
    path = folder / "generation_config.json"
    return (json.loads(path.read_text(encoding="utf-8")) if path.is_file() else config).get("eos_token_id")


def _model(config: dict[str, Any], weights: "dict[str, Tensor]") -> Any:
    """An OPT of these weights. Its modules have no types: those of torch would be filled at random first."""
    from torch.nn import Module, ModuleList, Parameter, ReLU

    width, inner, words = config["hidden_size"], config["ffn_dim"], config["vocab_size"]

    class OPTForCausalLM(Module):
        def get_input_embeddings(self) -> Any:
            return table

    def parts(**named: Any) -> Any:
        module: Any = Module()
        for name, value in named.items():
            setattr(module, name, value)
        return module

    def leaf(name: str, *shape: int, bias: bool = True, **rest: Any) -> Any:
        named = {"weight": shape} | ({"bias": shape[:1]} if bias else {})
        found = {kind: weights[f"model.decoder.{name}.{kind}"] for kind in named}
        for kind, wanted in named.items():
            if found[kind].shape != wanted:
                raise ValueError(f"{name}.{kind} is {tuple(found[kind].shape)}, but must be {wanted}")
        return parts(**{kind: Parameter(value) for kind, value in found.items()}, **rest)

    def norm(name: str) -> Any:
        return leaf(name, width, eps=EPSILON)

    def layer(number: int) -> Any:
        name = f"layers.{number}"
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        return parts(
            self_attn=parts(**{part: leaf(f"{name}.self_attn.{part}", width, width) for part in names}),
            self_attn_layer_norm=norm(f"{name}.self_attn_layer_norm"),
            fc1=leaf(f"{name}.fc1", inner, width),
            fc2=leaf(f"{name}.fc2", width, inner),
            final_layer_norm=norm(f"{name}.final_layer_norm"),
            activation_fn=ReLU(),
        )

    table = leaf("embed_tokens", words, width, bias=False)
    positions = config["max_position_embeddings"] + OFFSET
    decoder = parts(
        embed_tokens=table,
        embed_positions=leaf("embed_positions", positions, width, bias=False, offset=OFFSET),
        layers=ModuleList(layer(number) for number in range(config["num_hidden_layers"])),
        final_layer_norm=norm("final_layer_norm"),
        project_in=None,
    )
    model: Any = OPTForCausalLM()
    model.model = parts(decoder=decoder)
    model.lm_head = parts(weight=table.weight, bias=None)
    return model
