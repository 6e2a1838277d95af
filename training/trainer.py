"""Fine-tuning by transformers' Trainer, on kcard's objectives and data.

Optimizer, schedule, precision, gradient accumulation, activation checkpointing, checkpoints and several processes
(accelerate; FSDP for whole models) are the Trainer's. This module imports it, so import it inside functions.
"""

import gc
import math
import shutil
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch.nn.functional import pad as pad_rows
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import ExportableState

from kcard.errors import TrainingInterrupted, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.system import quiet_loading
from kcard.training.base_model import WeightSource, load_model
from kcard.training.distillation import DistilledExample
from kcard.training.epochs import IGNORED, Epochs, TrainingExample, collate
from kcard.training.execution import Execution, bf16, forked_rng
from kcard.training.loop import (
    Clock,
    Interrupt,
    TrainingOutcome,
    TrainingRun,
    linear,
    other_run,
    stopped,
    unwritable,
)
from kcard.training.losses import cross_entropy, divergence
from kcard.training.workers import Processes, broadcast, processes_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from kcard.training.finetune import Options

STATE = "trainer_state.json"  # the last file that the Trainer writes into a checkpoint
RECITED_AT_LEAST = 32  # passages that are counted of a corpus that has fewer
OPTIMIZERS = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_bnb_8bit",
    "paged-adamw8bit": "paged_adamw_8bit",
}


@dataclass(frozen=True)
class FineTuningSetup:
    """What every process of a run is told.

    steps, examples, held_out  numbers of steps, of examples in all of them, and of those to measure the loss on
    batch, rows  examples of a step, and of a micro-batch in each process
    pad         the token that rows are padded with
    epoch       examples of an epoch
    minutes     after which training ends; None: when its steps are done
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
    epoch: int = 0
    minutes: float | None = None
    folder: Path = Path()
    resume: Path | None = None


class Examples(Dataset[TrainingExample]):
    """The examples of a whole run, epoch after epoch, `count` in all; without epochs, those of a process that is sent
    its own."""

    def __init__(self, epochs: Epochs | None, count: int) -> None:
        self._epochs, self._count = epochs, count
        self._number = 0
        self._epoch: Sequence[TrainingExample] = () if epochs is None else epochs(0)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> TrainingExample:
        if self._epochs is None:
            return TrainingExample((), (0, 0))
        number, place = divmod(index, len(self._epoch))
        if number != self._number:
            self._number, self._epoch = number, self._epochs(number)
        return self._epoch[place]


class Recital:
    """How many of the passages that were shown last the model recites: every learned token was the most probable one
    when the passage was shown, so that greedy decoding would have written it after that question.

    window  passages that count: of all processes together an epoch, RECITED_AT_LEAST at least
    """

    def __init__(self, window: int) -> None:
        self._recited: deque[bool] = deque(maxlen=max(1, window))

    @property
    def share(self) -> float | None:
        """The share of them, in [0, 1]; None before so many were shown."""
        shown = len(self._recited)
        return sum(self._recited) / shown if shown == self._recited.maxlen else None

    def add(self, logits: "Tensor", following: "Tensor") -> None:
        """Count a micro-batch: logits (rows, length, vocabulary) and the token to come at each place, or IGNORED."""
        with torch.no_grad():
            is_right = (logits.argmax(-1) == following) | (following == IGNORED)
        self._recited.extend(is_right.all(1).tolist())


class CardTrainer(Trainer):
    """The Trainer of a card: AdamW with the paper's numbers, a linear schedule, and the loss of the objective.

    Batches are made by rank 0, which alone knows the corpus, and divided among the processes.

    seconds  of the run so far, for a run that is limited in time
    """

    def __init__(
        self,
        model: Any,
        setup: FineTuningSetup,
        examples: Dataset[TrainingExample],
        held_out: Dataset[TrainingExample] | None,
        callbacks: "list[TrainerCallback]",
        recital: Recital | None = None,
        seconds: Callable[[], float] = float,
    ) -> None:
        self.setup = setup
        self._recital, self._seconds = recital, seconds
        self._share = setup.rows * setup.execution.processes  # rows of all processes' micro-batches together
        super().__init__(
            model=model,
            args=_arguments(setup),
            train_dataset=examples,
            eval_dataset=held_out,
            data_collator=self.collate,
            callbacks=callbacks,
        )
        self.model_accepts_loss_kwargs = True  # compute_loss divides by the tokens of the whole batch itself

    def create_scheduler(self, num_training_steps: int, optimizer: "Optimizer | None" = None) -> LambdaLR:
        """Return a linear warm-up and decay whose first step, unlike transformers', has a rate above zero."""
        by_steps = linear(num_training_steps, math.ceil(self.setup.options.warm * num_training_steps))
        minutes = self.setup.minutes

        def rate(step: int) -> float:
            if minutes is None:
                return by_steps(step)
            return min(by_steps(step), max(0.0, 1 - self._seconds() / (60 * minutes)))

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
        """Return input_ids, labels and shift_labels (rows, length), the mask where rows are padded, and a teacher's
        distributions if the examples have them.

        teacher_ids, teacher_logs  (rows, longest target, k) and (rows, longest target, k + 1), padded with zeros
        """
        ids, labels = collate(examples, self.setup.pad)
        following = pad_rows(labels[:, 1:], (0, 1), value=IGNORED)  # the last place has nothing to predict
        batch = {"input_ids": ids, "labels": labels, "shift_labels": following}
        lengths = torch.tensor([len(example) for example in examples])
        if (lengths < ids.shape[1]).any():  # without padding there is no mask, for then attention is faster
            batch["attention_mask"] = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        teachers = [example.teacher for example in examples if isinstance(example, DistilledExample)]
        if teachers:
            longest = max(len(teacher.ids) for teacher in teachers)
            for name, kind in (("ids", np.int64), ("logs", np.float32)):
                width = getattr(teachers[0], name).shape[1]
                tables = np.zeros((len(teachers), longest, width), kind)
                for row, teacher in enumerate(teachers):
                    tables[row, : len(teacher.ids)] = getattr(teacher, name)
                batch[f"teacher_{name}"] = torch.from_numpy(tables)
        return batch

    def compute_loss(
        self,
        model: Any,
        inputs: "dict[str, Tensor]",
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the mean loss per learned token of the batch that this micro-batch is a part of: the divergence from
        the teacher if there is one, else cross-entropy."""
        teacher_ids, teacher_logs = inputs.pop("teacher_ids", None), inputs.pop("teacher_logs", None)
        following = inputs.pop("shift_labels")
        inputs.pop("labels")
        # Nothing is learned of the prompts, which all rows begin with: the head, over a large vocabulary, skips them.
        places = (following != IGNORED).any(0).nonzero().squeeze(1)
        following = following[:, places]
        learned = following != IGNORED
        logits = model(**inputs, use_cache=False, logits_to_keep=places).logits
        if logits.shape[1] != len(places):  # a model that computes all of them
            logits = logits[:, places]
        if self._recital is not None and model.training:
            self._recital.add(logits, following)
        count = learned.sum() if num_items_in_batch is None else num_items_in_batch
        if teacher_ids is None or teacher_logs is None:
            loss = cross_entropy(logits.flatten(0, 1), following.flatten())
        else:
            there = torch.arange(teacher_ids.shape[1], device=learned.device) < learned.sum(1, keepdim=True)
            temperature = self.setup.options.teacher_temperature
            loss = divergence(logits[learned], teacher_ids[there], teacher_logs[there], temperature)
        loss = loss / count
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # whose gradients are averaged
        return (loss, {"logits": logits}) if return_outputs else loss


class OneDevice(TrainingArguments):
    """Arguments of a process that trains on the current device alone, however many GPUs there are.

    The Trainer would spread a single process over all of them (DataParallel), whatever device was chosen.
    """

    @property
    def n_gpu(self) -> int:
        return min(1, int(super().n_gpu))

    @property
    def device(self) -> torch.device:
        device: torch.device = super().device
        return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device


def _arguments(setup: FineTuningSetup) -> TrainingArguments:
    """Return the Trainer's arguments: the paper's numbers, a log each step, checkpoints as `Watch` asks."""
    options, execution = setup.options, setup.execution
    kind = execution.place().partition(":")[0]
    rows = setup.rows * execution.processes
    several: dict[str, Any] = {}
    if execution.processes > 1:
        several = {
            "accelerator_config": {"split_batches": True, "dispatch_batches": True},
            "ddp_find_unused_parameters": False,
        }
        if options.method == "full":
            several |= {
                "fsdp": "full_shard auto_wrap",
                "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"},
            }
    return OneDevice(
        output_dir=str(setup.folder),
        max_steps=setup.steps,
        per_device_train_batch_size=rows,  # accelerate splits them among the processes
        gradient_accumulation_steps=setup.batch // rows,
        learning_rate=options.rate,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        adam_epsilon=options.epsilon,
        weight_decay=options.decay,
        max_grad_norm=1.0,
        optim=OPTIMIZERS[options.optimizer],
        bf16=bf16(kind),
        use_cpu=kind == "cpu",
        seed=options.seed % 2**32,
        save_strategy="no",
        save_total_limit=1,
        logging_steps=1,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        disable_tqdm=True,
        report_to="none",
        log_level="error",
        remove_unused_columns=False,
        label_names=["labels"],
        **several,
    )


class Watch(TrainerCallback, ExportableState):
    """Reports the progress of a run, and has checkpoints written when they are due and after Ctrl-C.

    What rank 0 decides is sent to all processes; the others have no clock. Checkpoints hold its `state`.
    """

    def __init__(
        self,
        processes: Processes | None,
        clock: Clock | None = None,
        interrupt: Interrupt | None = None,
        fingerprint: str = "",
        recital: Recital | None = None,
        setup: FineTuningSetup | None = None,
    ) -> None:
        self.processes, self.clock = processes, clock
        self.interrupt, self.fingerprint = interrupt, fingerprint
        self.recital, self.setup = recital, setup
        self.is_stopped = self.is_saving = False
        self.ended = ""
        self._began = 0.0

    def seconds(self) -> float:
        """Return the run's seconds so far; 0 in a process without a clock."""
        return 0.0 if self.clock is None else self.clock.seconds

    def reason_to_end(self) -> str:
        """Return why training can end before its last step; empty if it can't."""
        if self.setup is None:
            return ""
        recited = None if self.recital is None else self.recital.share
        if recited is not None and 0 < self.setup.options.recited_share <= recited:
            return f"the model recites {recited:.0%} of the passages"
        if self.setup.minutes is not None and self.seconds() >= 60 * self.setup.minutes:
            learned = "" if recited is None else f", and the model recites {recited:.0%} of the passages"
            return f"{self.setup.minutes:g} minutes are over{learned}"
        return ""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint says of its run."""
        return {"args": {}, "attributes": {"fingerprint": self.fingerprint, "seconds": self.seconds()}}

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Any = None,
        **_: Any,
    ) -> None:
        if "loss" not in (logs or {}):
            return
        is_due = is_asked = is_ended = False
        if (clock := self.clock) is not None:
            clock.step(logs["loss"], int(state.num_input_tokens_seen) - clock.tokens)
            try:
                clock.report(None if self.recital is None else self.recital.share)
            except KeyboardInterrupt:
                is_asked = True
            is_asked |= self.interrupt is not None and self.interrupt.is_requested
            is_asked &= state.global_step < args.max_steps
            is_due = is_asked or clock.due()
            if state.global_step < args.max_steps:
                self.ended = self.reason_to_end()
            is_ended = bool(self.ended)
        if self.processes is not None:
            is_due, is_asked, is_ended = broadcast([is_due, is_asked, is_ended])
        if is_due and not is_ended:
            self._began = time.monotonic()
            self.is_saving = control.should_save = True
        if is_ended:
            control.should_training_stop = True
        elif is_asked:
            self.is_stopped = control.should_training_stop = True

    def on_save(self, *_: Any, **__: Any) -> None:
        self.is_saving = False
        if self.clock is not None:
            self.clock.note_checkpoint(time.monotonic() - self._began)


@dataclass
class FineTuning(TrainingRun):
    """A fine-tuning that is prepared: rank 0's model, examples and what else a run takes.

    epochs      the examples of each epoch, which depend on its number alone
    held_out    on which the loss is measured when training has ended, of `held_out_documents`
    fingerprint  of corpus and settings, which a checkpoint must agree with
    """

    model: Any
    tokenizer: Any
    setup: FineTuningSetup
    epochs: Epochs
    held_out: Sequence[TrainingExample] = ()
    held_out_documents: int = 0
    fingerprint: str = ""
    held_out_loss: float | None = None
    recited: float | None = None
    weights: "Mapping[str, Tensor] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.steps = self.setup.steps

    def run(
        self,
        checkpoint: Path,
        *,
        resume: bool = False,
        on_event: OnEvent = ignore,
        remedy: str = "call train again with resume=True",
    ) -> TrainingOutcome:
        """See TrainingRun. The model holds the result, or `weights` does where several processes share it.

        A checkpoint is written every minute; a resumed run ends as one without interruption does, within noise.
        """
        last = state = None
        if resume:
            last, state = _last_state(checkpoint, self.fingerprint, self.steps, on_event)
        if last is None or state is None:
            for old in checkpoint.glob("checkpoint-*"):  # of an earlier run
                shutil.rmtree(old)
            state = TrainerState()
        setup = replace(self.setup, folder=checkpoint, resume=last)
        logged = [(row["step"], row["loss"]) for row in state.log_history if "loss" in row]
        clock = Clock(
            self.steps,
            on_event,
            state.global_step,
            _recorded(state).get("seconds", 0.0),
            int(state.num_input_tokens_seen),
            [loss for step, loss in logged if step > 0.9 * self.steps],
            limit=None if setup.minutes is None else 60 * setup.minutes,
        )
        recital = recital_of(setup)
        with (
            forked_rng(self.model.device),
            _current(self.model.device),
            processes_of(setup.execution) as processes,
            Interrupt() as interrupt,
        ):
            watch = Watch(processes, clock, interrupt, self.fingerprint, recital, setup)
            try:
                if processes is not None:
                    broadcast(setup)
                trainer = self._train(setup, watch, recital, watch.seconds)
                if watch.is_stopped:
                    raise stopped(trainer.state.global_step, self.steps, checkpoint, remedy)
                self.held_out_loss, self.weights = _results(trainer, setup)
            except (OSError, RuntimeError, SafetensorError) as error:
                if processes is not None and (lost := processes.describe_loss(error)):
                    saved = f"checkpoint in {checkpoint}: {remedy}"
                    saved = saved if last_checkpoint(checkpoint) else "no checkpoint yet"
                    raise TrainingInterrupted(
                        f"{lost} after {clock.done} of {self.steps} steps; {saved}"
                    ) from error
                if watch.is_saving:
                    raise unwritable(checkpoint, error) from error
                raise
        if watch.ended:
            on_event(note(f"training ended after {clock.done} of {self.steps} steps: {watch.ended}"))
        self.recited = None if recital is None else recital.share
        passes = math.ceil(clock.done * setup.batch / len(self.epochs(0)))
        return TrainingOutcome(clock.done, clock.tokens, clock.seconds, clock.last_loss, passes)

    def seconds_a_step(self, warm: int, measured: int) -> float:
        """Return the mean wall time of `measured` steps after `warm` ones; they change the weights."""
        times: list[float] = []

        class Timer(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                times.append(time.monotonic())

        steps = warm + measured
        alone = replace(self.setup.execution, processes=1)
        setup = replace(
            self.setup, steps=steps, examples=steps * self.setup.batch, execution=alone, folder=Path()
        )
        with (
            forked_rng(self.model.device),
            _current(self.model.device),
            tempfile.TemporaryDirectory() as folder,
        ):
            self._train(replace(setup, folder=Path(folder)), Timer())
        return (times[-1] - times[warm - 1]) / measured

    def save(self, folder: Path) -> None:
        """Write model and tokenizer, and free the memory: the card is loaded next, on the same device."""
        with quiet_loading():
            self.model.save_pretrained(folder, state_dict=self.weights)
            self.tokenizer.save_pretrained(folder)
        self.model.to("meta")
        gc.collect()  # the Trainer's references are cyclic, and hold the optimizer's states
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _train(
        self,
        setup: FineTuningSetup,
        callback: TrainerCallback,
        recital: Recital | None = None,
        seconds: Callable[[], float] = float,
    ) -> CardTrainer:
        examples = Examples(self.epochs, setup.examples)
        return _train(self.model, setup, examples, self.held_out, callback, recital, seconds)

    def record(self) -> Mapping[str, Any]:
        """Return the share of passages that the model recited in the last epoch, and the mean loss per token over the
        documents that training never saw."""
        recorded: dict[str, Any] = {}
        if self.recited is not None:
            recorded["recited"] = round(self.recited, 4)
        if self.held_out_loss is not None:
            recorded["held_out_loss"] = round(self.held_out_loss, 4)
            recorded["held_out_documents"] = self.held_out_documents
        return recorded


def recital_of(setup: FineTuningSetup) -> Recital | None:
    """Return the count of what a process recites; None for another objective."""
    if setup.options.objective != "recite":
        return None
    return Recital(max(setup.epoch, RECITED_AT_LEAST) // setup.execution.processes)


def _current(device: torch.device) -> "AbstractContextManager[Any]":
    """Return a context in which a GPU is the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def follow(processes: Processes) -> None:
    """Take part in a run of rank 0: train, evaluate and gather, whatever it decides; end with it."""
    setup: FineTuningSetup | None = broadcast(cast("FineTuningSetup | None", None))
    if setup is None:
        return
    options, execution = setup.options, setup.execution
    model = load_model(options, execution, setup.origin, processes.device)
    watch = Watch(processes)
    examples, held_out = Examples(None, setup.examples), Examples(None, setup.held_out)
    trainer = _train(model, setup, examples, held_out, watch, recital_of(setup))
    if not watch.is_stopped:
        _results(trainer, setup)


def _train(
    model: Any,
    setup: FineTuningSetup,
    examples: "Dataset[TrainingExample]",
    held_out: Any,
    callback: TrainerCallback,
    recital: Recital | None = None,
    seconds: Callable[[], float] = float,
) -> CardTrainer:
    with warnings.catch_warnings(), quiet_loading():
        # FSDP warns of layers that return views, such as OPT's, which must not be changed in place; none of
        # transformers' layers does so to its input.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        trainer = CardTrainer(model, setup, examples, held_out or None, [callback], recital, seconds)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=None if setup.resume is None else str(setup.resume))
    return trainer


def _results(
    trainer: CardTrainer, setup: FineTuningSetup
) -> "tuple[float | None, Mapping[str, Tensor] | None]":
    """Return the loss on held-out examples, and the weights where FSDP divided them among the processes."""
    loss = trainer.evaluate()["eval_loss"] if setup.held_out else None
    divided = trainer.is_fsdp_enabled
    return loss, trainer.accelerator.get_state_dict(trainer.model_wrapped) if divided else None


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder."""
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{STATE}")]
    return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _last_state(
    folder: Path, fingerprint: str, steps: int, on_event: OnEvent
) -> "tuple[Path | None, TrainerState | None]":
    """Return the last checkpoint and its state; None where there is none. Raises UsageError for another run's."""
    last = last_checkpoint(folder)
    if last is None:
        on_event(note(f"nothing to resume in {folder}: training starts from scratch"))
        return None, None
    try:
        state = TrainerState.load_from_json(str(last / STATE))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"the checkpoint {last} can't be read: {error}; train without resume") from error
    if _recorded(state).get("fingerprint") != fingerprint:
        raise other_run(folder)
    on_event(note(f"resuming after step {state.global_step} of {steps}"))
    return last, state


def _recorded(state: TrainerState) -> dict[str, Any]:
    """Return what `Watch` recorded in a checkpoint; nothing without one."""
    callbacks: Any = state.stateful_callbacks or {}
    attributes: dict[str, Any] = callbacks.get("Watch", {}).get("attributes", {})
    return attributes
