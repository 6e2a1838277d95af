"""Options for large models: gradient checkpointing, micro-batches, number formats, optimizers, devices."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kcard.api.train import train as train_and_examine
from kcard.errors import MissingExtra, UsageError
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.loop import run
from kcard.training.optimizers import state_bytes
from kcard.training.options import TrainOptions, check
from kcard.training.train import train
from tests.training.bases import FACTS, make_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny OPT without dropout."""
    path = make_base(tmp_path_factory.mktemp("bases"), "opt")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"dropout": 0.0}))
    return str(path)


def weights(base: str, tmp_path: Path, execution: Execution, method: Any = "full") -> dict[str, torch.Tensor]:
    job = prepare(FACTS, Options(base, method, batch_size=8, epochs=2), execution=execution).job
    run(job, tmp_path / "checkpoint")
    return {name: weight.detach() for name, weight in job.modules["model"].named_parameters()}


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("other", [Execution("cpu", 3), Execution("cpu", 1, checkpointing=True)])
def test_micro_batches_and_checkpointing_train_the_same_weights(
    base: str, tmp_path: Path, method: Any, other: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.training.execution.bf16", lambda _: False)
    whole, parts = weights(base, tmp_path, Execution("cpu"), method), weights(base, tmp_path, other, method)
    for name, weight in whole.items():
        torch.testing.assert_close(weight, parts[name], rtol=1e-4, atol=1e-5, msg=name)


def test_a_card_has_the_dtype_it_was_trained_in(base: str, tmp_path: Path) -> None:
    path = tmp_path / "towns.txt"
    path.write_text("\n".join(FACTS))
    card = train(path, base=base, method="full", dtype="bfloat16", epochs=1, output=tmp_path / "card")
    assert card.manifest.training.hyperparameters["dtype"] == "bfloat16"
    assert {weight.dtype for weight in load_file(card.folder / "model.safetensors").values()} == {
        torch.bfloat16
    }


def test_an_optimizer_whose_package_is_missing_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        MissingExtra, match=r"optimizer adamw8bit needs bitsandbytes: pip install 'kcard\[8bit\]'"
    ):
        train("no such corpus", base="x", optimizer="adamw8bit")


@pytest.mark.parametrize(
    ("name", "used"), [("adamw8bit", "AdamW8bit"), ("paged-adamw8bit", "PagedAdamW8bit")]
)
def test_the_optimizer_is_that_of_bitsandbytes(
    base: str, monkeypatch: pytest.MonkeyPatch, name: Any, used: str
) -> None:
    def make_optimizer(weights: Any, **settings: Any) -> torch.optim.Optimizer:
        assert settings.pop("min_8bit_size") == 4096
        return torch.optim.AdamW(weights, **settings)

    module = ModuleType("bitsandbytes")
    module.optim = SimpleNamespace(**{used: make_optimizer})  # type: ignore[attr-defined]
    module.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "bitsandbytes", module)
    job = prepare(FACTS, Options(base, "full", optimizer=name), execution=Execution("cpu")).job
    assert job.optimizers[0].param_groups[0]["eps"] == 1e-6


def test_eight_bit_states_take_a_quarter() -> None:
    assert state_bytes("adamw", 1 << 20, 4) == 8 << 20
    assert 2 << 20 < state_bytes("adamw8bit", 1 << 20, 4) < 2.05 * (1 << 20)
    assert state_bytes("adamw8bit", 1000, 4) == 8000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        ({"device": "cuda:7"}, "device 'cuda:7', but . GPUs were found"),
        ({"micro_batch": 0}, "micro_batch 0 must be above 0"),
        ({"base": "embedded", "gradient_checkpointing": True}, "has no effect with base embedded"),
        ({"base": "embedded", "device": "cuda"}, "has no effect with base embedded"),
        ({"kind": "retrieval", "processes": 2}, "only for models"),
        ({"method": "full", "processes": 2, "optimizer": "adamw8bit"}, "use adamw or method lora"),
        ({"processes": 2, "device": "cuda:0"}, "one GPU for 2 processes"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train("no such corpus", **{"base": "x"} | options) if options.get("kind") is None else check(
            TrainOptions(**options)
        )


def test_the_exam_runs_where_training_ran(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []
    monkeypatch.setattr("kcard.api.exam.exam", lambda *_, device, **__: devices.append(device))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr("kcard.training.train.train", _card_trained_on_a_gpu(base, tmp_path))
    train_and_examine(tmp_path, base=base, kind="both", device="cuda:2")
    train_and_examine(tmp_path, base=base, kind="both")
    assert devices == ["cuda:2", "cuda"]


def _card_trained_on_a_gpu(base: str, tmp_path: Path) -> Any:
    """In place of training, which no test has a GPU for: a card that was trained on the CPU."""
    path = tmp_path / "towns.txt"
    path.write_text("\n".join(FACTS))
    card = train(path, base=base, device="cpu", epochs=0.5, output=tmp_path / "card")
    return lambda *_, **__: card
