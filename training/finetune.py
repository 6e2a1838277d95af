"""Fine-tuning of any causal language model, whole or by a LoRA adapter (Knowledge Card, section 2 and table 6).

AdamW with the numbers that the paper gives for Adam. Objectives: `clm`, blocks of contiguous text; and `recite`,
pseudo-query -> passage with the loss on the passage alone.
"""

import math
from collections.abc import Sequence
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
from kcard.training.epochs import Lazy, ReplayMix, packed_epochs, recited_epochs, token_blocks
from kcard.training.execution import Execution, OptimizerName, bf16, check_optimizer
from kcard.training.run import Preparation
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.training.base_trainer import FineTuning

RATES = {"full": 2e-5, "lora": 2e-4}
# Of objective recite, measured on a base of this width (docs/training.md). Adam's rate for a wider one falls in
# proportion (Yang et al., 2022).
RECITING_RATES = {"full": 3e-4, "lora": 2e-3}
MEASURED_WIDTH = 576
RECITING_OPTIONS: dict[str, Any] = {"batch_size": 8, "epochs": 20, "probe_questions": 32}
# With objective clm, of at least so many documents a share is held out, to measure the loss on.
MIN_DOCUMENTS_TO_HOLD_OUT = 2000
HELD_OUT_SHARE = 0.01
MAX_HELD_OUT = 2000
# Tokens of a question and a statement of 60 words, about the longest there are.
RECITED_TOKENS = 192


@dataclass(frozen=True)
class Options:
    """The paper's numbers are the defaults; see options_of for those of objective recite.

    learning_rate  None: by objective, method and width (`default_rate`)
    block      tokens of a block of contiguous text (clm), fewer if the model's context is shorter
    dtype      of the weights that are trained, in which the card is stored
    probe_questions  that the model is asked after each epoch, which may end training (recite); 0: none
    """

    base: str
    method: Literal["full", "lora"] = "lora"
    objective: Literal["recite", "clm"] = "recite"
    learning_rate: float | None = None
    epochs: float = 10
    batch_size: int = 32
    rank: int = 16
    block: int = 512
    dtype: Literal["float32", "bfloat16"] = "float32"
    optimizer: OptimizerName = "adamw"
    decay: float = 1e-5
    epsilon: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.98)
    warm: float = 0.06
    query_share: float = 1.0
    probe_questions: int = 0
    seed: int = 0

    def is_sharded(self, execution: Execution) -> bool:
        """Return whether the weights are divided among processes (FSDP)."""
        return self.method == "full" and execution.processes > 1


def options_of(base: str, **chosen: Any) -> Options:
    """Return the options that were chosen. The others are the paper's, which are for blocks of text; to recite, a model
    is trained in small batches at a higher rate, until a probe of held-out questions no longer improves."""
    options = Options(base, **chosen)
    if options.objective != "recite":
        return options
    return replace(options, **{**RECITING_OPTIONS, **chosen})


def default_rate(options: Options, width: int) -> float:
    """Return the learning rate for a model whose hidden states have `width` numbers.

    An adapter's is about ten times that of the whole model, as is usual: it starts at zero and has few weights to move.
    """
    if options.objective != "recite":
        return RATES[options.method]
    return RECITING_RATES[options.method] * min(1.0, MEASURED_WIDTH / width)


def prepare(
    texts: Sequence[str],
    options: Options,
    fingerprint: str = "",
    origin: WeightSource = WeightSource(),  # noqa: B008 (frozen)
    execution: Execution = Execution(),  # noqa: B008 (frozen)
    minutes: float | None = None,
) -> "Preparation[FineTuning]":
    """Prepare everything that fine-tuning needs before its first step.

    minutes  after which training ends, unless it did before

    Raises ModelUnavailable, MissingExtra and UsageError.
    """
    import numpy as np

    from kcard.training.base_trainer import FineTuning, FineTuningSetup
    from kcard.training.probe import RecallProbe, probe_questions

    check_optimizer(options.optimizer)
    device = execution.place()
    tokenizer, config = load_tokenizer(options, origin), load_config(options, origin)
    check_vocabulary(tokenizer, config, options.base)
    room = room_of(config)
    rate = options.learning_rate or default_rate(options, config.hidden_size)
    # With objective clm, 1 % of many documents are held out, 2,000 at most.
    learned, held_out = texts, list[str]()
    if options.objective == "clm" and len(texts) >= MIN_DOCUMENTS_TO_HOLD_OUT:
        rng = Random(derive_seed(options.seed, "held out"))
        count = min(MAX_HELD_OUT, round(HELD_OUT_SHARE * len(texts)))
        chosen = sorted(rng.sample(range(len(texts)), count))
        rows = np.delete(np.arange(len(texts)), chosen)
        learned = Lazy(len(rows), lambda index: texts[rows[index]])
        held_out = [texts[index] for index in chosen]
    block = min(options.block, room)
    # The model, and the examples of each epoch.
    model = load_model(options, execution, origin, device)
    prompt = Prompt() if options.objective == "recite" else Prompt(template="{question}")
    shown: ReplayMix[Any] = ReplayMix(learned, origin.passages, options.batch_size, options.seed)
    if options.objective == "clm":
        new, old = (token_blocks(part, tokenizer, block) for part in (shown.new, shown.old))
        epochs = packed_epochs(replace(shown, new=new, old=old))
    else:
        epochs = recited_epochs(shown, tokenizer, room, options.query_share)
    examples = max(1, round(options.epochs * len(epochs(0))))
    # A batch holds no example twice, so a small corpus has smaller ones.
    among = execution.processes
    batch = min(options.batch_size, max(among, len(epochs(0)) // among * among))
    steps = math.ceil(examples / batch)
    blocks = token_blocks(held_out, tokenizer, block)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    longest = block if options.objective == "clm" else min(RECITED_TOKENS, room)
    setup = FineTuningSetup(
        replace(options, learning_rate=rate),
        execution,
        replace(origin, passages=()),  # which rank 0 alone reads
        steps=steps,
        examples=examples,
        held_out=len(blocks),
        batch=batch,
        rows=execution.micro_batch_rows(batch, longest),
        pad=pad,
    )
    # The probe; weights that are divided among processes can't generate in one of them.
    probe = None
    if options.probe_questions and not options.is_sharded(execution):
        questions = probe_questions(texts, tokenizer, room, options.probe_questions, options.seed)
        if questions:
            probe = RecallProbe(model, tokenizer, questions, len(epochs(0)) / batch)
    limit = None if minutes is None else 60 * minutes
    tuning = FineTuning(model, tokenizer, setup, epochs, [*blocks], len(held_out), fingerprint, limit, probe)
    # What the manifest records.
    hyperparameters: dict[str, Any] = {}
    for name, value in asdict(options).items():
        if value is not None:
            hyperparameters[name] = value
    kind = device.partition(":")[0]
    hyperparameters |= {
        "learning_rate": rate,
        "steps": steps,
        "bf16": bf16(kind),
        "processes": execution.processes,
        "device": kind,
    }
    if minutes is not None:
        hyperparameters["minutes"] = minutes
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
    )
