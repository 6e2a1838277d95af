"""Fine-tuning of any causal language model, whole or by a LoRA adapter (Knowledge Card, section 2 and table 6).

AdamW with the numbers that the paper gives for Adam. Objectives: `clm`, blocks of contiguous text; `recite`,
pseudo-query -> passage with the loss on the passage alone; and `distil` (kcard.training.distillation).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

from kcard.manifest import Base, Prompt
from kcard.system import quiet_loading
from kcard.training.base_model import (
    WeightSource,
    base_of,
    first_tokens,
    load_config,
    load_model,
    load_tokenizer,
    prefix_length,
    prefix_room,
    room_of,
)
from kcard.training.distillation import (
    Distillation,
    DistillationSet,
    Teacher,
    answer_prompts,
    ask_teacher,
    distilled_epochs,
)
from kcard.training.epochs import Epochs, Lazy, ReplayMix, TokenBlocks, packed_epochs, recited_epochs
from kcard.training.execution import Execution, Processes, bf16, free, gather_weights, mean_loss
from kcard.training.loop import Job, Preparation, call_everywhere, linear
from kcard.training.losses import causal_losses, distilled_loss, token_loss
from kcard.training.optimizers import OptimizerName, adamw, check_optimizer
from kcard.types import derive_seed

__all__ = ["Options", "WarmStart", "WorkerSetup", "make_job", "origin_of", "prepare"]

RATES = {"full": 2e-5, "lora": 2e-4, "prefix": 2e-2}
HELD_OUT_FROM = 2000
HELD_OUT_SHARE = 0.01
HELD_OUT_MOST = 2000


@dataclass(frozen=True)
class Options:
    """The paper's numbers are the defaults. The learning rate of an adapter is ten times that of the whole
    model, as is usual: it starts at zero and has few weights to move; that of a prefix is the one of its paper.

    prefix_tokens  None: see kcard.training.base_model
    block      tokens of a block of contiguous text (clm), fewer if the model's context is shorter
    dtype      of the weights that are trained, in which the card is stored
    optimizer  see kcard.training.optimizers
    teacher_top_k, teacher_temperature  see kcard.training.distillation (distil)
    """

    base: str
    method: Literal["full", "lora", "prefix"] = "lora"
    objective: Literal["recite", "clm", "distil"] = "recite"
    learning_rate: float | None = None
    epochs: float = 10
    batch_size: int = 32
    rank: int = 16
    prefix_tokens: int | None = None
    block: int = 512
    dtype: Literal["float32", "bfloat16"] = "float32"
    optimizer: OptimizerName = "adamw"
    teacher_top_k: int = 64
    teacher_temperature: float = 2.0
    decay: float = 1e-5
    epsilon: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.98)
    warm: float = 0.06
    query_share: float = 1.0
    seed: int = 0

    @property
    def rate(self) -> float:
        return self.learning_rate or RATES[self.method]


@dataclass(frozen=True)
class WarmStart:
    """A card whose own weights are trained further: an adapter as an adapter, a whole model as a whole one.

    folder    of the card, with its tokenizer
    base      that it was made from, and its next version will be
    passages  that it has learned; each epoch replays as many as there are new ones
    """

    folder: Path
    base: Base
    passages: Sequence[str] = ()


def origin_of(start: WarmStart | None) -> WeightSource:
    """Return the source of the weights."""
    return WeightSource() if start is None else WeightSource(start.folder, start.base.revision)


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker process needs for training. `opening`: tokens that initialise a new prefix."""

    options: Options
    execution: Execution
    origin: WeightSource
    steps: int
    pad: int
    opening: tuple[int, ...] = ()


def prepare(
    texts: Sequence[str],
    options: Options,
    fingerprint: str = "",
    start: WarmStart | None = None,
    execution: Execution = Execution(),  # noqa: B008 (frozen)
    processes: Processes | None = None,
    study: Mapping[str, Sequence[str]] | None = None,
    distillation: Distillation | None = None,
) -> Preparation:
    """Prepare everything that fine-tuning needs before its first step.

    processes     those that take part, of which this is rank 0
    study         see PseudoQueries
    distillation  with objective distil

    Raises ModelUnavailable, MissingExtra, UsageError, and with objective distil TrainingInterrupted.
    """
    import numpy as np

    # The tokenizer and the model's context window.
    check_optimizer(options.optimizer)
    device = execution.place() if processes is None else processes.device
    origin = origin_of(start)
    tokenizer, room = load_tokenizer(options, origin), room_of(options, origin)
    # Hold out 1 % of the documents, 2,000 at most (clm).
    learned, held_out = texts, list[str]()
    if options.objective == "clm" and len(texts) >= HELD_OUT_FROM:
        rng = Random(derive_seed(options.seed, "held out"))
        count = min(HELD_OUT_MOST, round(HELD_OUT_SHARE * len(texts)))
        chosen = sorted(rng.sample(range(len(texts)), count))
        rows = np.delete(np.arange(len(texts)), chosen)
        learned = Lazy(len(rows), lambda index: texts[rows[index]])
        held_out = [texts[index] for index in chosen]
    # The prefix, which takes room from the context window.
    first: tuple[int, ...] = ()
    before = 0
    if options.method == "prefix":
        config = load_config(options, origin)
        if start is None:
            first = first_tokens(texts, tokenizer, options, config)
            options = replace(options, prefix_tokens=len(first))
        before = prefix_length(options, config)
        room = prefix_room(before, config)
    # The batches; for distillation, of the teacher's answers.
    model: Any = None
    distilled = DistillationSet((), ())
    prompt = Prompt() if options.objective == "recite" else Prompt(template="{question}")
    if distillation is None:
        epoch = _make_epochs(
            learned, () if start is None else start.passages, tokenizer, room, options, study
        )
    else:
        model = load_model(options, execution, origin, device, opening=first)
        prompts = answer_prompts(tokenizer)
        k = options.teacher_top_k
        teacher = Teacher(model, tokenizer, prompts, room + before, k, options.seed, before)
        distilled = ask_teacher(distillation, teacher, execution, fingerprint)
        epoch = distilled_epochs(distilled, options.batch_size, options.seed)
        prompt = Prompt(template=prompts.student)
    steps = max(1, round(options.epochs * len(epoch(0)) / distilled.share))
    # The job, which worker processes set up for themselves.
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    setup = WorkerSetup(options, execution, origin, steps, pad, first)
    if processes is not None:
        processes.send(setup)
    job = make_job(setup, device, processes, epoch, fingerprint, model)
    model = job.modules["model"]
    base = base_of(options.base, model) if start is None else start.base

    def save(folder: Path) -> None:
        weights = call_everywhere(job, gather_weights)
        with quiet_loading():
            model.save_pretrained(folder, state_dict=weights)
            tokenizer.save_pretrained(folder)
        call_everywhere(job, free)

    def check() -> Mapping[str, Any]:
        """Measure the mean loss per token over the documents that training never saw."""
        if not held_out:
            return {}
        blocks = TokenBlocks(held_out, tokenizer, min(options.block, room))
        loss = call_everywhere(job, mean_loss, [blocks[place] for place in range(len(blocks))])
        return {"held_out_loss": round(loss, 4), "held_out_documents": len(held_out)}

    # What the manifest records.
    hyperparameters = {
        **{name: value for name, value in asdict(options).items() if value is not None},
        "learning_rate": options.rate,
        "steps": steps,
        "bf16": bf16(device),
        "processes": execution.processes,
        "device": device.partition(":")[0],
        **distilled.record,
    }
    if distillation is None:
        hyperparameters = {
            name: value for name, value in hyperparameters.items() if not name.startswith("teacher_")
        }
    libraries = ("torch", "transformers", "tokenizers", "peft")
    return Preparation(
        job, save, options.method, base, prompt, hyperparameters, libraries, check, device, distilled.seconds
    )


def make_job(
    setup: WorkerSetup,
    device: str,
    processes: Processes | None = None,
    epoch: Epochs | None = None,
    fingerprint: str = "",
    model: Any = None,
) -> Job:
    """Make the job, the same in every process but for the batches of rank 0. `model`: if already loaded."""
    options = setup.options
    part_loss = distilled_loss(options.teacher_temperature) if options.objective == "distil" else token_loss

    def no_batches(epoch: int) -> Sequence[Any]:
        # Rank 0 sends a worker process the batch of each step.
        raise NotImplementedError(epoch)

    if model is None:
        model = load_model(options, setup.execution, setup.origin, device, processes, setup.opening)
    optimizer = adamw(
        options.optimizer,
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=options.rate,
        betas=options.betas,
        eps=options.epsilon,
        weight_decay=options.decay,
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return Job(
        modules={"model": model},
        optimizers=[optimizer],
        steps=setup.steps,
        epoch=epoch or no_batches,
        losses=causal_losses(model, setup.pad, setup.execution, processes, part_loss),
        rate=linear(setup.steps, math.ceil(options.warm * setup.steps)),
        seed=options.seed,
        fingerprint=fingerprint,
        processes=processes,
    )


def _make_epochs(
    texts: Sequence[str],
    replayed: Sequence[str],
    tokenizer: Any,
    room: int,
    options: Options,
    study: Mapping[str, Sequence[str]] | None,
) -> Epochs:
    if options.objective == "clm":
        size = min(options.block, room)
        old = TokenBlocks(replayed, tokenizer, size) if replayed else None
        return packed_epochs(TokenBlocks(texts, tokenizer, size), old, options.batch_size, options.seed)
    shown = ReplayMix(texts, replayed, options.batch_size, options.seed)
    return recited_epochs(shown, tokenizer, room, options.query_share, study)
