"""Checkpoints: weights, optimizer states and the place in the run, written atomically in a hidden folder."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, UsageError
from kcard.files import replacing
from kcard.training.progress import Note, Report

if TYPE_CHECKING:
    from torch.nn import Parameter

    from kcard.training.loop import Job

__all__ = ["FILE", "RunState", "content", "load", "save", "steps_of"]

FILE = "state.pt"
SETTLED = 50  # steps


@dataclass
class RunState:
    """Where a run stands: after `step` steps, before batch `index` of `epoch`. It moves with the run.

    `losses`: those of the last tenth of the steps; `recent`: those of the last SETTLED ones.
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)

    def advance(self, loss: float) -> None:
        self.step += 1
        self.index += 1
        self.recent = [*self.recent[1 - SETTLED :], loss]

    def settled(self, loss: float) -> bool:
        """Whether the mean loss of the last SETTLED steps is below `loss`."""
        return len(self.recent) == SETTLED and sum(self.recent) < SETTLED * loss

    def next_epoch(self) -> None:
        self.epoch += 1
        self.index = 0


def content(job: "Job") -> dict[str, Any]:
    """Trained weights and optimizer states, whole: those that FSDP divided are put together."""
    from kcard.training.gathering import whole

    return {
        "weights": [whole(weight.detach()) for weight in _trained(job)],
        "optimizers": [whole(optimizer.state_dict()) for optimizer in job.optimizers],
    }


def save(folder: Path, job: "Job", state: RunState, trained: Mapping[str, Any] | None = None) -> None:
    """Write the checkpoint so that a reader finds the old one or the new one, never half of either.

    trained  the content of the job, where it is at hand

    Raises CardError where there is no room for it.
    """
    import torch

    written = {
        "fingerprint": job.fingerprint,
        "steps": job.steps,
        "state": vars(state),
        **(trained or content(job)),
    }
    try:
        with replacing(folder / FILE, parents=True) as stream:
            torch.save(written, stream)
    except (OSError, RuntimeError) as error:  # torch's own where the disk is full
        raise CardError(
            f"the checkpoint can't be written to {folder}: {_reason(error)}; free some space and train again"
        ) from error


def steps_of(folder: Path) -> int | None:
    """How many steps the run of the checkpoint takes in all; None without a checkpoint, or where it does not tell.

    Raises UsageError where it can't be read.
    """
    path = folder / FILE
    return _read(path).get("steps") if path.exists() else None


def load(folder: Path, job: "Job", report: Report) -> RunState:
    """Put the checkpoint's weights and states into the job; without a checkpoint, begin at the beginning.

    Raises UsageError where the checkpoint is of another corpus or of other settings, or can't be read.
    """
    from kcard.training.loop import together

    path = folder / FILE
    if not path.exists():
        report(Note(f"nothing to resume in {folder}: training starts from scratch"))
        return RunState()
    found = _read(path)
    if found["fingerprint"] != job.fingerprint:
        raise UsageError(
            f"the checkpoint in {folder} belongs to another corpus or other settings: repeat the original "
            "arguments, or train without resume"
        )
    together(job, _restore, str(path))
    state = RunState(**found["state"])
    report(Note(f"resuming after step {state.step} of {job.steps}"))
    return state


def _read(path: Path) -> dict[str, Any]:
    """The checkpoint; its tensors are read from the disk as they are used."""
    import torch

    try:
        found: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise UsageError(
            f"the checkpoint {path} can't be read: {_reason(error)}; train without resume"
        ) from error
    return found


def _restore(job: "Job", path: str) -> None:
    """Put the checkpoint into the job, in every process its share."""
    import torch

    from kcard.training.gathering import share_of

    found, trained = _read(Path(path)), _trained(job)
    with torch.no_grad():
        for weight, saved in zip(trained, found["weights"], strict=True):
            weight.copy_(share_of(saved, weight))
    for optimizer, saved in zip(job.optimizers, found["optimizers"], strict=True):
        for index, states in saved.get("state", {}).items():
            like = optimizer.param_groups[0]["params"][index]
            saved["state"][index] = {name: share_of(value, like) for name, value in states.items()}
        optimizer.load_state_dict(saved)


def _reason(error: Exception) -> str:
    """The first line of what went wrong; of a write that torch failed in, the system's words."""
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    return (getattr(cause, "strerror", None) or str(cause)).partition("\n")[0]


def _trained(job: "Job") -> "list[Parameter]":
    """What training changes; the frozen base of an adapter is not kept."""
    return [
        weight for module in job.modules.values() for weight in module.parameters() if weight.requires_grad
    ]
