"""Fine-tuning of a base by transformers' Trainer, on kcard's objectives and data.

Optimizer, schedule, precision, gradient accumulation, activation checkpointing, checkpoints and several processes
(accelerate; FSDP for whole models) are the Trainer's. This module imports it, so import it inside functions.
"""

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad as pad_rows
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from kcard.system import quiet_loading
from kcard.training.base_model import WeightSource, load_model
from kcard.training.epochs import IGNORED_LABEL, Epochs, Lazy, TrainingExample, collate
from kcard.training.execution import Execution, bf16, broadcast, join
from kcard.training.probe import RecallProbe
from kcard.training.run import linear
from kcard.training.trainer import Examples, TrainerRun, Watch, train_quietly, trainer_arguments

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from kcard.training.finetune import Options
    from kcard.training.run import Clock

OPTIMIZERS = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_bnb_8bit",
    "paged-adamw8bit": "paged_adamw_8bit",
}

# Cross-entropy over a large vocabulary, a few rows at a time, with the gradient computed in the forward pass.
#
# The usual implementation copies all logits to float32 and traverses them repeatedly; for 2,048 tokens over 50,000
# words this takes a tenth of the model's time. Here the rows processed at a time fit into a core's cache, and the
# gradient has the precision of the logits.

LOGITS_AT_ONCE = 1 << 18  # logits, 1 MB


def cross_entropy(logits: "Tensor", labels: "Tensor", share: float = 1.0) -> "Tensor":
    """Return the cross-entropy, summed over the rows whose label is not IGNORED_LABEL, times `share`.

    The result is float32 and differentiable once. logits (n, vocabulary), labels (n,)
    """

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: "Tensor", labels: "Tensor") -> "Tensor":
            gradient, total = torch.empty_like(logits), logits.new_zeros((), dtype=torch.float32)
            rows = max(1, LOGITS_AT_ONCE // logits.shape[1])
            for part, into, targets in zip(
                logits.split(rows), gradient.split(rows), labels.split(rows), strict=True
            ):
                total += loss_and_gradient(part, into, targets, share)
            ctx.save_for_backward(gradient)
            return total

        @staticmethod
        def backward(ctx: Any, grad_output: "Tensor") -> "tuple[Tensor, None]":
            (gradient,) = ctx.saved_tensors
            return (gradient if float(grad_output) == 1 else gradient * grad_output.to(gradient.dtype)), None

    loss: Tensor = CrossEntropy.apply(logits, labels)  # type: ignore[no-untyped-call]
    return loss


def loss_and_gradient(logits: "Tensor", gradient: "Tensor", labels: "Tensor", share: float) -> "Tensor":
    """Return the loss of some rows and write its gradient, which is 0 for ignored labels."""
    counted = (labels != IGNORED_LABEL).float() * share
    targets = labels.clamp(min=0).unsqueeze(1)
    values = logits.float()
    values = values - values.amax(dim=1, keepdim=True)
    right = values.gather(1, targets).squeeze(1)
    shares = values.exp_()
    mass = shares.sum(dim=1)
    shares.mul_((counted / mass).unsqueeze(1))
    shares.scatter_add_(1, targets, -counted.unsqueeze(1))
    gradient.copy_(shares)
    loss: Tensor = ((mass.log() - right) * counted).sum()
    return loss


# The Trainer of a card, and its run.


@dataclass(frozen=True)
class FineTuningSetup:
    """What every process of a run is told.

    steps, examples, held_out  numbers of steps, of examples in all of them, and of those to measure the loss on
    batch, rows  examples of a step, and of a micro-batch in each process
    pad         the token that rows are padded with
    folder      of the run's checkpoints; `resume`: the checkpoint to go on from
    """

    options: "Options"
    execution: Execution
    origin: WeightSource
    steps: int
    examples: int
    held_out: int
    batch: int
    rows: int
    pad: int
    folder: Path = Path()
    resume: Path | None = None


class CardTrainer(Trainer):
    """The Trainer of a card: AdamW with the paper's numbers, a linear schedule, and the loss of the objective.

    Batches are made by rank 0, which alone knows the corpus, and divided among the processes.

    clock  of a run that is limited in time; the learning rate is zero by then
    """

    def __init__(
        self,
        model: Any,
        setup: FineTuningSetup,
        examples: Examples,
        held_out: Sequence[TrainingExample],
        callback: TrainerCallback,
        clock: "Clock | None" = None,
    ) -> None:
        self.setup, self._clock = setup, clock
        self._share = setup.rows * setup.execution.processes  # rows of all processes' micro-batches together
        super().__init__(
            model=model,
            args=fine_tuning_arguments(setup),
            train_dataset=examples,
            eval_dataset=held_out or None,
            data_collator=self.collate,
            callbacks=[callback],
        )
        self.model_accepts_loss_kwargs = True  # compute_loss divides by the tokens of the whole batch itself

    def create_scheduler(self, num_training_steps: int, optimizer: "Optimizer | None" = None) -> LambdaLR:
        """Return a linear warm-up and decay whose first step, unlike transformers', has a rate above zero."""
        by_steps = linear(num_training_steps, math.ceil(self.setup.options.warm * num_training_steps))
        clock = self._clock

        def rate(step: int) -> float:
            if clock is None or clock.limit is None:
                return by_steps(step)
            return min(by_steps(step), max(0.0, 1 - clock.seconds / clock.limit))

        scheduled: Any = optimizer or self.optimizer
        self.lr_scheduler = LambdaLR(scheduled, rate)
        return self.lr_scheduler

    def get_train_dataloader(self) -> "DataLoader[Any]":
        """Return the examples in their own order."""
        return self._loader(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> "DataLoader[Any]":
        return self._loader(eval_dataset or self.eval_dataset)

    def _loader(self, dataset: Any) -> "DataLoader[Any]":
        loader = DataLoader(dataset, self._share, shuffle=False, collate_fn=self.collate)
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def collate(self, examples: Sequence[TrainingExample]) -> "dict[str, Tensor]":
        """Return input_ids, labels and shift_labels (rows, length), and the mask where rows are padded."""
        ids, labels = collate(examples, self.setup.pad)
        # The last place has nothing to predict.
        following = pad_rows(labels[:, 1:], (0, 1), value=IGNORED_LABEL)
        batch = {"input_ids": ids, "labels": labels, "shift_labels": following}
        lengths = torch.tensor([len(example) for example in examples])
        if (lengths < ids.shape[1]).any():  # without padding there is no mask, for then attention is faster
            batch["attention_mask"] = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        return batch

    def compute_loss(
        self,
        model: Any,
        inputs: "dict[str, Tensor]",
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the mean cross-entropy per learned token of the batch that this micro-batch is a part of."""
        following = inputs.pop("shift_labels")
        inputs.pop("labels")
        # Nothing is learned of the prompts, which all rows begin with: the head, over a large vocabulary, skips them.
        places = (following != IGNORED_LABEL).any(0).nonzero().squeeze(1)
        following = following[:, places]
        logits = model(**inputs, use_cache=False, logits_to_keep=places).logits
        if logits.shape[1] != len(places):  # a model that computes all of them
            logits = logits[:, places]
        count = (following != IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch
        loss = cross_entropy(logits.flatten(0, 1), following.flatten()) / count
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # whose gradients are averaged
        return (loss, {"logits": logits}) if return_outputs else loss


def fine_tuning_arguments(setup: FineTuningSetup) -> TrainingArguments:
    """Return the Trainer's arguments, with the paper's numbers."""
    options, execution = setup.options, setup.execution
    kind = execution.place().partition(":")[0]
    rows = setup.rows * execution.processes
    several: dict[str, Any] = {}
    if execution.processes > 1:
        several = {
            "accelerator_config": {"split_batches": True, "dispatch_batches": True},
            "ddp_find_unused_parameters": False,
        }
    if setup.options.is_sharded(execution):
        several |= {
            "fsdp": "full_shard auto_wrap",
            "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"},
        }
    return trainer_arguments(
        setup.folder,
        setup.steps,
        options.seed,
        per_device_train_batch_size=rows,  # accelerate splits them among the processes
        gradient_accumulation_steps=setup.batch // rows,
        learning_rate=options.learning_rate,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        adam_epsilon=options.epsilon,
        weight_decay=options.decay,
        optim=OPTIMIZERS[options.optimizer],
        bf16=bf16(kind),
        use_cpu=kind == "cpu",
        **several,
    )


@dataclass
class FineTuning(TrainerRun):
    """A fine-tuning that is prepared: rank 0's model, examples and what else a run takes.

    epochs      the examples of each epoch, which depend on its number alone
    held_out    on which the loss is measured when training has ended, of `held_out_documents`
    """

    model: Any
    tokenizer: Any
    setup: FineTuningSetup
    epochs: Epochs
    held_out: Sequence[TrainingExample] = ()
    held_out_documents: int = 0
    fingerprint: str = ""
    limit: float | None = None
    probe: RecallProbe | None = None
    held_out_loss: float | None = None
    weights: "Mapping[str, Tensor] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.steps, self.batch = self.setup.steps, self.setup.batch
        self.has_followers = self.setup.execution.processes > 1

    def make_trainer(
        self, folder: Path, steps: int, callback: TrainerCallback, checkpoint: Path | None = None
    ) -> Trainer:
        setup = replace(self.setup, folder=folder, resume=checkpoint)
        if not isinstance(callback, Watch):  # a trial, in this process alone
            alone = replace(setup.execution, processes=1)
            setup = replace(setup, steps=steps, examples=steps * setup.batch, execution=alone)
        elif self.has_followers:
            join(setup.execution)
            broadcast(setup)
        examples = Examples(self.epochs, setup.examples)
        return CardTrainer(self.model, setup, examples, self.held_out, callback, self.clock)

    def finish(self, trainer: Trainer) -> None:
        self.held_out_loss, self.weights = evaluate_and_gather(trainer, self.setup)

    def save(self, folder: Path) -> None:
        """Write model and tokenizer, and free the memory: the card is loaded next, on the same device."""
        with quiet_loading():
            self.model.save_pretrained(folder, state_dict=self.weights)
            self.tokenizer.save_pretrained(folder)
        self.model.to("meta")
        gc.collect()  # the Trainer's references are cyclic, and hold the optimizer's states
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def record(self) -> Mapping[str, Any]:
        """Return the recall of each probe, and the mean loss per token over the documents that training never saw."""
        recorded: dict[str, Any] = {}
        if self.probe is not None:
            recorded |= self.probe.record()
        if self.held_out_loss is not None:
            recorded["held_out_loss"] = round(self.held_out_loss, 4)
            recorded["held_out_documents"] = self.held_out_documents
        return recorded


def follow(setup: FineTuningSetup, device: str) -> None:
    """Take part in a run of rank 0: train, evaluate and gather, whatever it decides; end with it."""

    def blank(count: int) -> Sequence[TrainingExample]:
        return Lazy(count, lambda _: TrainingExample((), (0, 0)))  # rank 0 sends the real ones

    model = load_model(setup.options, setup.execution, setup.origin, device)
    watch = Watch(None)
    examples = Examples(lambda _: blank(setup.examples), setup.examples)
    trainer = CardTrainer(model, setup, examples, blank(setup.held_out), watch)
    train_quietly(trainer, setup.resume)
    if not watch.is_stopped:
        evaluate_and_gather(trainer, setup)


def evaluate_and_gather(
    trainer: Trainer, setup: FineTuningSetup
) -> "tuple[float | None, Mapping[str, Tensor] | None]":
    """Return the loss on held-out examples, and the weights where FSDP divided them among the processes."""
    loss = trainer.evaluate()["eval_loss"] if setup.held_out else None
    divided = trainer.is_fsdp_enabled
    return loss, trainer.accelerator.get_state_dict(trainer.model_wrapped) if divided else None
