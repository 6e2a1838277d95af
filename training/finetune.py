"""Fine-tuning of any causal language model, whole or by a LoRA adapter (Knowledge Card, section 2 and table 6).

AdamW with the numbers that the paper gives for Adam. Objectives: `clm`, blocks of contiguous text; `recite`,
pseudo-query -> passage with the loss on the passage alone; and `distil` (kcard.training.distillation).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from kcard.manifest import Prompt
from kcard.training.base_model import (
    WeightSource,
    base_of,
    check_vocabulary,
    load_config,
    load_model,
    load_tokenizer,
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
from kcard.training.epochs import Lazy, ReplayMix, packed_epochs, recited_epochs, token_blocks
from kcard.training.execution import Execution, bf16
from kcard.training.loop import Preparation
from kcard.training.optimizers import OptimizerName, check_optimizer
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.training.trainer import FineTuning

RATES = {"full": 2e-5, "lora": 2e-4}
# Of objective recite. The adapter's were measured on a base of 135 million parameters (docs/training.md); the rate of
# whole models was not, and is a tenth of the adapter's as in the paper's settings.
RECITING_RATES = {"full": 1e-4, "lora": 1e-3}
RECITING: dict[str, Any] = {"batch_size": 8, "epochs": 20}
RECITED_SHARE = 0.98
HELD_OUT_FROM = 2000
HELD_OUT_SHARE = 0.01
HELD_OUT_MOST = 2000
# Tokens of a question and a statement of 60 words, or of a question and its answer, about the longest there are.
RECITED = 192


@dataclass(frozen=True)
class Options:
    """The paper's numbers are the defaults; see options_of for those of objective recite. The learning rate of an
    adapter is ten times that of the whole model, as is usual: it starts at zero and has few weights to move.

    block      tokens of a block of contiguous text (clm), fewer if the model's context is shorter
    dtype      of the weights that are trained, in which the card is stored
    optimizer  see kcard.training.optimizers
    recited_share  of an epoch's passages that the model must recite for training to end early (recite); 0: never
    teacher_top_k, teacher_temperature  see kcard.training.distillation (distil)
    """

    base: str
    method: Literal["full", "lora"] = "lora"
    objective: Literal["recite", "clm", "distil"] = "recite"
    learning_rate: float | None = None
    epochs: float = 10
    batch_size: int = 32
    rank: int = 16
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
    recited_share: float = 0.0
    seed: int = 0

    @property
    def rate(self) -> float:
        return self.learning_rate or RATES[self.method]


def options_of(base: str, **chosen: Any) -> Options:
    """Return the options that were chosen. The others are the paper's, which are for blocks of text; to recite, a model
    is trained in small batches at a higher rate, until it recites the corpus."""
    options = Options(base, **chosen)
    if options.objective != "recite":
        return options
    reciting = {**RECITING, "learning_rate": RECITING_RATES[options.method], "recited_share": RECITED_SHARE}
    return replace(options, **{**reciting, **chosen})


def prepare(
    texts: Sequence[str],
    options: Options,
    fingerprint: str = "",
    origin: WeightSource = WeightSource(),  # noqa: B008 (frozen)
    execution: Execution = Execution(),  # noqa: B008 (frozen)
    study: Mapping[str, Sequence[str]] | None = None,
    distillation: Distillation | None = None,
    minutes: float | None = None,
) -> "Preparation[FineTuning]":
    """Prepare everything that fine-tuning needs before its first step.

    study         see PseudoQueries
    distillation  with objective distil
    minutes       after which training ends, unless it did before

    Raises ModelUnavailable, MissingExtra, UsageError, and with objective distil TrainingInterrupted.
    """
    import numpy as np

    from kcard.training.trainer import FineTuning, FineTuningSetup

    check_optimizer(options.optimizer)
    device = execution.place()
    tokenizer, config = load_tokenizer(options, origin), load_config(options, origin)
    check_vocabulary(tokenizer, config, options.base)
    room = room_of(config)
    # With objective clm, 1 % of many documents are held out, 2,000 at most.
    learned, held_out = texts, list[str]()
    if options.objective == "clm" and len(texts) >= HELD_OUT_FROM:
        rng = Random(derive_seed(options.seed, "held out"))
        count = min(HELD_OUT_MOST, round(HELD_OUT_SHARE * len(texts)))
        chosen = sorted(rng.sample(range(len(texts)), count))
        rows = np.delete(np.arange(len(texts)), chosen)
        learned = Lazy(len(rows), lambda index: texts[rows[index]])
        held_out = [texts[index] for index in chosen]
    block = min(options.block, room)
    # The model, and the examples of each epoch; with objective distil, the model is its own teacher.
    model = load_model(options, execution, origin, device)
    distilled = DistillationSet((), ())
    prompt = Prompt() if options.objective == "recite" else Prompt(template="{question}")
    if distillation is None:
        shown: ReplayMix[Any] = ReplayMix(learned, origin.passages, options.batch_size, options.seed)
        if options.objective == "clm":
            new, old = (token_blocks(part, tokenizer, block) for part in (shown.new, shown.old))
            epochs = packed_epochs(replace(shown, new=new, old=old))
        else:
            epochs = recited_epochs(shown, tokenizer, room, options.query_share, study)
    else:
        prompts = answer_prompts(tokenizer)
        k = options.teacher_top_k
        teacher = Teacher(model, tokenizer, prompts, room, k, options.seed)
        distilled = ask_teacher(distillation, teacher, execution, fingerprint)
        epochs = distilled_epochs(distilled, options.batch_size, options.seed)
        prompt = Prompt(template=prompts.student)
    examples = max(1, round(options.epochs * len(epochs(0)) / distilled.share))
    # A batch holds no example twice, so a small corpus has smaller ones.
    among = execution.processes
    batch = min(options.batch_size, max(among, len(epochs(0)) // among * among))
    steps = math.ceil(examples / batch)
    blocks = token_blocks(held_out, tokenizer, block)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    longest = block if options.objective == "clm" else min(RECITED, room)
    setup = FineTuningSetup(
        replace(options, learning_rate=options.rate),
        execution,
        replace(origin, passages=()),  # which rank 0 alone reads
        steps=steps,
        examples=examples,
        held_out=len(blocks),
        batch=batch,
        rows=execution.micro_batch_rows(batch, longest),
        pad=pad,
        epoch=len(epochs(0)),
        minutes=minutes,
    )
    tuning = FineTuning(model, tokenizer, setup, epochs, [*blocks], len(held_out), fingerprint)

    # What the manifest records.
    hyperparameters = {
        **{
            name: value
            for name, value in asdict(options).items()
            if value is not None and (distillation is not None or not name.startswith("teacher_"))
        },
        "learning_rate": options.rate,
        "steps": steps,
        "bf16": bf16(device.partition(":")[0]),
        "processes": execution.processes,
        "device": device.partition(":")[0],
        **({} if minutes is None else {"minutes": minutes}),
        **distilled.record,
    }
    base = base_of(options.base, model) if origin.folder is None else origin.base
    return Preparation(
        tuning,
        tuning.save,
        options.method,
        base,
        prompt,
        hyperparameters,
        ("torch", "transformers", "accelerate", "tokenizers", "peft"),
        tuning.record,
        device,
        distilled.seconds,
    )
