"""What training a base takes in memory, told before it begins."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.training import estimates
from kcard.training.base_model import WeightSource
from kcard.training.estimates import MemoryEstimate, check_memory, estimate_memory
from kcard.training.execution import Execution
from kcard.training.finetune import Options
from kcard.training.train import train
from tests.command import Kcard
from tests.fakes import notes_to
from tests.training.bases import make_base

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


@pytest.fixture(autouse=True)
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "bf16", lambda _: True)


def of(base: str, execution: Execution = Execution("cpu"), **arguments: Any) -> MemoryEstimate:  # noqa: B008
    shape: dict[str, Any] = {"method": "full", "objective": "clm", "block": 128}
    return estimate_memory(Options(base, **shape | arguments), execution, WeightSource(), "cpu")


def test_weights_gradients_and_states_are_counted_by_their_bytes(opt13: str) -> None:
    plain = of(opt13)
    assert (plain.weights, plain.gradients, plain.states) == (4 * PARAMETERS, 4 * PARAMETERS, 8 * PARAMETERS)
    small = of(opt13, optimizer="adamw8bit", dtype="bfloat16")
    assert (small.weights, small.gradients, small.states) == (2 * PARAMETERS,) * 3
    adapter = of(opt13, method="lora")
    assert 4 * PARAMETERS < adapter.weights < 4.1 * PARAMETERS
    assert adapter.gradients < 0.02 * PARAMETERS * 4
    divided = of(opt13, Execution("cpu", processes=4))
    assert (divided.weights, divided.states) == (PARAMETERS, 2 * PARAMETERS)


# GB that a GPU took (NVIDIA H200, docs/training.md).
@pytest.mark.parametrize(
    ("execution", "options", "taken"),
    [
        (Execution("cpu"), {}, 27.1),
        (Execution("cpu", checkpointing=True), {}, 21.6),
        (Execution("cpu", checkpointing=True), {"dtype": "bfloat16"}, 11.0),
    ],
)
def test_an_estimate_is_near_what_was_measured(
    opt13: str, execution: Execution, options: dict[str, Any], taken: float
) -> None:
    assert 0.9 < of(opt13, execution, **options).total / GB / taken < 1.2


def test_checkpointing_and_micro_batches_take_less(opt13: str) -> None:
    plain = of(opt13).activations
    assert of(opt13, Execution("cpu", checkpointing=True)).activations < 0.6 * plain
    small = of(opt13, Execution("cpu", micro_batch=8))
    assert small.activations < 0.6 * plain
    assert small.is_accumulated


def test_what_may_not_fit_is_said_and_what_can_not_is_refused_with_what_takes_less(
    opt13: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(opt13, "full", "clm", block=128, optimizer="adamw8bit")
    needed = estimate_memory(options, Execution("cpu"), WeightSource(), "cpu").total
    ways = "--gradient-checkpointing, --micro-batch 1, --dtype bfloat16, --method lora, a smaller base"
    remedy = f"what takes less: {ways}"
    messages: list[str] = []
    monkeypatch.setattr(estimates, "free_memory", lambda *_: int(needed / 1.1))
    check_memory(options, Execution("cpu"), WeightSource(), "cpu", notes_to(messages))
    assert messages[-1] == f"this may not fit; {remedy}"
    monkeypatch.setattr(estimates, "free_memory", lambda *_: int(needed / 1.3))
    with pytest.raises(UsageError, match=rf"takes about [\d.]+ GB of memory, .* GB free; {remedy}"):
        check_memory(options, Execution("cpu"), WeightSource(), "cpu", notes_to(messages))


@pytest.fixture
def options(tmp_path: Path, corpus: Path) -> dict[str, Any]:
    return {"corpus": corpus, "base": str(make_base(tmp_path, "opt")), "device": "cpu", "epochs": 20}


def test_what_can_not_fit_is_refused_before_the_model_is_loaded(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "free_memory", lambda *_: 1000)
    monkeypatch.setattr("kcard.training.finetune.load_model", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(UsageError, match=r"takes about \d+ MB of memory, and cpu has 0 MB free"):
        train(**options)


def test_the_command_line_estimates_without_training(
    options: dict[str, Any], tmp_path: Path, kcard: Kcard
) -> None:
    arguments = ["train", "--estimate", "--output", str(tmp_path / "card")]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    data = json.loads(kcard(*arguments, "--json").out)
    assert data["steps"] == 80
    assert data["seconds"] > 0
    assert data["memory"]["total"] > data["memory"]["weights"] > 0
    text = kcard(*arguments).out
    assert "80 steps" in text
    assert "of memory on cpu, where" in text
    assert not (tmp_path / "card").exists()
