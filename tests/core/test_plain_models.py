"""The embedded models as plain arithmetic give what transformers gives, and leave it unloaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kcard import encoder, minilm, opt
from kcard.llms import memory
from kcard.tokenizer import PlainTokenizer

TEXTS = [
    "Who won the senate race in Ohio in 2022?",
    "",
    "Ünïcödé 北京 naïve café — “quotes” 😀 x\u200by\tz\n",
    "[CLS] hello [MASK] [SEP]",
    "İstanbul ﬁne " + "a" * 150,
]


def test_words_are_cut_as_by_transformers() -> None:
    theirs = encoder.tokenizer()(TEXTS, add_special_tokens=False, return_offsets_mapping=True)
    found = encoder.words().encodings(TEXTS)
    assert [one.ids for one in found] == theirs["input_ids"]
    assert [one.offsets for one in found] == theirs["offset_mapping"]
    assert encoder.words().count(TEXTS[0]) == len(theirs["input_ids"][0])


@pytest.mark.parametrize("count", [1, 5])
def test_states_are_those_of_transformers(count: int) -> None:
    rows = [[minilm.CLS, *ids, minilm.SEP] for ids in encoder.words().ids(TEXTS[:count])]
    ids, mask = minilm.padded(rows, 64)
    types = torch.zeros_like(ids)
    types[:, 4:] = 1
    with torch.inference_mode():
        found = encoder.network()(ids, mask, types).last_hidden_state
        theirs = encoder.model()(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(found[mask.bool()], theirs[mask.bool()], rtol=0, atol=2e-6)


def test_a_merged_adapter_leaves_the_shared_network_as_it_is() -> None:
    name = "encoder.layer.0.attention.self.query"
    before = encoder.network().weights[f"{name}.weight"].clone()
    adapter = {
        f"base_model.model.{name}.lora_A.weight": torch.ones(2, 384),
        f"base_model.model.{name}.lora_B.weight": torch.ones(384, 2),
    }
    merged = encoder.network().merged(adapter, 0.5)
    assert torch.equal(encoder.network().weights[f"{name}.weight"], before)
    torch.testing.assert_close(merged.weights[f"{name}.weight"], before + 1)


@pytest.fixture(scope="module")
def theirs() -> memory.Memory:
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.quiet import quiet_loading

    ours = memory.shared()
    with quiet_loading():
        model: Any = OPTForCausalLM.from_pretrained(memory.WEIGHTS, dtype=torch.float32).eval()
        tokenizer = PreTrainedTokenizerFast.from_pretrained(memory.WEIGHTS)
    return memory.Memory(model, tokenizer, ours.slope, ours.threshold)


@pytest.mark.parametrize("question", ["What is the capital of France?", *TEXTS[::2], "Who wrote Emma? " * 40])
def test_the_memory_recalls_what_it_recalls_in_transformers(theirs: memory.Memory, question: str) -> None:
    found, expected = memory.shared().recall(question), theirs.recall(question)
    assert found.answer == expected.answer
    assert found.least_log_probability == pytest.approx(expected.least_log_probability, abs=1e-4)
    said = [m.log_probability(question, "Paris, it is") for m in (memory.shared(), theirs)]
    assert said[0] == pytest.approx(said[1], abs=1e-4)


def test_its_tokens_are_those_of_transformers(theirs: memory.Memory) -> None:
    ours = PlainTokenizer.read(memory.WEIGHTS)
    assert ours is not None
    for text in TEXTS:
        assert ours(text, False)["input_ids"] == theirs.tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [1, *ours(TEXTS[0], False)["input_ids"], 2]
    assert ours.decode(ids, skip_special_tokens=True) == theirs.tokenizer.decode(
        ids, skip_special_tokens=True
    )
    for name in (memory.UNKNOWN, "</s>"):
        assert ours.convert_tokens_to_ids(name) == theirs.tokenizer.convert_tokens_to_ids(name)


def test_another_kind_of_opt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "opt", "activation_function": "gelu"}')
    with pytest.raises(ValueError, match="holds no OPT as kcard trains it"):
        opt.OPTNetwork.read(tmp_path)


def test_an_answer_without_a_model_card_loads_no_transformers(tmp_path: Path) -> None:
    (tmp_path / "moons.txt").write_text("Giovanni Cassini discovered the moon Tethys.")
    code = """
import sys, kcard
kcard.publish(kcard.train("moons.txt", kind="retrieval", description="moons and their discoverers").folder)
answer = kcard.ask("Who discovered the moon Tethys?", gate="always", mode="bottom-up")
assert answer.answer == "Giovanni Cassini", answer
print(*sorted(name for name in ("torch", "transformers", "peft", "sentence_transformers") if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["torch"]


def trained(folder: Path, **changed: Any) -> Path:
    """A random OPT as embedded training writes it, with its tokenizer."""
    from transformers import OPTConfig, OPTForCausalLM

    from kcard.training.tokenizer import train_tokenizer

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

    from kcard.cards.lm import weights
    from kcard.cards.lm.engine import families, trees, whole
    from kcard.quiet import quiet_loading

    ours = families.decoder(weights.of_folder(trained(tmp_path), "cpu"))
    with quiet_loading():
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = families.decoder(weights.of_model(theirs))
    assert whole.architecture_signature(ours) == whole.architecture_signature(expected)
    assert trees.size(ours) == trees.size(expected)
    assert torch.equal(ours.embed.table, expected.embed.table)
    for layer, other in zip(ours.layers, expected.layers, strict=True):
        assert torch.equal(layer.qkv.weight, other.qkv.weight)
        assert torch.equal(layer.mlp.down.weight, other.mlp.down.weight)
        assert layer.qkv.parts == other.qkv.parts
        assert layer.attention_norm.eps == other.attention_norm.eps
    assert (ours.shape, ours.longest) == (expected.shape, expected.longest)


def test_an_embedded_card_is_read_without_slow_imports(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from kcard.cards.lm import weights
from kcard.cards.lm.engine import families
families.decoder(weights.of_folder(Path(sys.argv[1]), "cpu"))
print(*sorted(name for name in ("torch", "torch._dynamo", "transformers") if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(trained(tmp_path))], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["torch"]


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    from kcard.cards.lm import weights

    config = trained(tmp_path) / "config.json"
    config.write_text(config.read_text().replace('"ffn_dim": 64', '"ffn_dim": 65'))
    with pytest.raises(ValueError, match=r"layers.0.fc1.weight is \(64, 32\), but must be \(65, 32\)"):
        weights.of_folder(tmp_path, "cpu")


def test_what_is_no_embedded_card_is_left_to_transformers(tmp_path: Path) -> None:
    from kcard.cards.lm import weights

    assert weights.embedded(trained(tmp_path, do_layer_norm_before=False), "cpu") is None


def test_a_tokenizer_that_is_more_than_its_file_is_left_to_transformers(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    assert PlainTokenizer.read(folder) is not None
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"add_bos_token": true, ', 1))
    assert PlainTokenizer.read(folder) is None
