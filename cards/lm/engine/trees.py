"""The tensors of a decoder: walked, counted, and replaced. A tensor that is used twice (tied weights) stays one."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kcard.cards.lm.engine.decoder import Decoder, Linear, Part, Rotary

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["mapped", "relinked", "signature", "size", "tensors"]

T = TypeVar("T")
# What cards of one shape have in common.
COMMON = (Part, Rotary)


def tensors(value: Any) -> "Iterator[Tensor]":
    """Every tensor of the weights, in an order that equal shapes share; tied ones each time that they are used."""
    from torch import Tensor

    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value) and not isinstance(value, COMMON):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def mapped(value: T, change: "Callable[[Tensor], Tensor]") -> T:
    """The same with `change` of every tensor of the weights, called once for each."""
    changed: T = _mapped(value, change, {})
    return changed


def relinked(decoder: Decoder, change: Callable[[Linear], Linear]) -> Decoder:
    """The decoder with `change` of each of its linear layers."""
    layers = tuple(
        replace(
            layer,
            qkv=change(layer.qkv),
            out=change(layer.out),
            mlp=replace(layer.mlp, up=change(layer.mlp.up), down=change(layer.mlp.down)),
        )
        for layer in decoder.layers
    )
    return replace(decoder, layers=layers, head=change(decoder.head))


def size(value: Any) -> int:
    """Return the bytes of the weights."""
    return sum({_place(t): t.numel() * t.element_size() for t in tensors(value)}.values())


def signature(value: Any) -> str:
    """Equal for models whose weights can be stacked: the same shapes, dtype, activations and positions."""
    from torch import Tensor

    if isinstance(value, Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    if isinstance(value, Part):
        return ""
    if isinstance(value, Rotary):
        return f"{value.frequencies.tolist()}{value.scale}"
    if isinstance(value, tuple):
        return f"({','.join(map(signature, value))})"
    if is_dataclass(value):
        return f"{type(value).__name__}{[signature(getattr(value, field.name)) for field in fields(value)]}"
    return str(value)


def _mapped(value: Any, change: "Callable[[Tensor], Tensor]", done: "dict[object, Tensor]") -> Any:
    from torch import Tensor

    if isinstance(value, Tensor):
        if (place := _place(value)) not in done:
            done[place] = change(value)
        return done[place]
    if isinstance(value, tuple):
        return tuple(_mapped(item, change, done) for item in value)
    if not is_dataclass(value) or isinstance(value, (*COMMON, type)):
        return value
    changed = {field.name: _mapped(getattr(value, field.name), change, done) for field in fields(value)}
    return replace(value, **changed)


def _place(tensor: "Tensor") -> object:
    if tensor.is_mkldnn:  # packed, which has no pointer
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape)
