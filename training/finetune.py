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
    distilled_loss,
)
from kcard.training.epochs import Epochs, Lazy, ReplayMix, TokenBlocks, packed_epochs, recited_epochs
from kcard.training.execution import Execution, Processes, bf16, free, gather_weights, mean_loss
from kcard.training.loop import Job, Preparation, call_everywhere, linear
from kcard.training.losses import PartLoss, causal_losses, token_loss
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
    block      tokens of a block of contiguous text (clm), less where the model is shorter
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
    """A card whose own weights are trained on: an adapter goes on as an adapter, a whole model as a whole one.

    folder    where it lies, with its tokenizer
    base      what it was made from, which the next version is made from too
    passages  those that it knows already; as many as are new are replayed in each epoch, so that it keeps them
    """

    folder: Path
    base: Base
    passages: Sequence[str] = ()


def origin_of(onward: WarmStart | None) -> WeightSource:
    """Where the weights come from."""
    return WeightSource() if onward is None else WeightSource(onward.folder, onward.base.revision)


@dataclass(frozen=True)
class WorkerSetup:
    """What the processes that follow rank 0 need to know of a training. `opening`: what a prefix begins as."""

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
    onward: WarmStart | None = None,
    execution: Execution = Execution(),  # noqa: B008 (frozen)
    processes: Processes | None = None,
    study: Mapping[str, Sequence[str]] | None = None,
    distillation: Distillation | None = None,
) -> Preparation:
    """Everything that fine-tuning needs, before its first step; `processes`: those that take part, of which this is
    rank 0; `study`: see PseudoQueries; `distillation`: with objective distil. Raises ModelUnavailable, MissingExtra,
    UsageError, and with objective distil TrainingInterrupted."""
    check_optimizer(options.optimizer)
    device = execution.place() if processes is None else processes.device
    origin = origin_of(onward)
    tokenizer, room = load_tokenizer(options, origin), room_of(options, origin)
    learned, held_out = _split(texts, options)
    first: tuple[int, ...] = ()
    before = 0
    if options.method == "prefix":
        config = load_config(options, origin)
        if onward is None:
            first = first_tokens(texts, tokenizer, options, config)
            options = replace(options, prefix_tokens=len(first))
        before = prefix_length(options, config)
        room = prefix_room(before, config)
    model: Any = None
    answered = DistillationSet((), ())
    prompt = Prompt() if options.objective == "recite" else Prompt(template="{question}")
    if distillation is None:
        epoch = _epochs(learned, () if onward is None else onward.passages, tokenizer, room, options, study)
    else:
        model = load_model(options, execution, origin, device, opening=first)
        prompts = answer_prompts(tokenizer)
        k = options.teacher_top_k
        teacher = Teacher(model, tokenizer, prompts, room + before, k, options.seed, before)
        answered = ask_teacher(distillation, teacher, execution, fingerprint)
        epoch = distilled_epochs(answered, options.batch_size, options.seed)
        prompt = Prompt(template=prompts.student)
    steps = max(1, round(options.epochs * len(epoch(0)) / answered.share))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    begin = WorkerSetup(options, execution, origin, steps, pad, first)
    if processes is not None:
        processes.tell(begin)
    job = make_job(begin, device, processes, epoch, fingerprint, model)
    model = job.modules["model"]
    base = base_of(options.base, model) if onward is None else onward.base

    def save(folder: Path) -> None:
        weights = call_everywhere(job, gather_weights)
        with quiet_loading():
            model.save_pretrained(folder, state_dict=weights)
            tokenizer.save_pretrained(folder)
        call_everywhere(job, free)

    def check() -> Mapping[str, Any]:
        return _held_out_loss(held_out, job, tokenizer, room, options) if held_out else {}

    hyperparameters = {
        **{name: value for name, value in asdict(options).items() if value is not None},
        "learning_rate": options.rate,
        "steps": steps,
        "bf16": bf16(device),
        "processes": execution.processes,
        "device": device.partition(":")[0],
        **answered.record,
    }
    if distillation is None:
        hyperparameters = {
            name: value for name, value in hyperparameters.items() if not name.startswith("teacher_")
        }
    libraries = ("torch", "transformers", "tokenizers", "peft")
    return Preparation(
        job, save, options.method, base, prompt, hyperparameters, libraries, check, device, answered.seconds
    )


def make_job(
    begin: WorkerSetup,
    device: str,
    processes: Processes | None = None,
    epoch: Epochs | None = None,
    fingerprint: str = "",
    model: Any = None,
) -> Job:
    """The job, the same in every process but for the batches, which rank 0 alone has. `model`: where it is loaded."""
    options = begin.options
    if model is None:
        model = load_model(options, begin.execution, begin.origin, device, processes, begin.opening)
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
        steps=begin.steps,
        epoch=epoch or _no_batches,
        losses=causal_losses(model, begin.pad, begin.execution, processes, _part_loss(options)),
        rate=linear(begin.steps, math.ceil(options.warm * begin.steps)),
        seed=options.seed,
        fingerprint=fingerprint,
        processes=processes,
    )


def _part_loss(options: Options) -> PartLoss:
    return distilled_loss(options.teacher_temperature) if options.objective == "distil" else token_loss


def _no_batches(epoch: int) -> Sequence[Any]:
    """Those of a process that follows rank 0: it is told the batch of each step."""
    raise NotImplementedError(epoch)


def _split(texts: Sequence[str], options: Options) -> tuple[Sequence[str], list[str]]:
    """StudyQueries and held-out texts: 1 % of a clm corpus from 2,000 documents on, 2,000 at most; else none."""
    if options.objective != "clm" or len(texts) < HELD_OUT_FROM:
        return texts, []
    import numpy as np

    rng = Random(derive_seed(options.seed, "held out"))
    held_out = sorted(rng.sample(range(len(texts)), min(HELD_OUT_MOST, round(HELD_OUT_SHARE * len(texts)))))
    learned = np.delete(np.arange(len(texts)), held_out)
    return Lazy(len(learned), lambda index: texts[learned[index]]), [texts[index] for index in held_out]


def _epochs(
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


def _held_out_loss(
    texts: Sequence[str], job: Job, tokenizer: Any, room: int, options: Options
) -> dict[str, Any]:
    """Mean loss a token over the documents that training never saw."""
    blocks = TokenBlocks(texts, tokenizer, min(options.block, room))
    loss = call_everywhere(job, mean_loss, [blocks[place] for place in range(len(blocks))])
    return {"held_out_loss": round(loss, 4), "held_out_documents": len(texts)}
