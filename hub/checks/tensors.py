"""Checks the header of a safetensors file, by the rules of the format (tensors without gaps), with tighter limits."""

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, BinaryIO

from kcard.hub.refusals import Invalid

__all__ = ["check_safetensors"]

LARGEST_HEADER = 25_000_000
MOST_TENSORS = 50_000
MOST_NUMBERS = 20 * MOST_TENSORS
HIGHEST_RANK = 16
LONGEST_NAME = 1024
METADATA = "__metadata__"
BITS = {
    **dict.fromkeys(["F4"], 4),
    **dict.fromkeys(["F6_E2M3", "F6_E3M2"], 6),
    **dict.fromkeys(["BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8),
    **dict.fromkeys(["I16", "U16", "F16", "BF16"], 16),
    **dict.fromkeys(["I32", "U32", "F32"], 32),
    **dict.fromkeys(["I64", "U64", "F64", "C64"], 64),
}
Spans = list[tuple[int, int]]


def check_safetensors(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless the header describes exactly the bytes after it. `size`: of the whole file."""
    start = stream.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length < 2 or length > min(LARGEST_HEADER, size - 8):
        raise _broken(path, f"header of {length} bytes in a file of {size}")
    text = stream.read(length)
    if len(text) < length or not text.startswith(b"{"):
        raise _broken(path, "the header is not a JSON object")
    spans = [_span(path, name, tensor) for name, tensor in _tensors(path, _parsed(path, text)).items()]
    _check_spans(path, spans, size - 8 - length)


def _parsed(path: str, text: bytes) -> dict[str, Any]:
    # Before parsing, which would take far more memory than the text.
    if text.count(b"{") + text.count(b"[") > 3 * (MOST_TENSORS + 2) or text.count(b",") > MOST_NUMBERS:
        raise _broken(path, f"more than {MOST_TENSORS} tensors, or too many dimensions")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        json.dumps(header, ensure_ascii=False).encode()  # half a surrogate pair, as \ud800, is no character
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"invalid header: {str(error)[:100]}") from None
    return dict(header)


def _tensors(path: str, header: dict[str, Any]) -> dict[str, Any]:
    about = header.pop(METADATA, {})
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise _broken(path, f"{METADATA} is not an object of strings")
    if len(header) > MOST_TENSORS:
        raise _broken(path, f"more than {MOST_TENSORS} tensors")
    return header


def _span(path: str, name: str, tensor: object) -> tuple[int, int]:
    """The tensor's offsets after the header."""
    shown = repr(name[:80])
    if len(name) > LONGEST_NAME or not isinstance(tensor, Mapping):
        raise _broken(path, f"tensor {shown} has an invalid name or description")
    if tensor.keys() != {"dtype", "shape", "data_offsets"}:
        raise _broken(path, f"tensor {shown} must have dtype, shape and data_offsets only")
    dtype, shape, offsets = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _broken(path, f"tensor {shown} has the unknown dtype {str(dtype)[:40]!r}")
    if not _counts(shape) or len(shape) > HIGHEST_RANK:
        raise _broken(path, f"tensor {shown}: shape must be at most {HIGHEST_RANK} whole numbers")
    if not _counts(offsets) or len(offsets) != 2:
        raise _broken(path, f"tensor {shown}: data_offsets must be two whole numbers")
    begin, end = offsets
    # The product can't overflow in Python.
    if prod(shape) * BITS[dtype] != 8 * (end - begin):
        raise _broken(path, f"tensor {shown}: {dtype} x {shape} is not {end - begin} bytes")
    return begin, end


def _counts(value: object) -> bool:
    """Whether it is a list of non-negative 64-bit integers."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_spans(path: str, spans: Spans, size: int) -> None:
    """Every byte of the data belongs to exactly one tensor."""
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise _broken(path, "tensors overlap" if begin < reached else "gap between tensors")
        reached = end
    if reached != size:
        raise _broken(path, f"its tensors have {reached} bytes, but {size} follow the header")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The object. Raises ValueError for a duplicate key, which readers resolve differently."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key[:80]!r}")
        found[key] = value
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _broken(path: str, why: str) -> Invalid:
    return Invalid(f"{path} is not a valid safetensors file: {why}; save it again")
