"""What training would take in memory and time, told before it begins."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import CTRLConfig
from typer.testing import CliRunner

from kcard.cli.main import app
from kcard.errors import UsageError
from kcard.events import Event
from kcard.training import memory
from kcard.training.base_model import WeightSource
from kcard.training.execution import Execution
from kcard.training.finetune import Options
from kcard.training.memory import MemoryEstimate, estimate_memory, remedy_for
from kcard.training.train import train
from tests.training.bases import FACTS, make_base

GB = 10**9
PARAMETERS = 1_315_758_080  # of OPT-1.3B


@pytest.fixture(scope="module")
def opt13(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shape of OPT-1.3B, without weights."""
    from transformers import OPTConfig

    folder = tmp_path_factory.mktemp("opt")
    OPTConfig(
        vocab_size=50272, hidden_size=2048, word_embed_proj_dim=2048, ffn_dim=8192, num_hidden_layers=24,
        num_attention_heads=32, max_position_embeddings=2048,
    ).save_pretrained(folder)  # fmt: skip
    return str(folder)


@cache
def of(base: str, execution: Execution = Execution("cpu"), **arguments: Any) -> MemoryEstimate:  # noqa: B008
    shape: dict[str, Any] = {"method": "full", "objective": "clm", "block": 128}
    options = Options(base, **shape | arguments)
    return estimate_memory(options, execution, WeightSource(), "cpu")


@pytest.mark.slow
def test_weights_gradients_and_states_are_counted_by_their_bytes(opt13: str) -> None:
    plain = of(opt13)
    assert (plain.weights, plain.gradients, plain.states) == (4 * PARAMETERS, 4 * PARAMETERS, 8 * PARAMETERS)
    small = of(opt13, optimizer="adamw8bit", dtype="bfloat16")
    assert (small.weights, small.gradients) == (2 * PARAMETERS, 2 * PARAMETERS)
    assert 2 * PARAMETERS < small.states < 2.1 * PARAMETERS
    adapter = of(opt13, method="lora")
    assert 4 * PARAMETERS < adapter.weights < 4.1 * PARAMETERS
    assert adapter.gradients < 0.02 * PARAMETERS * 4
    divided = of(opt13, Execution("cpu", processes=4))
    assert (divided.weights, divided.states) == (PARAMETERS, 2 * PARAMETERS)


def test_whole_opt_13b_fits_on_24_gb_with_8_bit_states_and_checkpointing_alone(opt13: str) -> None:
    free = 24 * GB
    tight = Execution("cpu", micro_batch=8, checkpointing=True)
    assert of(opt13).total > free
    assert of(opt13, optimizer="adamw8bit").total < free
    assert of(opt13, tight, optimizer="adamw8bit").total < 17 * GB


def test_a_model_that_drops_whole_layers_is_estimated_too(tmp_path: Path) -> None:
    from transformers import OPTConfig

    for layerdrop in (0.0, 0.1):
        OPTConfig(
            vocab_size=320, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=256, layerdrop=layerdrop,
        ).save_pretrained(tmp_path / str(layerdrop))  # fmt: skip
    assert of(str(tmp_path / "0.1")) == of(str(tmp_path / "0.0"))


def test_checkpointing_and_micro_batches_take_less(opt13: str) -> None:
    plain = of(opt13).activations
    assert of(opt13, Execution("cpu", checkpointing=True)).activations < plain / 3
    assert of(opt13, Execution("cpu", micro_batch=8)).activations < plain / 2


@pytest.mark.slow
def test_the_remedy_is_what_would_fit(opt13: str) -> None:
    options = Options(opt13, "full", "clm", block=128)

    def remedy(free: int) -> str:
        return remedy_for(options, Execution("cpu"), WeightSource(), "cpu", free)

    assert remedy(25 * GB) == "--gradient-checkpointing"
    assert remedy(17 * GB) == "--gradient-checkpointing --micro-batch 1 --optimizer adamw8bit"
    assert remedy(4 * GB).endswith("--dtype bfloat16 --method lora")
    assert remedy(GB) == ""


def test_a_remedy_is_possible_for_the_model_and_for_a_card_that_is_trained_further(tmp_path: Path) -> None:
    base = tmp_path / "ctrl"  # which can't compute activations again
    CTRLConfig(
        vocab_size=100, n_positions=64, n_embd=512, dff=1024, n_layer=2, n_head=2
    ).save_pretrained(base)  # fmt: skip
    options, alone = Options(str(base), "full"), Execution("cpu")
    needed = estimate_memory(options, alone, WeightSource(), "cpu").total
    assert remedy_for(options, alone, WeightSource(), "cpu", needed - 1) == "--micro-batch 1"
    lora = replace(options, method="lora", dtype="bfloat16", optimizer="adamw8bit")
    free = estimate_memory(lora, replace(alone, micro_batch=1), WeightSource(), "cpu").total
    assert remedy_for(options, alone, WeightSource(), "cpu", free).endswith("--method lora")
    assert remedy_for(options, alone, WeightSource(base), "cpu", free) == ""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    corpus = tmp_path / "towns.txt"
    corpus.write_text("\n".join(FACTS))
    return {"corpus": corpus, "base": str(make_base(tmp_path, "opt")), "device": "cpu", "epochs": 20}


def test_what_can_not_fit_is_refused_before_the_model_is_loaded(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda *_: 1000)
    monkeypatch.setattr("kcard.training.finetune.load_model", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(
        UsageError, match=r"takes about \d+ MB of memory, and cpu has 0 MB free: choose a smaller"
    ):
        train(**options)


def test_memory_is_told_before_training_begins(options: dict[str, Any], tmp_path: Path) -> None:
    events: list[Event] = []
    train(**options | {"epochs": 1}, output=tmp_path / "card", on_event=events.append)
    notes = [event.message for event in events if event.is_note]
    assert any("of memory on cpu, where" in text and "optimizer states" in text for text in notes)


def test_the_command_line_estimates_without_training(options: dict[str, Any], tmp_path: Path) -> None:
    arguments = ["train", "--estimate", "--output", str(tmp_path / "card")]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert data["steps"] == 80
    assert data["seconds"] > 0
    assert data["memory"]["total"] > data["memory"]["weights"] > 0
    assert "80 steps" in CliRunner().invoke(app, arguments).stdout
    assert not (tmp_path / "card").exists()


def test_a_model_that_can_not_be_estimated_is_trained_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def branching(*_: Any) -> tuple[int, int]:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    monkeypatch.setattr(memory, "_activation_bytes", branching)
    base, events = make_base(tmp_path, "llama"), list[Event]()
    options = Options(str(base))
    assert memory.check_memory(options, Execution("cpu"), WeightSource(), "cpu", events.append) is None
    (event,) = events
    assert event.message.startswith("how much memory training takes is unknown for this model: Tensor.item()")
