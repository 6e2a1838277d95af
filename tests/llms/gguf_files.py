"""Small GGUF files, made for tests: a header without weights."""

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


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()
