"""GGUF files: what their header tells of a model, without its weights.

The package gguf would read them too, but takes seconds for the vocabulary of a model; these are milliseconds.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.errors import ModelUnavailable

MAGIC = b"GGUF"
VERSIONS = {2, 3}
MAX_ITEMS = 1 << 24  # entries of a header, or of a list in it; a damaged one names more
MAX_TEXT_BYTES = 1 << 24
MAX_NESTED_LISTS = 4
# The types of values by number; besides these, a text and a list.
NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
TEXT, LIST = 8, 9
MERGES = "tokenizer.ggml.merges"  # as many texts as the vocabulary has tokens, of no use here
CONTROL_TOKEN = 3  # a token's type, if it is no text but steers the model
CACHE_BYTES = 2  # of a number in the cache of keys and values


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file and what its header tells.

    size               bytes of the file
    architecture       as llama.cpp names it, such as llama or qwen2
    parameters         numbers in all tensors
    window             tokens that the model was trained to read and write; None: the file does not tell
    control_tokens     tokens that steer the model, which no text of others may contain
    has_chat_template  whether it is a chat model; any other continues a text
    token_bytes        bytes of memory that each token of a window takes
    """

    path: Path
    size: int
    architecture: str
    name: str
    licence: str
    parameters: int
    window: int | None
    control_tokens: tuple[str, ...]
    has_chat_template: bool
    token_bytes: int


def read_gguf(path: Path) -> GgufFile:
    """Read the header. Raises ModelUnavailable, in one line, if there is no such file, if it is no GGUF, of an unknown
    version, damaged or cut off."""
    try:
        size = path.stat().st_size
        cut_off = f"{path} is cut off after {size:,} bytes: fetch it again"
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise ModelUnavailable(f"{path} is no GGUF file: `kcard llm list` names models to be had")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Header(data)
                values, parameters, last_tensor = header.read()
    except FileNotFoundError:
        raise ModelUnavailable(
            f"there is no file {path}: `kcard llm list` shows those that are here"
        ) from None
    except OSError as error:
        raise ModelUnavailable(f"{path} can't be read: {error.strerror or error}") from None
    except (struct.error, EOFError):
        raise ModelUnavailable(cut_off) from None
    except ValueError as error:
        raise ModelUnavailable(f"{path} is damaged: fetch it again ({error})") from None
    if size <= last_tensor:
        raise ModelUnavailable(cut_off)
    architecture = str(values.get("general.architecture", ""))
    tokens = values.get("tokenizer.ggml.tokens") or []
    types = values.get("tokenizer.ggml.token_type") or []
    steering = [token for token, kind in zip(tokens, types, strict=False) if kind == CONTROL_TOKEN and token]
    window = values.get(f"{architecture}.context_length")
    return GgufFile(
        path=path,
        size=size,
        architecture=architecture,
        name=str(values.get("general.name") or path.stem),
        licence=str(values.get("general.license") or ""),
        parameters=parameters,
        window=window if isinstance(window, int) else None,
        control_tokens=tuple(steering),
        has_chat_template="tokenizer.chat_template" in values,
        token_bytes=_token_bytes(architecture, values),
    )


def _token_bytes(architecture: str, values: dict[str, Any]) -> int:
    """Return the bytes of a token's keys and values in all layers; 0 if the header does not tell."""

    def number(key: str, otherwise: int) -> int:
        value = values.get(f"{architecture}.{key}", otherwise)
        return value if isinstance(value, int) else otherwise

    layers, heads = number("block_count", 0), number("attention.head_count", 1)
    length = number("embedding_length", 0) // max(heads, 1)
    pair = number("attention.key_length", length) + number("attention.value_length", length)
    by_layer = values.get(f"{architecture}.attention.head_count_kv")
    all_heads = (
        sum(by_layer) if isinstance(by_layer, list) else layers * number("attention.head_count_kv", heads)
    )
    return all_heads * pair * CACHE_BYTES


class _Header:
    """The bytes of a file, read from the first one on. Raises struct.error or EOFError where they end, ValueError for
    nonsense."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._place = data, len(MAGIC)

    def read(self) -> tuple[dict[str, Any], int, int]:
        """Return the values by key, the number of parameters, and the place of the last tensor."""
        version, tensors, entries = self._number("<I"), self._number("<Q"), self._number("<Q")
        if version not in VERSIONS:
            raise ValueError(f"version {version} of the format is unknown")
        if max(tensors, entries) > MAX_ITEMS:
            raise ValueError(f"{max(tensors, entries)} entries")
        values = {}
        for _ in range(entries):
            key = self._text()
            value = self._value(self._number("<I"), key != MERGES)
            values[key] = value
        parameters, last_offset = 0, 0
        for _ in range(tensors):
            self._text()
            shape = [self._number("<Q") for _ in range(self._count())]
            self._number("<I")  # its type
            parameters += math.prod(shape)
            last_offset = max(last_offset, self._number("<Q"))
        return values, parameters, self._place + last_offset

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._place)
        self._place += struct.calcsize(form)
        return value

    def _count(self, form: str = "<I") -> int:
        count: int = self._number(form)
        if count > MAX_ITEMS:
            raise ValueError(f"a list of {count}")
        return count

    def _text(self, is_wanted: bool = True) -> str:
        """Return a text, or skip it."""
        length = self._number("<Q")
        start = self._place
        self._place += length
        if length > MAX_TEXT_BYTES:
            raise ValueError(f"a text of {length} bytes")
        if self._place > len(self._data):
            raise EOFError
        return self._data[start : self._place].decode(errors="replace") if is_wanted else ""

    def _value(self, kind: int, is_wanted: bool, depth: int = 0) -> Any:
        if kind == TEXT:
            return self._text(is_wanted)
        if kind != LIST:
            if kind not in NUMBERS:
                raise ValueError(f"a value of the unknown type {kind}")
            return self._number(NUMBERS[kind])
        inner, count = self._number("<I"), self._count("<Q")
        if inner in NUMBERS:
            # All at once: the types and scores of a vocabulary are many.
            form = f"<{count}{NUMBERS[inner][1]}"
            numbers = list(struct.unpack_from(form, self._data, self._place))
            self._place += struct.calcsize(form)
            return numbers
        if depth == MAX_NESTED_LISTS:
            raise ValueError("lists within lists")
        return [self._value(inner, is_wanted, depth + 1) for _ in range(count)]
