"""GGUF files: which converters are taken, and that what they wrote is looked at before it is handed over."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.export import PeftAdapter
from kcard.cards.gguf import Converter, architecture, check_adapter, check_model
from kcard.errors import CardError, MissingExtra, UsageError

ADAPTER = PeftAdapter(rank=4, alpha=8.0, rslora=False, pairs=2, extras=())


def converters(folder: Path, code: str = "") -> Path:
    folder.mkdir()
    for name in ("convert_hf_to_gguf.py", "convert_lora_to_gguf.py"):
        (folder / name).write_text(code, encoding="utf-8")
    return folder


def test_the_converter_is_a_file_or_the_folder_of_both(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    folder = converters(tmp_path / "llama.cpp")
    assert Converter(folder).folder == Converter(folder / "convert_hf_to_gguf.py").folder == folder


def test_without_a_converter_the_message_says_where_it_is_from(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--converter path/to/convert_hf_to_gguf\.py"):
        Converter(None)
    with pytest.raises(UsageError, match=r"has no convert_hf_to_gguf\.py and no convert_lora_to_gguf\.py"):
        Converter(tmp_path)


def test_the_extra_is_named_before_anything_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"kcard\[gguf\]"):
        Converter(converters(tmp_path / "llama.cpp"))


def test_what_the_converter_said_last_is_in_the_error(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    code = "import sys\nprint('model FancyLM is not supported', file=sys.stderr)\nsys.exit(3)\n"
    tool = Converter(converters(tmp_path / "llama.cpp", code))
    with pytest.raises(CardError, match=r"code 3 on .*model: model FancyLM is not supported"):
        tool.model(tmp_path / "model", tmp_path / "model.gguf", small=True)


def written(path: Path, alpha: float = 8.0, rank: int = 4, pairs: int = 2, kind: str = "adapter") -> Path:
    """An adapter as llama.cpp's converter writes it."""
    gguf: Any = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for number in range(pairs):
        writer.add_tensor(f"blk.{number}.attn_q.weight.lora_a", np.ones((rank, 32), dtype=np.float32))
        writer.add_tensor(f"blk.{number}.attn_q.weight.lora_b", np.ones((32, rank), dtype=np.float32))
    return closed(writer, path)


def model(path: Path, name: str = "llama", tokens: int = 3, bos: bool = True, tensors: int = 1) -> Path:
    gguf: Any = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(path, name)
    writer.add_token_list([f"t{i}" for i in range(tokens)])
    writer.add_add_bos_token(bos)
    for number in range(tensors):
        writer.add_tensor(f"t{number}", np.ones((2, 2), dtype=np.float32))
    return closed(writer, path)


def closed(writer: Any, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_adapter_with_all_pairs_rank_and_alpha_passes(tmp_path: Path) -> None:
    check_adapter(written(tmp_path / "a.gguf"), ADAPTER, model(tmp_path / "base.gguf"))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"alpha": 4.0}, r"alpha is 4\.0, not 8\.0"),
        ({"rank": 8}, "rank is 8, not 4"),
        ({"pairs": 1}, "pairs is 1, not 2"),
        ({"kind": "model"}, "type is 'model', not 'adapter'"),
    ],
)
def test_an_adapter_that_is_not_the_cards_is_refused(
    tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    with pytest.raises(CardError, match=message):
        check_adapter(written(tmp_path / "a.gguf", **other), ADAPTER, model(tmp_path / "base.gguf"))


def test_an_adapter_for_another_architecture_than_the_base_is_refused(tmp_path: Path) -> None:
    base = model(tmp_path / "base.gguf", "qwen2")
    assert architecture(base) == "qwen2"
    with pytest.raises(CardError, match="architecture is 'llama', not 'qwen2'"):
        check_adapter(written(tmp_path / "a.gguf"), ADAPTER, base)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tokens": 2}, "tokens is 2, not 3"),
        ({"bos": False}, "bos token is False"),
        ({"tensors": 0}, "tensors is 0"),
    ],
)
def test_a_model_without_its_tokens_or_weights_is_refused(
    tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    check_model(model(tmp_path / "a.gguf"), 3, True)
    with pytest.raises(CardError, match=message):
        check_model(model(tmp_path / "b.gguf", **other), 3, True)


def test_a_file_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "base.gguf").write_bytes(b"nothing at all, but long enough to be read")
    with pytest.raises(UsageError, match=r"base\.gguf is not a GGUF file"):
        architecture(tmp_path / "base.gguf")
