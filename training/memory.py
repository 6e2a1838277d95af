"""Estimates of the memory and time of a training run.

The model is built of tensors without data (torch's fake tensors), and a forward pass of one micro-batch shows what
autograd would keep.
"""

import math
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kcard.errors import UsageError, one_line
from kcard.events import Event, OnEvent, note
from kcard.system import memory as machine_memory
from kcard.training.base_model import WeightSource, load_model, room_of
from kcard.training.execution import Execution, autocast
from kcard.training.loop import Job, duration, step
from kcard.training.optimizers import state_bytes

if TYPE_CHECKING:
    from kcard.training.finetune import Options

SLACK = 1.1  # for the scratch space of matrix products and what allocators keep (docs/training.md)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per device, without the libraries' own. `activations`: the additional peak of a micro-batch.

    head, layer  gradients of the largest matrix, and weights of a layer, which FSDP gathers temporarily
    parts        micro-batches per step in each process
    """

    weights: int
    gradients: int
    states: int
    activations: int
    logits: int
    head: int
    parts: int
    layer: int = 0

    @property
    def total(self) -> int:
        """The peak: of the forward pass, of the backward pass, in which gradients replace activations, or of the
        optimizer's step."""
        accumulated = self.gradients if self.parts > 1 else 0
        forward = accumulated + self.activations + 2 * self.logits
        backward = (
            accumulated
            + self.logits
            + max(self.activations + self.head, 0 if accumulated else self.gradients)
        )
        exact = self.weights + self.states + self.layer + max(forward, backward, self.gradients)
        return round(SLACK * exact)

    def __str__(self) -> str:
        working = self.total - self.weights - self.states - self.gradients
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer states": self.states,
            "activations": max(0, working),
        }
        return (
            f"{size_of(self.total)} ({', '.join(f'{what} {size_of(size)}' for what, size in parts.items())})"
        )


def estimate_memory(
    options: "Options", execution: Execution, origin: WeightSource, device: str
) -> MemoryEstimate:
    """Estimate what training takes on each device. Raises ModelUnavailable if the model's shape can't be read."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kcard.training.finetune import RECITED

    with warnings.catch_warnings(action="ignore"):
        bare = load_model(options, execution, origin, device, bare=True)
        keeping = replace(execution, checkpointing=False)
        plain = None
        if execution.checkpointing:
            plain = load_model(options, keeping, origin, device, bare=True)
    with FakeTensorMode(), warnings.catch_warnings(action="ignore"):
        model = _materialize(bare)
        tokens = min(options.block if options.objective == "clm" else RECITED, room_of(model.config))
        rows = execution.micro_batch_rows(options.batch_size, tokens)
        activations, logits = _activation_bytes(model, rows, tokens)
        if plain is not None:  # checkpointing recomputes one layer at a time
            activations += (_activation_bytes(_materialize(plain), rows, tokens)[0] - activations) // max(
                1, _layers(model.config)
            )
    # Weights, gradients and optimizer states, divided among the processes if FSDP shards them.
    weights = [*model.parameters()]
    trained = [weight for weight in weights if weight.requires_grad]
    width = {weight: weight.element_size() for weight in weights}
    divided = execution.processes if options.method == "full" else 1
    whole = sum(weight.numel() * width[weight] for weight in weights)
    states = sum(state_bytes(options.optimizer, weight.numel(), width[weight]) for weight in trained)
    gradients = sum(weight.numel() * width[weight] for weight in trained)
    head = max(weight.numel() * width[weight] for weight in trained)
    around = 0 if divided == 1 else 2 * (head + whole // max(1, _layers(model.config)))
    return MemoryEstimate(
        whole // divided,
        gradients // divided,
        states // divided,
        activations,
        logits,
        head,
        options.batch_size // execution.processes // rows,
        around,
    )


def size_of(count: int) -> str:
    """Format bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _activation_bytes(model: Any, rows: int, length: int) -> tuple[int, int]:
    """Return the bytes that autograd keeps of a forward pass, besides the weights, and those of the logits."""
    import torch
    from torch.autograd.graph import saved_tensors_hooks

    own = {weight.untyped_storage()._cdata for weight in model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            storages[storage._cdata] = storage  # kept alive, so that no other storage gets its address
        return tensor

    model.train()
    for module in model.modules():
        if hasattr(module, "layerdrop"):  # drawn at each layer, which a fake tensor can't be; dropout stays
            module.training = False
    with saved_tensors_hooks(pack, lambda tensor: tensor), autocast(model.device.type):
        ids = torch.zeros(rows, length, dtype=torch.long, device=model.device)
        logits = model(input_ids=ids, use_cache=False).logits
    return sum(storage.nbytes() for storage in storages.values()), logits.numel() * logits.element_size()


def _materialize(model: Any) -> Any:
    """Replace the model's tensors on "meta", which autocast does not know, by fake ones."""
    import torch

    parameters: dict[int, Any] = {}
    for module in model.modules():
        for name, weight in [*module.named_parameters(recurse=False)]:
            if id(weight) not in parameters:
                empty = torch.empty(weight.shape, dtype=weight.dtype)
                parameters[id(weight)] = torch.nn.Parameter(empty, weight.requires_grad)
            module.register_parameter(name, parameters[id(weight)])
        for name, buffer in [*module.named_buffers(recurse=False)]:
            module.register_buffer(name, torch.empty(buffer.shape, dtype=buffer.dtype), persistent=False)
    return model


def _layers(config: Any) -> int:
    return int(getattr(config, "num_hidden_layers", 1))


# How long a card's model takes to train on this machine, measured by a few steps on throw-away weights and a few
# embedded texts; and how many steps fit into its minutes.
#
# This measures the machine as it is at that moment, and can't foresee what else will run on it.

T = TypeVar("T")

MINUTES = 3.0  # default limit for training an embedded card's model
SPARE = 0.1  # of them, for what the measurement can't foresee
WARM, MEASURED = 2, 24  # steps
BLOCKS, BLOCK = 8, 32  # texts that are embedded
PROBE = 0.5  # seconds after which no further step is measured; half of that for embedding


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
        if texts := self.embedded(steps):
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
        return (
            f"in {minutes:g} minute{'' if minutes == 1 else 's'} a model would learn less than half of it "
            f"({self.steps:,} of {self.needed:,} steps): --minutes {self.minutes_needed} is enough here"
        )

    def _seconds(self, steps: int) -> float:
        return self.embedded(steps) * self.a_text + steps * self.a_step


def seconds_a_step(trial: Job, warm: int = WARM, measured: int = MEASURED, within: float = math.inf) -> float:
    """Return the mean wall time of `measured` steps of `trial` after `warm` ones; they change its weights.

    within  seconds after which no further step of either kind is taken, one at least
    """
    import torch

    batches: Sequence[Any] = trial.epoch(0)
    for module in trial.modules.values():
        module.train()
    number = 0

    def take(most: int) -> float:
        """Time at most `most` steps, in seconds per step."""
        nonlocal number
        begun, first = time.monotonic(), number
        while number == first or (number < first + most and time.monotonic() - begun < within):
            step(trial, batches[number % len(batches)], number)
            number += 1
        return (time.monotonic() - begun) / (number - first)

    with torch.random.fork_rng(devices=[]):
        take(warm)
        return take(measured)


def seconds_to_embed(rows: Sequence[str], embed: Callable[[Sequence[str]], Any]) -> float:
    """Estimate how long `embed` takes for all `rows` from a sample of them.

    The sample consists of blocks of similar length from the whole range, since rows are embedded in order of length.
    """
    if not rows:
        return 0.0
    ordered = sorted(rows, key=len)
    blocks = [ordered[len(rows) * (2 * n + 1) // (2 * BLOCKS) :][:BLOCK] for n in range(BLOCKS)]
    embed(blocks[0][:8])
    begun, count = time.monotonic(), 0
    for block in spread(blocks):
        embed(block)
        count += len(block)
        if time.monotonic() - begun > PROBE / 2:
            break
    return (time.monotonic() - begun) * len(rows) / count


def spread(rows: Sequence[T]) -> list[T]:
    """Reorder the rows so that the first ones lie far apart: the first, the middle, the quarters, ..."""
    bits = len(rows).bit_length()
    return [rows[place] for place in sorted(range(len(rows)), key=lambda n: f"{n:0{bits}b}"[::-1])]


# The memory and time of fine-tuning, and options that would make it fit.

WRONG = 1.2  # factor by which an estimate may be too high


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
        return (
            [time] if self.memory is None else [_memory_sentence(self.memory, self.device, self.free), time]
        )

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "device": self.device,
        }
        if self.indexing is not None:
            data["index_seconds"] = round(self.indexing, 1)
        if self.model is not None:
            data |= {
                "is_enough": self.model.is_enough,
                "steps_needed": self.model.needed,
                "minutes_needed": self.model.minutes_needed,
            }
        if self.memory is not None:
            names = ("weights", "gradients", "states", "total")
            data["memory"] = {name: getattr(self.memory, name) for name in names} | {"free": self.free}
        return data


def check_memory(
    options: "Options", execution: Execution, origin: WeightSource, device: str, on_event: OnEvent
) -> MemoryEstimate | None:
    """Report how much memory training takes; None, with a note, if the model can't be run without its values.

    Raises UsageError, with a remedy, if the device has far less.
    """
    free = free_memory(device, execution.processes)
    try:
        needed = estimate_memory(options, execution, origin, device)
    except RuntimeError as error:  # a branch on the value of a tensor, say, which fake ones lack
        on_event(note(f"how much memory training takes is unknown for this model: {one_line(error)}"))
        return None
    on_event(note(_memory_sentence(needed, device, free)))
    if not free or needed.total <= free:
        return needed
    remedy = remedy_for(options, execution, origin, device, free)
    if needed.total > WRONG * free:
        raise UsageError(
            f"training takes about {size_of(needed.total)} of memory, and {device} has {size_of(free)} free: "
            + (f"use {remedy}" if remedy else "choose a smaller base, or more processes (--processes)")
        )
    on_event(note(f"this may not fit{f': {remedy} would' if remedy else ''}"))
    return needed


def disk_note(questions: int, options: "Options") -> Event:
    """Return how much disk space the teacher's answers take at most (objective distil)."""
    from kcard.training.distillation import ANSWER, BYTES

    most = questions * ANSWER * (options.teacher_top_k + 1) * BYTES
    return note(
        f"the teacher's answers take at most {size_of(most)} on disk until training ends "
        f"({options.teacher_top_k} tokens at each place)"
    )


def free_memory(device: str, processes: int = 1) -> int:
    """Return the bytes that a process may take on the device; 0 if unknown."""
    if device == "cpu":
        return machine_memory().free // processes
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def remedy_for(options: "Options", execution: Execution, origin: WeightSource, device: str, free: int) -> str:
    """Return the options that would make training fit, those that change the result last; "" if none would."""
    is_whole = options.method == "full"
    takes_8bit = options.optimizer == "adamw" and (execution.processes == 1 or not is_whole)
    # Ways to take less memory, each besides those before it: whether it applies, and the options or execution.
    ways: tuple[tuple[bool, str, dict[str, Any], dict[str, Any]], ...] = (
        (True, "--gradient-checkpointing", {}, {"checkpointing": True}),
        (True, "--micro-batch 1", {}, {"micro_batch": 1}),
        (takes_8bit, "--optimizer adamw8bit", {"optimizer": "adamw8bit"}, {}),
        (True, "--dtype bfloat16", {"dtype": "bfloat16"}, {}),
        (is_whole and origin.folder is None, "--method lora", {"method": "lora"}, {}),
    )
    words: list[str] = []
    for applies, flag, changes, how in ways:
        cheaper, other = replace(options, **changes), replace(execution, **how)
        if not applies or (cheaper, other) == (options, execution):
            continue
        try:
            needed = estimate_memory(cheaper, other, origin, device)
        except UsageError:  # for a model that can't compute activations again
            continue
        options, execution = cheaper, other
        words.append(flag)
        if needed.total <= free:
            return " ".join(words)
    return ""


def _memory_sentence(needed: MemoryEstimate, device: str, free: int) -> str:
    there = f", where {size_of(free)} are free" if free else ""
    return f"training takes about {needed} of memory on {device}{there}"
