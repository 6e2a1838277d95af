"""A trained prefix before the prompts of a model of transformers, as the keys and values that its cache begins with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.prefix import Prefix, check_sizes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KeyValueShape", "check_fit", "key_value_shape", "room", "started"]


@dataclass(frozen=True)
class KeyValueShape:
    """Keys and values of a model: so many heads of that width in each layer."""

    layers: int
    heads: int
    width: int


def key_value_shape(model: Any) -> KeyValueShape:
    """Found by passing one token through the model. ValueError for one that keeps anything but keys and values of the
    same shape in every layer, such as the states of linear attention, or keys that layers share."""
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    name = type(model).__name__
    cache: Any = DynamicCache(config=model.config)
    try:
        with torch.no_grad():
            model(
                input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device),
                past_key_values=cache,
                use_cache=True,
            )
        shapes = {tuple(layer.keys.shape) for layer in cache.layers}
        shapes |= {tuple(layer.values.shape) for layer in cache.layers}
    except (AttributeError, TypeError, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"{name} keeps no keys and values of each layer, which a prefix needs: {error}"
        ) from error
    plain = {type(layer) for layer in cache.layers} <= {DynamicLayer, DynamicSlidingWindowLayer}
    if not plain or len(shapes) != 1:
        raise ValueError(
            f"{name} keeps other states than keys and values of one shape, so that no prefix fits it"
        )
    ((_, heads, _, width),) = shapes
    return KeyValueShape(len(cache.layers), heads, width)


def room(config: Any) -> int:
    """Most tokens of prefix, prompt and document in a model of that config: as many as it reads, and as the narrowest
    sliding window holds, so that every layer sees the whole prefix to the end."""
    from transformers import DynamicCache

    longest: int = getattr(config, "max_position_embeddings", None) or 1_000_000
    layers: Any = DynamicCache(config=config).layers
    windows: list[int] = [layer.sliding_window for layer in layers if layer.is_sliding]
    return min([longest, *windows])


def check_fit(model: Any, prefix: Prefix) -> None:
    """ValueError where the prefix does not belong to the model."""
    shape = key_value_shape(model)
    check_sizes(prefix, shape.layers, shape.heads, shape.width, room(model.config))


def started(model: Any, prefix: "Prefix | None", mask: "Tensor") -> "dict[str, Any]":
    """The arguments of a forward pass that have the prefix stand before rows with that mask, (rows, length)."""
    import torch
    from transformers import DynamicCache

    if prefix is None:
        return {"attention_mask": mask}
    cache: Any = DynamicCache(config=model.config)
    for layer, (keys, values) in enumerate(prefix.table):
        cache.update(*(part.expand(len(mask), -1, -1, -1) for part in (keys, values)), layer)
    return {
        "attention_mask": torch.nn.functional.pad(mask, (prefix.tokens, 0), value=1),
        "past_key_values": cache,
    }
