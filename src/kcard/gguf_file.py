"""GGUF files: what their header tells of a model, without its weights, and whether all of them are there.

The package gguf would read them too, but takes seconds for the vocabulary of a model; these are milliseconds. A hub
checks uploads by the same header, so nothing in it is trusted: every count and length is bounded before it is used.
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
MAX_HEADER_BYTES = 1 << 26  # vocabularies of 262,144 tokens with their merges take 20 MB
MAX_ENTRIES = 1 << 16  # keys, or tensors; a damaged file names more
MAX_ITEMS = 1 << 24  # of a list
MAX_TEXT_BYTES = 1 << 24
MAX_NESTED_LISTS = 4
MAX_DIMENSIONS = 4  # of a tensor, in llama.cpp
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
# The numbers and the bytes of a block, by type of tensor (ggml_type); types that are newer have none here.
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1),
    25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66),
    39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
ALIGNMENT, DEFAULT_ALIGNMENT = "general.alignment", 32  # bytes
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
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise ModelUnavailable(f"{path} is no GGUF file: `kcard llm list` names models to be had")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = read_header(data, size)
    except FileNotFoundError:
        raise ModelUnavailable(
            f"there is no file {path}: `kcard llm list` shows those that are here"
        ) from None
    except OSError as error:
        raise ModelUnavailable(f"{path} can't be read: {error.strerror or error}") from None
    except EOFError:
        raise ModelUnavailable(f"{path} is cut off after {size:,} bytes: fetch it again") from None
    except ValueError as error:
        raise ModelUnavailable(f"{path} is damaged: fetch it again ({error})") from None
    values = header.values
    architecture = str(values.get("general.architecture", ""))
    tokens, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
    steering = []
    if isinstance(tokens, list) and isinstance(types, list):
        for token, kind in zip(tokens, types, strict=False):
            if kind == CONTROL_TOKEN and isinstance(token, str) and token:
                steering.append(token)
    window = values.get(f"{architecture}.context_length")
    return GgufFile(
        path=path,
        size=size,
        architecture=architecture,
        name=str(values.get("general.name") or path.stem),
        licence=str(values.get("general.license") or ""),
        parameters=header.parameters,
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
    all_heads = layers * number("attention.head_count_kv", heads)
    if isinstance(by_layer, list):
        all_heads = sum(count for count in by_layer if isinstance(count, int))
    return all_heads * pair * CACHE_BYTES


@dataclass(frozen=True)
class GgufHeader:
    """The values of a header by key, and the numbers in all tensors."""

    values: dict[str, Any]
    parameters: int


def read_header(data: bytes | mmap.mmap, size: int, *, with_lists: bool = True) -> GgufHeader:
    """Read the header of a file of `size` bytes, and check that all of its tensors are in the file.

    data        the file, or its first MAX_HEADER_BYTES; that they begin with MAGIC is for the caller to check
    with_lists  whether to keep lists, which take up to ten times the memory of their bytes; others are empty

    Raises EOFError if the header or a tensor reaches beyond the end of the file, ValueError for nonsense.
    """
    source = _Source(data, size)
    version, tensors, entries = source.number("<I"), source.number("<Q"), source.number("<Q")
    if version not in VERSIONS:
        raise ValueError(f"version {version} of the format is unknown")
    if max(tensors, entries) > MAX_ENTRIES:
        raise ValueError(f"{max(tensors, entries)} entries")
    # The values.
    values = {}
    for _ in range(entries):
        key = source.text()
        values[key] = source.value(source.number("<I"), with_lists and key != MERGES)
    # The tensors: where the last one ends, counted from the first byte of the weights.
    parameters, end = 0, 0
    for _ in range(tensors):
        source.text(is_wanted=False)
        shape = [source.number("<Q") for _ in range(source.count("<I", MAX_DIMENSIONS))]
        block, block_bytes = BLOCKS.get(source.number("<I"), (1, 0))
        numbers = math.prod(shape)
        parameters += numbers
        end = max(end, source.number("<Q") + -(-numbers // block) * block_bytes)
    # The weights begin at the next multiple of the alignment.
    alignment = values.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"an alignment of {alignment}")
    if tensors and -(-source.place // alignment) * alignment + end > size:
        raise EOFError
    return GgufHeader(values, parameters)


class _Source:
    """The bytes of a header, read up to `place`. Raises EOFError where the file ends, ValueError for nonsense."""

    def __init__(self, data: bytes | mmap.mmap, size: int) -> None:
        self._data, self._size, self.place = data, size, len(MAGIC)

    def skip(self, length: int) -> int:
        """Skip that many bytes; return where they begin."""
        start = self.place
        self.place += length
        if self.place > self._size:
            raise EOFError
        if self.place > MAX_HEADER_BYTES:
            raise ValueError(f"a header of more than {MAX_HEADER_BYTES} bytes")
        return start

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self.skip(struct.calcsize(form)))
        return value

    def count(self, form: str, largest: int) -> int:
        count: int = self.number(form)
        if count > largest:
            raise ValueError(f"a list of {count}")
        return count

    def text(self, is_wanted: bool = True) -> str:
        """Return a text, or skip it."""
        length = self.number("<Q")
        if length > MAX_TEXT_BYTES:
            raise ValueError(f"a text of {length} bytes")
        start = self.skip(length)
        return self._data[start : self.place].decode(errors="replace") if is_wanted else ""

    def value(self, kind: int, is_wanted: bool, depth: int = 0) -> Any:
        """Return a value of that type; of a list that is not wanted, an empty one."""
        if kind == TEXT:
            return self.text(is_wanted or depth == 0)
        if kind != LIST:
            if kind not in NUMBERS:
                raise ValueError(f"a value of the unknown type {kind}")
            return self.number(NUMBERS[kind])
        inner, count = self.number("<I"), self.count("<Q", MAX_ITEMS)
        if inner in NUMBERS:
            # All at once: the types and scores of a vocabulary are many.
            form = f"<{count}{NUMBERS[inner][1]}"
            start = self.skip(struct.calcsize(form))
            return list(struct.unpack_from(form, self._data, start)) if is_wanted else []
        if depth == MAX_NESTED_LISTS:
            raise ValueError("lists within lists")
        items = []
        for _ in range(count):
            item = self.value(inner, is_wanted, depth + 1)
            if is_wanted:
                items.append(item)
        return items
