"""The header of a safetensors file, by the rules of the format (tensors without gaps), with tighter limits."""

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, BinaryIO

from kcard.hub.errors import Invalid

MAX_HEADER_BYTES = 25_000_000
MAX_TENSORS = 50_000
MAX_NUMBERS = 20 * MAX_TENSORS
MAX_RANK = 16
MAX_NAME_CHARACTERS = 1024
METADATA = "__metadata__"
BITS = {
    **dict.fromkeys(["F4"], 4),
    **dict.fromkeys(["F6_E2M3", "F6_E3M2"], 6),
    **dict.fromkeys(["BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8),
    **dict.fromkeys(["I16", "U16", "F16", "BF16"], 16),
    **dict.fromkeys(["I32", "U32", "F32"], 32),
    **dict.fromkeys(["I64", "U64", "F64", "C64"], 64),
}


def check_safetensors(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless the header describes exactly the bytes after it. `size`: of the whole file."""
    start = stream.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length < 2 or length > min(MAX_HEADER_BYTES, size - 8):
        raise _invalid_safetensors(path, f"header of {length} bytes in a file of {size}")
    text = stream.read(length)
    if len(text) < length or not text.startswith(b"{"):
        raise _invalid_safetensors(path, "the header is not a JSON object")
    # Before parsing, which would take far more memory than the text.
    if text.count(b"{") + text.count(b"[") > 3 * (MAX_TENSORS + 2) or text.count(b",") > MAX_NUMBERS:
        raise _invalid_safetensors(path, f"more than {MAX_TENSORS} tensors, or too many dimensions")
    try:
        parsed = json.loads(
            text.decode(), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant
        )
        json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair, as \ud800, is no character
    except (ValueError, RecursionError) as error:
        raise _invalid_safetensors(path, f"invalid header: {str(error)[:100]}") from None
    tensors = dict(parsed)
    about = tensors.pop(METADATA, {})
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise _invalid_safetensors(path, f"{METADATA} is not an object of strings")
    if len(tensors) > MAX_TENSORS:
        raise _invalid_safetensors(path, f"more than {MAX_TENSORS} tensors")
    spans = [_check_tensor(path, name, tensor) for name, tensor in tensors.items()]
    # Every byte of the data belongs to exactly one tensor.
    reached, following = 0, size - 8 - length
    for begin, end in sorted(spans):
        if begin != reached:
            raise _invalid_safetensors(path, "tensors overlap" if begin < reached else "gap between tensors")
        reached = end
    if reached != following:
        raise _invalid_safetensors(
            path, f"its tensors have {reached} bytes, but {following} follow the header"
        )


def _check_tensor(path: str, name: str, tensor: object) -> tuple[int, int]:
    """Return the tensor's offsets after the header."""
    shown = repr(name[:80])
    if len(name) > MAX_NAME_CHARACTERS or not isinstance(tensor, Mapping):
        raise _invalid_safetensors(path, f"tensor {shown} has an invalid name or description")
    if tensor.keys() != {"dtype", "shape", "data_offsets"}:
        raise _invalid_safetensors(path, f"tensor {shown} must have dtype, shape and data_offsets only")
    dtype, shape, offsets = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _invalid_safetensors(path, f"tensor {shown} has the unknown dtype {str(dtype)[:40]!r}")
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise _invalid_safetensors(path, f"tensor {shown}: shape must be at most {MAX_RANK} whole numbers")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _invalid_safetensors(path, f"tensor {shown}: data_offsets must be two whole numbers")
    begin, end = offsets
    # The product can't overflow in Python.
    if prod(shape) * BITS[dtype] != 8 * (end - begin):
        raise _invalid_safetensors(path, f"tensor {shown}: {dtype} x {shape} is not {end - begin} bytes")
    return begin, end


def _are_sizes(value: object) -> bool:
    """Return whether it is a list of non-negative 64-bit integers."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _reject_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises ValueError for a duplicate key, which readers resolve differently."""
    items: dict[str, Any] = {}
    for key, value in pairs:
        if key in items:
            raise ValueError(f"duplicate key {key[:80]!r}")
        items[key] = value
    return items


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _invalid_safetensors(path: str, why: str) -> Invalid:
    return Invalid(f"{path} is not a valid safetensors file: {why}; save it again")
