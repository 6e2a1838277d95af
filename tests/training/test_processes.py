"""Several processes, started by accelerate or torchrun, train the model of one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from kcard.cards.card import Card
from kcard.errors import TrainingInterrupted
from kcard.events import ignore
from kcard.training.train import train
from tests.training.bases import make_base
from tests.training.interruptions import stop_at_estimate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float32"), pytest.mark.numeric]

TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2")
ACCELERATE = (
    "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, which is drawn by each process for itself."""
    return make_base(tmp_path_factory.mktemp("bases"), "opt", dropout=0.0)


def arguments(base: Path, **options: Any) -> dict[str, Any]:
    return {
        "base": base, "name": "card", "kind": "model", "batch_size": 8, "micro_batch": 2, "epochs": 4, "device": "cpu",
    } | options  # fmt: skip


def trained(corpus: Path, base: Path, output: Path, report: Any = ignore, **options: Any) -> Card:
    chosen = arguments(base, **options)
    return train(corpus, output=output, on_event=report, **chosen | {"base": str(base)})


def launched(
    launcher: tuple[str, ...], corpus: Path, base: Path, output: Path, *flags: str, **options: Any
) -> Card:
    command = [sys.executable, "-m", *launcher, "-m", "kcard", "train", "--corpus", str(corpus)]
    for name, value in arguments(base, output=output, **options).items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    ended = subprocess.run([*command, "--no-exam", *flags], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [str(output)]
    return Card.open(output)


def compare(one: Card, other: Card) -> None:
    file = "adapter_model.safetensors" if one.manifest.method == "lora" else "model.safetensors"
    weights, others = load_file(one.folder / file), load_file(other.folder / file)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert weight.dtype == others[name].dtype
        assert (weight - others[name]).abs().max() < 2e-5, name


@pytest.mark.parametrize(("method", "launcher"), [("full", ACCELERATE), ("lora", TORCHRUN)])
def test_two_processes_train_the_weights_of_one(
    corpus: Path, base: Path, tmp_path: Path, method: str, launcher: tuple[str, ...]
) -> None:
    alone = trained(corpus, base, tmp_path / "alone", method=method)
    both = launched(launcher, corpus, base, tmp_path / "both", method=method)
    compare(alone, both)
    record, other = alone.manifest.training, both.manifest.training
    assert record.tokens == other.tokens
    assert record.hyperparameters["final_loss"] == pytest.approx(
        other.hyperparameters["final_loss"], abs=1e-3
    )
    assert other.hyperparameters["processes"] == 2
    assert (alone.folder / "config.json").exists() == (both.folder / "config.json").exists()
    # Weights that are divided among the processes are not probed.
    assert ("probe_recall" in other.hyperparameters) == (method == "lora")
    if method == "full":
        assert '"OPTForCausalLM"' in (both.folder / "config.json").read_text()


def test_a_checkpoint_goes_on_with_another_number_of_processes(
    corpus: Path, base: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": "full", "epochs": 7.0}
    whole = trained(corpus, base, tmp_path / "whole", **options)
    with pytest.raises(TrainingInterrupted, match="stopped after 20 of 28 steps"):
        trained(corpus, base, tmp_path / "parts", stop_at_estimate, **options)
    compare(whole, launched(TORCHRUN, corpus, base, tmp_path / "parts", "--resume", **options))
