"""Small GGUF files, made for tests: a header without weights, or with a tensor."""

import struct
from pathlib import Path

TEXT, NUMBER = 8, 4  # types of values


def write_gguf(path: Path, values: dict[str, str | int], version: int = 3) -> Path:
    """Write a file with these values and no tensor; llama.cpp reads it, and loads nothing."""
    data = b"GGUF" + struct.pack("<IQQ", version, 0, len(values))
    for key, value in values.items():
        data += text(key)
        if isinstance(value, str):
            data += struct.pack("<I", TEXT) + text(value)
        else:
            data += struct.pack("<II", NUMBER, value)
    path.write_bytes(data + bytes(64))
    return path


def gguf_with_tensor(numbers: int = 64, *, offset: int = 0, kind: int = 0, alignment: int = 32) -> bytes:
    """Return a file with one tensor of that many numbers, four bytes each, at that offset of its weights."""
    data = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    data += text("general.architecture") + struct.pack("<I", TEXT) + text("llama")
    data += text("general.alignment") + struct.pack("<II", NUMBER, alignment)
    data += text("output.weight") + struct.pack("<IQIQ", 1, numbers, kind, offset)
    return data + bytes(-len(data) % (alignment or 1) + 4 * numbers)


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()
