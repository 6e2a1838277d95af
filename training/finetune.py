"""Fine-tuning of any causal language model, whole or by a LoRA adapter (Knowledge Card, section 2 and table 6).

AdamW with the numbers that the paper gives for Adam. Objectives: `clm`, blocks of contiguous text, and `recite`,
pseudo-query -> passage with the loss on the passage alone.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from kcard.cards.lm.loader import base_digest
from kcard.errors import ModelUnavailable, UsageError, first_line
from kcard.manifest import Base, Prompt
from kcard.quiet import quiet_loading
from kcard.sampling import derive_seed
from kcard.training.cross_entropy import cross_entropy
from kcard.training.epochs import Epochs, Shown, packed_epochs, recited_epochs
from kcard.training.example_batches import IGNORED, TrainingExample, collate
from kcard.training.lazy import Lazy
from kcard.training.loop import Job, linear
from kcard.training.precision import autocast, bf16
from kcard.training.preparation import Preparation
from kcard.training.token_blocks import TokenBlocks

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Options", "WarmStart", "prepare"]

HELD_OUT_FROM = 2000
HELD_OUT_SHARE = 0.01
HELD_OUT_MOST = 2000


@dataclass(frozen=True)
class Options:
    """The paper's numbers are the defaults. The learning rate of an adapter is ten times that of the whole
    model, as is usual: it starts at zero and has few weights to move.

    block         tokens of a block of contiguous text (clm), less where the model is shorter
    micro_tokens  rows go through the model in parts of about so many tokens; the result is the same
    """

    base: str
    method: Literal["full", "lora"] = "lora"
    objective: Literal["recite", "clm"] = "recite"
    learning_rate: float | None = None
    epochs: float = 10
    batch_size: int = 32
    rank: int = 16
    block: int = 512
    micro_tokens: int = 8192
    decay: float = 1e-5
    epsilon: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.98)
    warm: float = 0.06
    query_share: float = 1.0
    seed: int = 0

    @property
    def rate(self) -> float:
        return self.learning_rate or (2e-4 if self.method == "lora" else 2e-5)


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


def prepare(
    texts: Sequence[str], options: Options, fingerprint: str = "", onward: WarmStart | None = None
) -> Preparation:
    """Everything that fine-tuning needs, before its first step. Raises ModelUnavailable."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, model = _load(options, device, onward)
    base = _base(options.base, model) if onward is None else onward.base
    if options.method == "lora":
        model = _adapted(model, options, onward)
    if tokenizer.eos_token_id is None:
        raise UsageError(
            f"base {options.base!r} has a tokenizer without an end-of-text token: choose another"
        )
    learned, held = _split(texts, options)
    epoch = _epochs(learned, () if onward is None else onward.passages, tokenizer, _room(model), options)
    steps = max(1, round(options.epochs * len(epoch(0))))
    losses = _losses(model, tokenizer, options)
    job = Job(
        modules={"model": model},
        optimizers=[_optimizer(model, options)],
        steps=steps,
        epoch=epoch,
        losses=losses,
        rate=linear(steps, math.ceil(options.warm * steps)),
        seed=options.seed,
        fingerprint=fingerprint,
    )

    def save(folder: Path) -> None:
        with quiet_loading():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    def check() -> Mapping[str, Any]:
        return _held_out_loss(held, model, tokenizer, losses, options) if held else {}

    hyperparameters = {**asdict(options), "learning_rate": options.rate, "steps": steps, "bf16": bf16(device)}
    prompt = Prompt() if options.objective == "recite" else Prompt(template="{question}")
    libraries = ("torch", "transformers", "tokenizers", "peft")
    kind = "lora" if options.method == "lora" else "full"
    return Preparation(job, save, kind, base, prompt, hyperparameters, libraries, check)


def _load(options: Options, device: str, onward: WarmStart | None) -> tuple[Any, Any]:
    """Tokenizer and model. Weights that are trained are float32; a frozen base on a GPU may be bf16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    frozen = options.method == "lora" and device == "cuda" and bf16(device)
    words = options.base if onward is None else str(onward.folder)
    where = words if options.method == "full" else options.base
    revision = onward.base.revision if onward is not None and where != words else None
    try:
        with quiet_loading() if Path(where).is_dir() else nullcontext():
            tokenizer = AutoTokenizer.from_pretrained(words, trust_remote_code=False)
            model: Any = AutoModelForCausalLM.from_pretrained(
                where,
                dtype=torch.bfloat16 if frozen else torch.float32,
                revision=revision or "main",
                trust_remote_code=False,
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelUnavailable(
            f"base model {where!r} can't be loaded: {first_line(error)} "
            "(give a folder or a reachable hub id, or use base embedded)"
        ) from error
    return tokenizer, model.to(torch.device(device))


def _base(name: str, model: Any) -> Base:
    revision = getattr(model.config, "_commit_hash", None)
    where = str(Path(name).absolute()) if Path(name).is_dir() else name
    return Base(where, revision, base_digest(where, revision))


def _adapted(model: Any, options: Options, onward: WarmStart | None) -> Any:
    """The model with a fresh adapter on every linear layer but the output head, or the adapter that goes on."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    config = LoraConfig(
        r=options.rank,
        lora_alpha=2 * options.rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft asks transformers by a name that transformers 5 deprecates; the user can do nothing about it.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        if onward is not None:
            return PeftModel.from_pretrained(model, onward.folder, is_trainable=True)
        torch.manual_seed(derive_seed(options.seed, "weights"))
        return get_peft_model(model, config)


def _optimizer(model: Any, options: Options) -> Any:
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        weights,
        lr=options.rate,
        betas=options.betas,
        eps=options.epsilon,
        weight_decay=options.decay,
        fused=True,
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def _room(model: Any) -> int:
    return int(getattr(model.config, "max_position_embeddings", None) or 2048)


def _split(texts: Sequence[str], options: Options) -> tuple[Sequence[str], list[str]]:
    """Learned and held-out texts: 1 % of a clm corpus from 2,000 documents on, 2,000 at most; else none."""
    if options.objective != "clm" or len(texts) < HELD_OUT_FROM:
        return texts, []
    import numpy as np

    rng = Random(derive_seed(options.seed, "held out"))
    held = sorted(rng.sample(range(len(texts)), min(HELD_OUT_MOST, round(HELD_OUT_SHARE * len(texts)))))
    learned = np.delete(np.arange(len(texts)), held)
    return Lazy(len(learned), lambda index: texts[learned[index]]), [texts[index] for index in held]


def _epochs(
    texts: Sequence[str], known: Sequence[str], tokenizer: Any, room: int, options: Options
) -> Epochs:
    if options.objective == "clm":
        size = min(options.block, room)
        old = TokenBlocks(known, tokenizer, size) if known else None
        return packed_epochs(TokenBlocks(texts, tokenizer, size), old, options.batch_size, options.seed)
    shown = Shown(texts, known, options.batch_size, options.seed)
    return recited_epochs(shown, tokenizer, room, options.query_share)


def _losses(
    model: Any, tokenizer: Any, options: Options
) -> "Callable[[Sequence[TrainingExample]], Iterator[tuple[Tensor, int]]]":
    """The batch's loss in parts that fit in memory, each weighted by its share of the learned tokens."""
    from torch.nn.functional import pad as pad_rows

    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id

    def losses(batch: Sequence[TrainingExample]) -> "Iterator[tuple[Tensor, int]]":
        total = sum(example.learned for example in batch)
        longest = max(len(example) for example in batch)
        rows = max(1, options.micro_tokens // longest)
        for start in range(0, len(batch), rows):
            part = batch[start : start + rows]
            ids, labels = (tensor.to(model.device) for tensor in collate(part, pad))
            with autocast(model.device.type):
                logits = model(input_ids=ids, attention_mask=_mask(part, ids), use_cache=False).logits
            # The last place has nothing to foretell; leaving it out here spares a copy of all logits.
            following = pad_rows(labels[:, 1:], (0, 1), value=IGNORED)
            loss = cross_entropy(logits.flatten(0, 1), following.flatten(), 1 / total)
            yield loss, sum(len(example) for example in part)

    return losses


def _mask(part: Sequence[TrainingExample], ids: "Tensor") -> "Tensor | None":
    """1 where a token stands; None where no row is padded, for then attention is faster."""
    longest = ids.shape[1]
    if all(len(example) == longest for example in part):
        return None
    return ids.new_tensor([[1] * len(example) + [0] * (longest - len(example)) for example in part])


def _held_out_loss(
    texts: Sequence[str],
    model: Any,
    tokenizer: Any,
    losses: "Callable[[Sequence[TrainingExample]], Iterator[tuple[Tensor, int]]]",
    options: Options,
) -> dict[str, Any]:
    """Mean loss a token over the documents that training never saw."""
    import torch

    found = TokenBlocks(texts, tokenizer, min(options.block, _room(model)))
    blocks = [found[place] for place in range(len(found))]
    model.eval()
    with torch.inference_mode():
        loss = sum(part.item() for part, _ in losses(blocks))
    return {"held_out_loss": round(loss, 4), "held_out_documents": len(texts)}
