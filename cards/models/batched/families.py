"""Causal models as decoders: one function per family of architectures, one row of FAMILIES each.

They take a model as its checkpoint describes it, independent of transformers and folders.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.cards.models.batched.decoder import (
    Decoder,
    Embedding,
    Layer,
    Linear,
    Mlp,
    Norm,
    Part,
    Rotary,
    Shape,
    UnsupportedModel,
)

if TYPE_CHECKING:
    from torch import Tensor

OPT_EPS = 1e-5  # of every LayerNorm of an OPT
OFFSET = 2  # of the first position in an OPT's table
# The config of embedded cards.
PLAIN_OPT: Mapping[str, Any] = {
    "model_type": "opt",
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "_remove_final_layer_norm": False,
    "tie_word_embeddings": True,
}


def is_plain_opt(config: Mapping[str, Any]) -> bool:
    """Return whether a config is an embedded model's: PLAIN_OPT, with word_embed_proj_dim == hidden_size."""
    wide = config.get("word_embed_proj_dim", config.get("hidden_size")) == config.get("hidden_size")
    return (
        wide
        and all(config.get(key, plain) == plain for key, plain in PLAIN_OPT.items())
        and "model_type" in config
    )


@dataclass(frozen=True)
class ModelCheckpoint:
    """A model as its files describe it.

    architecture  the transformers class that runs it, such as OPTForCausalLM
    config        the keys of config.json as attributes, with that class' defaults
    tensors       by name; a tied head is included under its own name
    activation    of the MLPs
    rotary        rotary positions; None if there are none, or if they change with the length of the text
    """

    architecture: str
    config: Any
    tensors: "Mapping[str, Tensor]"
    activation: "Callable[[Tensor], Tensor]"
    rotary: Rotary | None = None

    def linear(self, *modules: str, order: "Tensor | None" = None) -> Linear:
        """Fuse linear layers into one. order: of the outputs of a single one."""
        import torch

        weights = [self.tensors[f"{module}.weight"] for module in modules]
        biases = [self.tensors.get(f"{module}.bias") for module in modules]
        parts = tuple(
            Part(module, len(weight), order) for module, weight in zip(modules, weights, strict=True)
        )
        if len(modules) == 1:
            (weight,), (bias,) = weights, biases
            if order is not None:
                weight, bias = weight[order].contiguous(), None if bias is None else bias[order]
            return Linear(weight, bias, parts=parts)
        if all(bias is None for bias in biases):
            return Linear(torch.cat(weights), parts=parts)
        filled = []
        for weight, bias in zip(weights, biases, strict=True):
            filled.append(weight.new_zeros(len(weight)) if bias is None else bias)
        return Linear(torch.cat(weights), torch.cat(filled), parts=parts)

    def norm(self, module: str, eps: float, rms: bool = False) -> Norm:
        return Norm(self.tensors[f"{module}.weight"], self.tensors.get(f"{module}.bias"), eps, rms)

    def table(self, module: str) -> Embedding:
        return Embedding(self.tensors[f"{module}.weight"], module=module)


def decoder(checkpoint: ModelCheckpoint) -> Decoder:
    """Convert the model to a decoder, some of its weights fused; the others are the checkpoint's own, not copies.

    Raises UnsupportedModel for an architecture that has no row here, or an unsupported variant.
    """
    import torch

    if checkpoint.architecture not in FAMILIES:
        raise UnsupportedModel(f"a {checkpoint.architecture}")
    with torch.no_grad():
        return FAMILIES[checkpoint.architecture](checkpoint)


def _opt(model: ModelCheckpoint) -> Decoder:
    config, inner = model.config, "model.decoder"
    if f"{inner}.project_in.weight" in model.tensors or not config.layer_norm_elementwise_affine:
        raise UnsupportedModel(
            f"a {model.architecture} with projections around its layers or norms without weights"
        )
    if not config.do_layer_norm_before or f"{inner}.final_layer_norm.weight" not in model.tensors:
        raise UnsupportedModel(f"a {model.architecture} with norms after its layers")

    def layer(name: str) -> Layer:
        return Layer(
            attention_norm=model.norm(f"{name}.self_attn_layer_norm", OPT_EPS),
            qkv=model.linear(*(f"{name}.self_attn.{part}_proj" for part in "qkv")),
            out=model.linear(f"{name}.self_attn.out_proj"),
            mlp_norm=model.norm(f"{name}.final_layer_norm", OPT_EPS),
            mlp=Mlp(model.linear(f"{name}.fc1"), model.linear(f"{name}.fc2"), model.activation),
        )

    heads = config.num_attention_heads
    return Decoder(
        embed=model.table(f"{inner}.embed_tokens"),
        positions=Embedding(model.tensors[f"{inner}.embed_positions.weight"], OFFSET),
        rotary=None,
        layers=tuple(layer(f"{inner}.layers.{number}") for number in range(config.num_hidden_layers)),
        final_norm=model.norm(f"{inner}.final_layer_norm", OPT_EPS),
        head=model.linear("lm_head"),
        shape=Shape(heads, heads, config.hidden_size // heads),
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


def _llama(model: ModelCheckpoint) -> Decoder:
    """Convert Llama, Mistral, Qwen2 and Qwen3, which differ in biases and query/key norms."""
    config = model.config
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise UnsupportedModel(f"a {model.architecture} with sliding windows")
    rotary, eps = _rotary(model), config.rms_norm_eps

    def norm(name: str) -> Norm:
        return model.norm(name, eps, rms=True)

    def layer(name: str) -> Layer:
        attention = f"{name}.self_attn"
        headed = f"{attention}.q_norm.weight" in model.tensors
        up = model.linear(f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj")
        return Layer(
            attention_norm=norm(f"{name}.input_layernorm"),
            qkv=model.linear(*(f"{attention}.{part}_proj" for part in "qkv")),
            out=model.linear(f"{attention}.o_proj"),
            mlp_norm=norm(f"{name}.post_attention_layernorm"),
            mlp=Mlp(up, model.linear(f"{name}.mlp.down_proj"), model.activation, gated=True),
            query_norm=norm(f"{attention}.q_norm") if headed else None,
            key_norm=norm(f"{attention}.k_norm") if headed else None,
        )

    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Decoder(
        embed=model.table("model.embed_tokens"),
        positions=None,
        rotary=rotary,
        layers=tuple(layer(f"model.layers.{number}") for number in range(config.num_hidden_layers)),
        final_norm=norm("model.norm"),
        head=model.linear("lm_head"),
        shape=Shape(heads, config.num_key_value_heads, width),
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


def _neox(model: ModelCheckpoint) -> Decoder:
    import torch

    config, rotary = model.config, _rotary(model)
    heads, eps = config.num_attention_heads, config.layer_norm_eps
    shape = Shape(heads, heads, config.hidden_size // heads)
    # NeoX interleaves its outputs as (heads, query key value, width): reorder them so that all queries come first.
    order = torch.arange(3 * config.hidden_size).view(heads, 3, shape.width).transpose(0, 1).reshape(-1)

    def layer(name: str) -> Layer:
        up, down = (model.linear(f"{name}.mlp.dense_{part}") for part in ("h_to_4h", "4h_to_h"))
        return Layer(
            attention_norm=model.norm(f"{name}.input_layernorm", eps),
            qkv=model.linear(f"{name}.attention.query_key_value", order=order),
            out=model.linear(f"{name}.attention.dense"),
            mlp_norm=model.norm(f"{name}.post_attention_layernorm", eps),
            mlp=Mlp(up, down, model.activation),
            parallel=config.use_parallel_residual,
        )

    return Decoder(
        embed=model.table("gpt_neox.embed_in"),
        positions=None,
        rotary=rotary,
        layers=tuple(layer(f"gpt_neox.layers.{number}") for number in range(config.num_hidden_layers)),
        final_norm=model.norm("gpt_neox.final_layer_norm", eps),
        head=model.linear("embed_out" if "embed_out.weight" in model.tensors else "lm_head"),
        shape=shape,
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


FAMILIES: Mapping[str, Callable[[ModelCheckpoint], Decoder]] = {
    "OPTForCausalLM": _opt,
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _llama,
    "Qwen2ForCausalLM": _llama,
    "Qwen3ForCausalLM": _llama,
    "GPTNeoXForCausalLM": _neox,
}


def _rotary(model: ModelCheckpoint) -> Rotary:
    if model.rotary is None:
        raise UnsupportedModel(
            f"a {model.architecture} with positions that change with the length of the text"
        )
    return model.rotary
