"""Several processes train one model: the weights of one, a checkpoint that goes on, and clear ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from safetensors.torch import load_file

from kcard.cards.card import Card
from kcard.errors import TrainingInterrupted
from kcard.events import Event, ignore, note
from kcard.manifest import Base
from kcard.training import loop, workers
from kcard.training.base_model import WeightSource
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.train import train
from tests.training.bases import FACTS, make_base

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float32"), pytest.mark.numeric]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, which is drawn by each process for itself."""
    path = make_base(tmp_path_factory.mktemp("bases"), "opt")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"dropout": 0.0}))
    return path


def trained(corpus: Path, base: Path, output: str, report: Any = ignore, **arguments: Any) -> Card:
    options: dict[str, Any] = {
        "base": str(base),
        "batch_size": 8,
        "micro_batch": 2,
        "epochs": 4,
        "kind": "model",
        "device": "cpu",
    }
    return train(corpus, name="card", output=corpus.parent / output, on_event=report, **options | arguments)


def compare(one: Card, other: Card) -> None:
    file = "adapter_model.safetensors" if one.manifest.method == "lora" else "model.safetensors"
    weights, others = load_file(one.folder / file), load_file(other.folder / file)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert weight.dtype == others[name].dtype
        assert (weight - others[name]).abs().max() < 2e-5, name


@pytest.mark.parametrize("method", ["full", "lora"])
def test_two_processes_train_the_weights_of_one(corpus: Path, base: Path, method: str) -> None:
    alone = trained(corpus, base, "alone", method=method)
    both = trained(corpus, base, "both", method=method, processes=2)
    compare(alone, both)
    record, other = alone.manifest.training, both.manifest.training
    assert record.tokens == other.tokens
    assert record.hyperparameters["final_loss"] == pytest.approx(
        other.hyperparameters["final_loss"], abs=1e-3
    )
    assert other.hyperparameters["processes"] == 2
    assert (alone.folder / "config.json").exists() == (both.folder / "config.json").exists()
    if method == "full":
        assert '"OPTForCausalLM"' in (both.folder / "config.json").read_text()


def interrupt(event: Event) -> None:
    if event.is_note and event.message.endswith(" steps"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_a_checkpoint_goes_on_with_another_number_of_processes(
    corpus: Path, base: Path, first: int, second: int
) -> None:
    options: dict[str, Any] = {"method": "full", "epochs": 7}
    whole = trained(corpus, base, "whole", **options)
    with pytest.raises(TrainingInterrupted, match="stopped after 20 of 28 steps"):
        trained(corpus, base, "parts", interrupt, processes=first, **options)
    events: list[Event] = []
    parts = trained(corpus, base, "parts", events.append, processes=second, resume=True, **options)
    assert note("resuming after step 20 of 28") in events
    compare(whole, parts)


def kill_the_other(event: Event) -> None:
    """Kill the process that this one started."""
    if event.is_note and event.message.endswith(" steps"):
        listing = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "-f", "kcard.training.workers"], capture_output=True, check=True
        )
        os.kill(int(listing.stdout.split()[0]), signal.SIGKILL)


def test_a_process_that_is_killed_ends_all_and_the_checkpoint_goes_on(
    corpus: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 1e9)
    options: dict[str, Any] = {"method": "full", "epochs": 7}
    begun = time.monotonic()
    with pytest.raises(
        TrainingInterrupted, match=r"process 1 was killed \(SIGKILL\) after 20 of 28 steps; checkpoint in"
    ):
        trained(corpus, base, "parts", kill_the_other, processes=2, **options)
    assert time.monotonic() - begun < 60
    events: list[Event] = []
    parts = trained(corpus, base, "parts", events.append, resume=True, processes=2, **options)
    assert note("resuming after step 19 of 28") in events
    compare(trained(corpus, base, "whole", **options), parts)


def test_what_a_process_fails_of_is_told(corpus: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", "raise SystemExit('no GPU memory')"])
    with pytest.raises(TrainingInterrupted, match=r"process 1 failed \(no GPU memory\)"):
        trained(corpus, base, "card", processes=2)


@pytest.mark.parametrize("launcher", ["torch.distributed.run", "accelerate.commands.launch"])
def test_a_launcher_starts_them_too(corpus: Path, base: Path, tmp_path: Path, launcher: str) -> None:
    options = ["--nproc-per-node", "2"]
    if launcher.startswith("accelerate"):
        options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
        options += ["--dynamo_backend", "no", "--main_process_port", "0"]
    command = [sys.executable, "-m", launcher, *options, "-m", "kcard", "train", "--corpus", str(corpus)]
    arguments = {"base": base, "name": "card", "output": tmp_path / "card", "kind": "model", "method": "full"}
    arguments |= {"batch-size": 8, "micro-batch": 2, "epochs": 1, "device": "cpu"}
    command += [word for key, value in arguments.items() for word in (f"--{key}", str(value))]
    ended = subprocess.run([*command, "--no-exam"], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [str(tmp_path / "card")]
    compare(trained(corpus, base, "alone", method="full", epochs=1), Card.open(tmp_path / "card"))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_two_processes_update_as_one(base: Path, tmp_path: Path, method: Literal["full", "lora"]) -> None:
    options = Options(str(base), method, epochs=2, batch_size=8)
    first = prepare(FACTS[:20], options, execution=Execution("cpu"))
    first.job.run(tmp_path / "first")
    first.save(tmp_path / "card")
    origin = WeightSource(tmp_path / "card", Base(str(base)), FACTS[:20])
    file = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
    weights = []
    for count in (1, 2):
        execution = Execution("cpu", micro_batch=2, processes=count)
        update = prepare([FACTS[25]], options, "", origin, execution)
        update.job.run(tmp_path / f"run {count}")
        update.save(tmp_path / f"card {count}")
        weights.append(load_file(tmp_path / f"card {count}" / file))
    alone, both = weights
    assert all((alone[name] - both[name]).abs().max() < 2e-5 for name in alone)
