"""Estimates of the memory and time of a training run, which are told before it begins."""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kcard.errors import UsageError
from kcard.events import Event, OnEvent, note
from kcard.system import memory as machine_memory
from kcard.training.base_model import WeightSource, load_model, room_of
from kcard.training.execution import Execution, bf16
from kcard.training.run import duration

if TYPE_CHECKING:
    from kcard.training.finetune import Options

# Memory, from the model's parameters and the tokens of a micro-batch.

SLACK = 1.1  # for the scratch space of matrix products, and what allocators keep
MAX_ERROR = 1.2  # factor by which an estimate may be too high


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per device, without the libraries' own.

    activations  with the logits, of a micro-batch
    is_accumulated  whether the gradients of several micro-batches add up, so that they are there beside activations
    """

    weights: int
    gradients: int
    states: int
    activations: int
    is_accumulated: bool = False

    @property
    def total(self) -> int:
        """The peak. In the backward pass, gradients take the place of activations."""
        working = max(self.activations, self.gradients)
        if self.is_accumulated:
            working = self.activations + self.gradients
        return round(SLACK * (self.weights + self.states + working))

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer states": self.states,
            "activations": self.activations,
        }
        listed = ", ".join(f"{what} {size_of(size)}" for what, size in parts.items())
        return f"{size_of(self.total)} ({listed})"


def estimate_memory(
    options: "Options", execution: Execution, origin: WeightSource, device: str
) -> MemoryEstimate:
    """Estimate what training takes on each device, from the parameters of the model and the tokens of a micro-batch.

    Measured on a GPU with whole models and adapters, it was .95 to 1.1 of what was taken (docs/training.md). Raises
    ModelUnavailable if the model's shape can't be read.
    """
    from kcard.training.finetune import RECITED_TOKENS

    model = load_model(options, execution, origin, device, bare=True)
    config = model.config.get_text_config()
    # Weights, gradients, and AdamW's two states, of 8 bits where its package keeps them so.
    weights = gradients = states = 0
    for weight in model.parameters():
        size = weight.numel() * weight.element_size()
        weights += size
        if weight.requires_grad:
            gradients += size
            states += 2 * (size if options.optimizer == "adamw" else weight.numel())
    if options.is_sharded(execution):
        weights, gradients, states = (size // execution.processes for size in (weights, gradients, states))
    # Activations: of each layer 18 bytes a token and column of the hidden state, and 4 a column of the MLP, at 16 bits
    # (Korthikanti et al., 2022, section 4, without attention scores); an adapter keeps inputs of its own.
    length = min(options.block if options.objective == "clm" else RECITED_TOKENS, room_of(model.config))
    rows = execution.micro_batch_rows(options.batch_size, length)
    tokens, width = rows * length, 2
    if bf16(device.partition(":")[0]):
        converted = (
            gradients // 2 if options.dtype == "float32" else 0
        )  # autocast keeps a copy of the weights
    else:
        width, converted = 4, 0
    hidden = int(config.hidden_size)
    inner = int(getattr(config, "ffn_dim", None) or getattr(config, "intermediate_size", None) or 4 * hidden)
    a_layer = tokens * (18 * hidden + 4 * inner) * width // 2
    if options.method == "lora":
        a_layer = a_layer * 5 // 4
    layers = int(config.num_hidden_layers)
    activations = layers * a_layer
    if execution.checkpointing:  # keeps the layers' inputs, and computes one layer again at a time
        activations = layers * tokens * hidden * 4 + a_layer
    logits = 2 * tokens * int(config.vocab_size) * width  # and their gradient
    parts = options.batch_size // execution.processes // rows
    return MemoryEstimate(weights, gradients, states, activations + converted + logits, parts > 1)


def check_memory(
    options: "Options", execution: Execution, origin: WeightSource, device: str, on_event: OnEvent
) -> MemoryEstimate | None:
    """Report how much memory training takes; None, with a note, if the model's configuration does not tell.

    Raises UsageError, with a remedy, if the device has far less.
    """
    free = free_memory(device, execution.processes)
    try:
        needed = estimate_memory(options, execution, origin, device)
    except AttributeError as error:
        on_event(note(f"how much memory training takes is unknown for this model: {error}"))
        return None
    on_event(note(_memory_sentence(needed, device, free)))
    if not free or needed.total <= free:
        return needed
    # What takes less memory, that which changes the result last.
    ways = {
        "--gradient-checkpointing": not execution.checkpointing,
        "--micro-batch 1": execution.micro_batch != 1,
        "--optimizer adamw8bit": options.optimizer == "adamw" and not options.is_sharded(execution),
        "--dtype bfloat16": options.dtype == "float32",
        "--method lora": options.method == "full" and origin.folder is None,
    }
    remedy = ", ".join([way for way, is_left in ways.items() if is_left] + ["a smaller base"])
    if needed.total > MAX_ERROR * free:
        raise UsageError(
            f"training takes about {size_of(needed.total)} of memory, and {device} has {size_of(free)} free; what "
            f"takes less: {remedy}"
        )
    on_event(note(f"this may not fit; what takes less: {remedy}"))
    return needed


def free_memory(device: str, processes: int = 1) -> int:
    """Return the bytes that a process may take on the device; 0 if unknown."""
    if device == "cpu":
        return machine_memory().free // processes
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def size_of(count: int) -> str:
    """Format bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _memory_sentence(needed: MemoryEstimate, device: str, free: int) -> str:
    there = f", where {size_of(free)} are free" if free else ""
    return f"training takes about {needed} of memory on {device}{there}"


# How long an embedded card's model takes to train on this machine, from a few steps on throw-away weights and a few
# embedded texts; and how many steps fit into its minutes. What else will run on the machine can't be foreseen.

T = TypeVar("T")

MINUTES = 3.0  # default limit for training an embedded card's model
SPARE = 0.1  # of them, for what the measurement can't foresee
SAMPLE_BLOCKS, BLOCK_TEXTS = 8, 32  # that are embedded
EMBEDDING_SECONDS = 0.25  # after which no further block is


@dataclass(frozen=True)
class Estimate:
    """What training a card's model takes on this machine.

    needed     steps after which it recalls what it read
    half       steps after which it recalls half of that
    a_step     seconds per step
    a_text     seconds to embed a text
    embedded   returns how many texts must be embedded for a number of steps
    minutes    the limit; None: no limit
    """

    needed: int
    half: int
    a_step: float
    a_text: float = 0.0
    embedded: Callable[[int], int] = lambda _: 0
    minutes: float | None = None

    @property
    def steps(self) -> int:
        """The number of steps to take: `needed`, or as many as fit into the minutes, at least one."""
        if self.minutes is None:
            return self.needed
        limit = (1 - SPARE) * 60 * self.minutes
        return max(1, bisect_right(range(1, self.needed + 1), limit, key=self._seconds))

    @property
    def is_enough(self) -> bool:
        """Whether the model recalls half of what it reads in these steps."""
        return self.steps >= self.half

    @property
    def seconds(self) -> float:
        """Wall time of `steps` and of embedding their questions."""
        return self._seconds(self.steps)

    @property
    def minutes_needed(self) -> int:
        """Whole minutes into which the needed steps fit."""
        return math.ceil(self._seconds(self.needed) / (1 - SPARE) / 60)

    def note(self) -> Event:
        """Return how long training takes, as a note for the user."""
        steps = self.steps
        parts = f"{steps:,} steps"
        texts = self.embedded(steps)
        if texts:
            embedding, stepping = duration(texts * self.a_text), duration(steps * self.a_step)
            parts = f"{embedding} to embed {texts:,} questions, {stepping} for {parts}"
        if steps < self.needed:
            parts += (
                f" of the {self.needed:,} that the corpus needs (--minutes {self.minutes_needed} gives all)"
            )
        return note(f"training takes about {duration(self.seconds)} on one core: {parts}")

    def refusal(self) -> str:
        """Return why training a model is not worth it in these minutes, and in how many it would be."""
        minutes = self.minutes or 0
        noun = "minute" if minutes == 1 else "minutes"
        return (
            f"in {minutes:g} {noun} a model would learn less than half of it "
            f"({self.steps:,} of {self.needed:,} steps): --minutes {self.minutes_needed} is enough here"
        )

    def _seconds(self, steps: int) -> float:
        return self.embedded(steps) * self.a_text + steps * self.a_step


def seconds_to_embed(rows: Sequence[str], embed: Callable[[Sequence[str]], Any]) -> float:
    """Estimate how long `embed` takes for all `rows` from a sample of them.

    The sample consists of blocks of similar length from the whole range, since rows are embedded in order of length.
    """
    if not rows:
        return 0.0
    ordered = sorted(rows, key=len)
    starts = [len(rows) * (2 * number + 1) // (2 * SAMPLE_BLOCKS) for number in range(SAMPLE_BLOCKS)]
    blocks = [ordered[start : start + BLOCK_TEXTS] for start in starts]
    embed(blocks[0][:8])
    begun, count = time.monotonic(), 0
    for block in spread(blocks):
        embed(block)
        count += len(block)
        if time.monotonic() - begun > EMBEDDING_SECONDS:
            break
    return (time.monotonic() - begun) * len(rows) / count


def spread(rows: Sequence[T]) -> list[T]:
    """Reorder the rows so that the first ones lie far apart: the first, the middle, the quarters, ..."""
    bits = len(rows).bit_length()
    return [rows[place] for place in sorted(range(len(rows)), key=lambda n: f"{n:0{bits}b}"[::-1])]


@dataclass(frozen=True)
class TrainingEstimate:
    """Steps, wall time in seconds, and memory per device of a training run, with the bytes that are free there
    (0: unknown). An embedded card takes too little memory to matter.

    indexing  seconds that the index takes before the model; None if there is no index
    model     for an embedded card: the steps that it needs, and those that fit into its minutes
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
            index = [] if self.indexing is None else [f"the index takes about {duration(self.indexing)}"]
            if not self.model.is_enough:
                return [*index, f"no model: {self.model.refusal()}"]
            return [*index, self.model.note().message]
        time = f"training takes about {duration(self.seconds)}: {self.steps} steps"
        if self.memory is None:
            return [time]
        return [_memory_sentence(self.memory, self.device, self.free), time]

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "device": self.device,
        }
        if self.indexing is not None:
            data["index_seconds"] = round(self.indexing, 1)
        if self.model is not None:
            data["is_enough"] = self.model.is_enough
            data["steps_needed"] = self.model.needed
            data["minutes_needed"] = self.model.minutes_needed
        if self.memory is not None:
            names = ("weights", "gradients", "states", "total")
            data["memory"] = {name: getattr(self.memory, name) for name in names} | {"free": self.free}
        return data
