"""Whole programs, with HF_ENDPOINT set, against a running hub: transformers, and the hf command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.shared_hub import Shared, shared_hub

CARD = b"---\nlicense: mit\ntags: [tiny]\n---\n# Tiny\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/plain")
        shared.put("bob/plain", {"config.json": b"{}", "README.md": CARD})
        yield shared


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model with a tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


LOAD = """
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained({name!r})
tokenizer = AutoTokenizer.from_pretrained({name!r})
print(model.num_parameters(), tokenizer("a b").input_ids)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "who"), [("bob/tiny", None), ("bob/hidden", "bob:read")])
def test_transformers_loads_a_model_and_its_tokenizer(
    shared: Shared, tiny: dict[str, bytes], name: str, who: str | None
) -> None:
    shared.create(name, private=who is not None)
    shared.put(name, tiny)
    parameters, _, ids = shared.run(LOAD.format(name=name), who).strip().partition(" ")
    assert int(parameters) > 0
    assert json.loads(ids) == [1, 2]


def test_the_hf_command_lists_shows_and_downloads(shared: Shared, tmp_path: Path) -> None:
    listed = shared.start(["hf", "models", "ls", "--search", "plain", "--format", "json"])
    assert [each["id"] for each in json.loads(listed)] == ["bob/plain"]
    assert '"mit"' in shared.start(["hf", "models", "info", "bob/plain", "--format", "json"])
    assert "bob" in shared.start(["hf", "auth", "whoami"], "bob")
    shared.start(["hf", "download", "bob/plain", "config.json", "--local-dir", str(tmp_path)])
    assert (tmp_path / "config.json").read_bytes() == b"{}"


def test_a_token_of_another_hub_is_refused(shared: Shared) -> None:
    code = "from huggingface_hub import HfApi; HfApi().model_info('bob/plain')"
    assert "401" in shared.run(code, fails=True, HF_TOKEN="hf_" + "x" * 34)
