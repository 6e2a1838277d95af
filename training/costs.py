"""What fine-tuning would cost, in memory and time, and what would make it fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.errors import UsageError
from kcard.machine import memory as machine_memory
from kcard.training.base_model import Origin
from kcard.training.estimate import Estimate
from kcard.training.execution import Execution
from kcard.training.memory import MemoryEstimate, estimate_memory, size_of
from kcard.training.progress import Note, Report, duration

if TYPE_CHECKING:
    from kcard.training.finetune import Options

__all__ = ["TrainingEstimate", "check_memory", "disk_note", "free_memory", "remedy_for"]

WRONG = 1.2  # by which an estimate may be too high


@dataclass(frozen=True)
class TrainingEstimate:
    """Before training: its steps and wall time in seconds, the memory that it takes on each device, and the bytes that
    are free there (0: unknown). An embedded card takes too little memory to matter.

    indexing  seconds that the index takes before the model; None where there is none
    model     of an embedded card, what it needs and what fits into its minutes
    """

    steps: int
    seconds: float
    device: str = "cpu"
    memory: MemoryEstimate | None = None
    free: int = 0
    indexing: float | None = None
    model: Estimate | None = None

    def sentences(self) -> list[str]:
        if self.model is not None:
            told = [] if self.indexing is None else [f"the index takes about {duration(self.indexing)}"]
            if not self.model.is_enough:
                return [*told, f"no model: {self.model.refusal()}"]
            return [*told, self.model.note().text]
        time = f"training takes about {duration(self.seconds)}: {self.steps} steps"
        return [time] if self.memory is None else [_told(self.memory, self.device, self.free), time]

    def as_data(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "device": self.device,
        }
        if self.indexing is not None:
            found["index_seconds"] = round(self.indexing, 1)
        if self.model is not None:
            found |= {
                "is_enough": self.model.is_enough,
                "steps_needed": self.model.needed,
                "minutes_needed": self.model.minutes_needed,
            }
        if self.memory is not None:
            names = ("weights", "gradients", "states", "total")
            found["memory"] = {name: getattr(self.memory, name) for name in names} | {"free": self.free}
        return found


def check_memory(
    options: "Options", execution: Execution, origin: Origin, device: str, report: Report
) -> MemoryEstimate:
    """Tell how much memory training takes; UsageError where the device has far less, with what would fit."""
    needed, free = (
        estimate_memory(options, execution, origin, device),
        free_memory(device, execution.processes),
    )
    report(Note(_told(needed, device, free)))
    if not free or needed.total <= free:
        return needed
    remedy = remedy_for(options, execution, origin, device, free)
    if needed.total > WRONG * free:
        raise UsageError(
            f"training takes about {size_of(needed.total)} of memory, and {device} has {size_of(free)} free: "
            + (f"use {remedy}" if remedy else "choose a smaller base, or more processes (--processes)")
        )
    report(Note(f"this may not fit{f': {remedy} would' if remedy else ''}"))
    return needed


def disk_note(questions: int, options: "Options") -> Note:
    """How much of the disk the teacher's answers take at most (objective distil)."""
    from kcard.training.distillation.targets import BYTES
    from kcard.training.distillation.teacher import ANSWER

    most = questions * ANSWER * (options.teacher_top_k + 1) * BYTES
    kept = f"{options.teacher_top_k} tokens at each place"
    return Note(f"the teacher's answers take at most {size_of(most)} on disk until training ends ({kept})")


def free_memory(device: str, processes: int = 1) -> int:
    """Bytes that a process may take on the device; 0 where that can't be known."""
    if device == "cpu":
        return machine_memory().free // processes
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def remedy_for(options: "Options", execution: Execution, origin: Origin, device: str, free: int) -> str:
    """The options that would make it fit, the fewest that change the result last; "" where none would."""
    for words, other, how in _cheaper(options, execution):
        if estimate_memory(other, how, origin, device).total <= free:
            return " ".join(words)
    return ""


def _cheaper(options: "Options", execution: Execution) -> Iterator[tuple[list[str], "Options", Execution]]:
    """Ways to take less memory, each with those before it."""
    words: list[str] = []
    if not execution.checkpointing and options.method != "prefix":
        execution = replace(execution, checkpointing=True)
        words = [*words, "--gradient-checkpointing"]
        yield words, options, execution
    if execution.micro_batch != 1:
        execution = replace(execution, micro_batch=1)
        words = [*words, "--micro-batch 1"]
        yield words, options, execution
    if options.optimizer == "adamw" and (execution.processes == 1 or options.method != "full"):
        options = replace(options, optimizer="adamw8bit")
        words = [*words, "--optimizer adamw8bit"]
        yield words, options, execution
    if options.dtype != "bfloat16":
        options = replace(options, dtype="bfloat16")
        words = [*words, "--dtype bfloat16"]
        yield words, options, execution
    if options.method == "full":
        yield [*words, "--method lora"], replace(options, method="lora"), execution


def _told(needed: MemoryEstimate, device: str, free: int) -> str:
    there = f", of {size_of(free)} that are free" if free else ""
    return f"training takes about {needed} of memory on {device}{there}"
