"""Models of transformers as decoders: one function a family of architectures, a row of FAMILIES each."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.decoder import Decoder, Embedding, Layer, Linear, Mlp, Norm, Part, Rotary, Shape

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILIES", "read"]


def read(model: Any) -> Decoder | None:
    """The model's weights as a decoder, some of them fused; None for an architecture that has no row here.

    The weights that are not fused are the model's own, not copies.
    """
    import torch

    family = FAMILIES.get(type(model).__name__)
    with torch.no_grad():
        return None if family is None else family(model)


def _opt(model: Any) -> Decoder | None:
    inner, config = model.model.decoder, model.config
    narrow = inner.project_in is not None or not config.layer_norm_elementwise_affine
    if narrow or not config.do_layer_norm_before or inner.final_layer_norm is None:
        return None
    names = _names(model)
    layers = tuple(
        Layer(
            attention_norm=_norm(layer.self_attn_layer_norm),
            qkv=_fused(names, layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
            out=_fused(names, layer.self_attn.out_proj),
            mlp_norm=_norm(layer.final_layer_norm),
            mlp=Mlp(_fused(names, layer.fc1), _fused(names, layer.fc2), layer.activation_fn),
        )
        for layer in inner.layers
    )
    heads = config.num_attention_heads
    positions = inner.embed_positions
    return Decoder(
        embed=_table(names, inner.embed_tokens),
        positions=Embedding(positions.weight.detach(), positions.offset),
        rotary=None,
        layers=layers,
        final_norm=_norm(inner.final_layer_norm),
        head=_fused(names, model.lm_head),
        shape=Shape(heads, heads, config.hidden_size // heads),
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


def _llama(model: Any) -> Decoder | None:
    """Llama, Mistral, Qwen2 and Qwen3, which differ in biases and in norms of queries and keys."""
    inner, config = model.model, model.config
    rotary = _rotary(inner.rotary_emb)
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    if rotary is None or windowed:
        return None
    names = _names(model)
    layers = []
    for layer in inner.layers:
        attention, mlp = layer.self_attn, layer.mlp
        layers.append(
            Layer(
                attention_norm=_norm(layer.input_layernorm),
                qkv=_fused(names, attention.q_proj, attention.k_proj, attention.v_proj),
                out=_fused(names, attention.o_proj),
                mlp_norm=_norm(layer.post_attention_layernorm),
                mlp=Mlp(
                    _fused(names, mlp.gate_proj, mlp.up_proj),
                    _fused(names, mlp.down_proj),
                    mlp.act_fn,
                    gated=True,
                ),
                query_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
                key_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
            )
        )
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Decoder(
        embed=_table(names, inner.embed_tokens),
        positions=None,
        rotary=rotary,
        layers=tuple(layers),
        final_norm=_norm(inner.norm),
        head=_fused(names, model.lm_head),
        shape=Shape(heads, config.num_key_value_heads, width),
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


def _neox(model: Any) -> Decoder | None:
    import torch

    inner, config = model.gpt_neox, model.config
    rotary = _rotary(inner.rotary_emb)
    if rotary is None:
        return None
    heads = config.num_attention_heads
    shape = Shape(heads, heads, config.hidden_size // heads)
    # Its outputs come as (heads, query key value, width): here all queries come first.
    order = torch.arange(3 * config.hidden_size).view(heads, 3, shape.width).transpose(0, 1).reshape(-1)
    names = _names(model)
    layers = tuple(
        Layer(
            attention_norm=_norm(layer.input_layernorm),
            qkv=_ordered(names, layer.attention.query_key_value, order),
            out=_fused(names, layer.attention.dense),
            mlp_norm=_norm(layer.post_attention_layernorm),
            mlp=Mlp(
                _fused(names, layer.mlp.dense_h_to_4h), _fused(names, layer.mlp.dense_4h_to_h), layer.mlp.act
            ),
            parallel=config.use_parallel_residual,
        )
        for layer in inner.layers
    )
    return Decoder(
        embed=_table(names, inner.embed_in),
        positions=None,
        rotary=rotary,
        layers=layers,
        final_norm=_norm(inner.final_layer_norm),
        head=_fused(names, getattr(model, "embed_out", None) or model.lm_head),
        shape=shape,
        longest=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
    )


FAMILIES: Mapping[str, Callable[[Any], Decoder | None]] = {
    "OPTForCausalLM": _opt,
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _llama,
    "Qwen2ForCausalLM": _llama,
    "Qwen3ForCausalLM": _llama,
    "GPTNeoXForCausalLM": _neox,
}


def _names(model: Any) -> dict[int, str]:
    return {id(module): name for name, module in model.named_modules()}


def _table(names: Mapping[int, str], module: Any) -> Embedding:
    return Embedding(module.weight.detach(), module=names[id(module)])


def _norm(module: Any) -> Norm:
    if hasattr(module, "variance_epsilon"):
        return Norm(module.weight.detach(), None, module.variance_epsilon, rms=True)
    return Norm(module.weight.detach(), _detached(module.bias), module.eps)


def _rotary(module: Any) -> Rotary | None:
    """None where the frequencies change with the length of the text."""
    if "dynamic" in module.rope_type or module.rope_type == "longrope":
        return None
    return Rotary(module.inv_freq.float(), float(module.attention_scaling))


def _fused(names: Mapping[int, str], *modules: Any) -> Linear:
    import torch

    parts = tuple(Part(names[id(module)], module.weight.shape[0]) for module in modules)
    if len(modules) == 1:
        return Linear(modules[0].weight.detach(), _detached(modules[0].bias), parts=parts)
    weight = torch.cat([module.weight for module in modules])
    if all(module.bias is None for module in modules):
        return Linear(weight, parts=parts)
    biases = [
        module.weight.new_zeros(len(module.weight)) if module.bias is None else module.bias
        for module in modules
    ]
    return Linear(weight, torch.cat(biases), parts=parts)


def _ordered(names: Mapping[int, str], module: Any, order: "Tensor") -> Linear:
    bias = None if module.bias is None else module.bias[order]
    part = Part(names[id(module)], len(order), order)
    return Linear(module.weight[order].contiguous(), bias, parts=(part,))


def _detached(tensor: "Tensor | None") -> "Tensor | None":
    return None if tensor is None else tensor.detach()
