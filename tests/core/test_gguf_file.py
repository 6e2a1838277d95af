"""Headers of GGUF files: what they tell, and what is wrong with a file, in one line."""

import struct
from pathlib import Path

import pytest

from kcard.errors import ModelUnavailable
from kcard.gguf_file import read_gguf
from tests.llms.gguf_files import text, write_gguf

LLAMA: dict[str, str | int] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 2048,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def test_a_header_tells_what_a_model_is_and_what_its_window_costs(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tmp_path / "tiny.gguf", LLAMA))
    assert (file.architecture, file.name, file.window, file.has_chat_template) == (
        "llama",
        "Tiny",
        2048,
        False,
    )
    assert file.token_bytes == 2 * 2 * (16 + 16) * 2  # layers, heads, a key and a value, bytes of a number


def test_values_of_other_types_than_usual_are_taken_for_missing(tmp_path: Path) -> None:
    odd: dict[str, str | int] = {
        "tokenizer.ggml.tokens": 5,
        "tokenizer.ggml.token_type": "x",
        "llama.block_count": "x",
    }
    file = read_gguf(write_gguf(tmp_path / "odd.gguf", {"general.architecture": "llama", **odd}))
    assert (file.control_tokens, file.token_bytes, file.window) == ((), 0, None)


def test_a_real_model_tells_its_control_tokens_and_that_it_is_cut_off(smollm: Path, tmp_path: Path) -> None:
    file = read_gguf(smollm)
    assert file.parameters == 134_515_008
    assert file.has_chat_template
    assert {"<|im_start|>", "<|im_end|>"} <= set(file.control_tokens)
    for share in (0.01, 0.5):
        part = smollm.read_bytes()[: int(smollm.stat().st_size * share)]
        (tmp_path / "part.gguf").write_bytes(part)
        with pytest.raises(ModelUnavailable, match="is cut off after"):
            read_gguf(tmp_path / "part.gguf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"", "is no GGUF file"),
        (b"hello there, this is a text", "is no GGUF file"),
        (b"GGUF", "is cut off after 4 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9 of the format is unknown"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62), f"{2**62} entries"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 77), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**40), f"a text of {2**40} bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 4, 2**50), "a list of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 9, 1) * 9, "is damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelUnavailable, match=message) as error:
        read_gguf(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
