"""Training by transformers' Trainer: the examples in their order, progress, early ends, checkpoints and resuming.

What is trained, with which loss and optimizer, is said by kcard.training.embedded.train and
kcard.training.base_trainer. This module imports torch and the Trainer, so import it inside functions.
"""

import random
import shutil
import tempfile
import time
import warnings
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch.utils.data import Dataset
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
from kcard.training.execution import broadcast, forked_rng
from kcard.training.probe import RecallProbe
from kcard.training.run import (
    RECENT_STEPS,
    STATE,
    Clock,
    Interrupt,
    TrainingOutcome,
    TrainingRun,
    last_checkpoint,
    unreadable,
    unwritable,
)


class Examples(Dataset[Any]):
    """The first `count` items of a run, epoch after epoch.

    epochs  the items of epoch n, which depend on n alone
    """

    def __init__(self, epochs: Callable[[int], Sequence[Any]], count: int) -> None:
        self._epochs, self._count = epochs, count
        self._starts = [0]  # of the epochs so far
        self._number = -1  # of the epoch at hand
        self._epoch: Sequence[Any] = ()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if self._number < 0 or index < self._starts[self._number]:
            self._number, self._epoch, self._starts = 0, self._epochs(0), [0]
        while index >= self._starts[-1] + len(self._epoch):
            self._starts.append(self._starts[-1] + len(self._epoch))
            self._number += 1
            self._epoch = self._epochs(self._number)
        return self._epoch[index - self._starts[-1]]

    def passes(self, count: int) -> int:
        """Return in how many epochs the first `count` items are, which were read."""
        return bisect_left(self._starts, count)


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


def trainer_arguments(folder: Path, steps: int, seed: int, **own: Any) -> TrainingArguments:
    """Return the arguments of every Trainer here: a log each step, checkpoints as `Watch` asks; `own`: further ones."""
    return OneDevice(
        output_dir=str(folder),
        max_steps=steps,
        max_grad_norm=1.0,
        seed=seed % 2**32,
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
        **own,
    )


class TrainerRun(TrainingRun):
    """A training by transformers' Trainer.

    model   what is trained, and holds the result
    batch   items of a step
    fingerprint  of corpus and settings, which a checkpoint must agree with
    timed   whether the user was already told how long it takes; else the first steps are measured and reported
    limit   seconds after which training ends; None: when its steps are done
    settled  the mean loss of 50 steps below which training ends early; 0: never
    probe   the questions that the model is asked meanwhile, which may end training early; None: none
    """

    model: Any
    batch: int = 1
    fingerprint: str = ""
    timed: bool = False
    limit: float | None = None
    settled: float = 0.0
    probe: RecallProbe | None = None
    has_followers: bool = False
    clock: Clock | None = None  # of the run at hand

    @abstractmethod
    def make_trainer(
        self, folder: Path, steps: int, callback: TrainerCallback, checkpoint: Path | None = None
    ) -> Trainer:
        """Return the Trainer of `steps` steps, whose train_dataset are Examples, with `folder` for its checkpoints.

        checkpoint  from which it will go on
        """

    def finish(self, trainer: Trainer) -> None:
        """Take what the trainer holds when training has ended."""

    def run(
        self,
        checkpoint: Path,
        *,
        resume: bool = False,
        on_event: OnEvent = ignore,
        remedy: str = "call train again with resume=True",
    ) -> TrainingOutcome:
        """See TrainingRun.

        On a CPU with one thread, a resumed run of the embedded model ends with the same weights, bit for bit.
        """
        last, state = None, TrainerState()
        if resume:
            last, state = self._last_state(checkpoint, on_event)
        if last is None:
            for old in checkpoint.glob("checkpoint-*"):  # of an earlier run
                shutil.rmtree(old)
        recorded = recorded_state(state)
        clock = self.clock = Clock(
            self.steps,
            on_event,
            recorded.get("seconds", 0.0),
            int(state.num_input_tokens_seen),
            [row["loss"] for row in state.log_history if "loss" in row],
            timed=self.timed,
            limit=self.limit,
        )
        if self.probe is not None:
            self.probe.begin(checkpoint, recorded.get("recalls", []))
        with isolated(self.model), Interrupt() as interrupt:
            watch = Watch(self, interrupt, self.has_followers)
            try:
                trainer = self.make_trainer(checkpoint, self.steps, watch, last)
                train_quietly(trainer, last)
                if watch.is_stopped:
                    raise TrainingInterrupted(
                        f"stopped after {clock.done} of {self.steps} steps; checkpoint in {checkpoint}: {remedy}"
                    )
                if self.probe is not None:
                    self.probe.restore_best()
                self.finish(trainer)
            except (OSError, RuntimeError, SafetensorError) as error:
                if watch.is_saving:
                    raise unwritable(checkpoint, error) from error
                raise
        if watch.why_ended:
            on_event(note(f"training ended after {clock.done} of {self.steps} steps: {watch.why_ended}"))
        passes = cast(Examples, trainer.train_dataset).passes(clock.done * self.batch)
        return TrainingOutcome(clock.done, clock.tokens, clock.seconds, clock.last_loss, passes)

    def seconds_a_step(self, warm: int, measured: int, within: float = float("inf")) -> float:
        """Return the mean wall time of at most `measured` steps after `warm` ones; they change the weights.

        within  seconds after which no further step is taken, but one is measured in any case
        """
        timer = StepTimer(warm, measured, within)
        self.clock = None
        with isolated(self.model), tempfile.TemporaryDirectory() as folder:
            train_quietly(self.make_trainer(Path(folder), warm + measured, timer))
        return timer.seconds_a_step

    def _last_state(self, folder: Path, on_event: OnEvent) -> tuple[Path | None, TrainerState]:
        """Return the last checkpoint and its state. Raises UsageError for another run's."""
        last = last_checkpoint(folder)
        if last is None:
            on_event(note(f"nothing to resume in {folder}: training starts from scratch"))
            return None, TrainerState()
        try:
            state = TrainerState.load_from_json(str(last / STATE))
        except (OSError, ValueError, TypeError) as error:
            raise unreadable(last, error) from error
        if recorded_state(state).get("fingerprint") != self.fingerprint:
            raise UsageError(
                f"the checkpoint in {folder} belongs to another corpus or other settings: repeat the original "
                "arguments, or train without resume"
            )
        on_event(note(f"resuming after step {state.global_step} of {self.steps}"))
        return last, state


def train_quietly(trainer: Trainer, checkpoint: Path | None = None) -> None:
    """Train without the Trainer's messages, from a checkpoint on if there is one."""
    trainer.remove_callback(PrinterCallback)
    with warnings.catch_warnings(), quiet_loading():
        # FSDP warns of layers that return views, such as OPT's, which must not be changed in place; none of
        # transformers' layers does so to its input.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


@contextmanager
def isolated(model: Any) -> Iterator[None]:
    """Make the model's GPU the current device inside, and restore the random states, which a Trainer sets, on exit."""
    device = next(model.parameters()).device
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with forked_rng(device), current:
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def recorded_state(state: TrainerState) -> dict[str, Any]:
    """Return what `Watch` recorded in a checkpoint; nothing without one."""
    callbacks: Any = state.stateful_callbacks or {}
    attributes: dict[str, Any] = callbacks.get("Watch", {}).get("attributes", {})
    return attributes


class Watch(TrainerCallback, ExportableState):
    """Reports the progress of a run, ends it early, and has checkpoints written when they are due and after Ctrl-C.

    What rank 0 decides is sent to all processes; in the others, `run` is None. Checkpoints hold its `state`.
    """

    def __init__(
        self, run: TrainerRun | None, interrupt: Interrupt | None = None, has_followers: bool = True
    ) -> None:
        self.run, self.interrupt, self.has_followers = run, interrupt, has_followers
        self.is_stopped = self.is_saving = False
        self.why_ended = ""
        self._began = 0.0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint says of its run."""
        run, attributes = self.run, dict[str, Any]()
        if run is not None and run.clock is not None:
            attributes = {"fingerprint": run.fingerprint, "seconds": run.clock.seconds}
            if run.probe is not None:
                attributes["recalls"] = run.probe.recalls
        return {"args": {}, "attributes": attributes}

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
        if self.run is not None and self.run.clock is not None:
            clock, probe = self.run.clock, self.run.probe
            clock.step(logs["loss"], int(state.num_input_tokens_seen) - clock.tokens)
            is_last = state.global_step >= args.max_steps
            if probe is not None:
                probe.step(is_last=is_last)
            try:
                clock.report(None if probe is None else probe.last_recall)
            except KeyboardInterrupt:
                is_asked = True
            is_asked |= self.interrupt is not None and self.interrupt.is_requested
            is_asked &= not is_last
            is_due = is_asked or clock.due()
            if not is_last:
                self.why_ended = reason_to_end(self.run, clock)
            is_ended = bool(self.why_ended)
        if self.has_followers:
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
        if self.run is not None and self.run.clock is not None:
            self.run.clock.note_checkpoint(time.monotonic() - self._began)


def reason_to_end(run: TrainerRun, clock: Clock) -> str:
    """Return why a run can end before its last step; empty if it can't."""
    if run.probe is not None:
        reason = run.probe.reason_to_end()
        if reason:
            return reason
    if run.limit is not None and clock.seconds >= run.limit:
        return f"{run.limit / 60:g} minutes are over"
    if clock.recent_loss is not None and clock.recent_loss < run.settled:
        return f"the mean loss of {RECENT_STEPS} steps is below {run.settled}, so nothing is left to learn"
    return ""


class StepTimer(TrainerCallback):
    """Measures steps: `measured` after `warm` ones, fewer where they take more than `within` seconds."""

    def __init__(self, warm: int, measured: int, within: float) -> None:
        self._warm, self._measured, self._within = warm, measured, within
        self._ends: list[float] = []

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        del args, state
        self._ends.append(time.monotonic())
        measured = len(self._ends) - self._warm
        is_over = self._ends[-1] - self._ends[0] > self._within
        if measured >= self._measured or (measured > 0 and is_over):
            control.should_training_stop = True

    @property
    def seconds_a_step(self) -> float:
        """The mean wall time of the measured steps."""
        first = self._warm - 1
        return (self._ends[-1] - self._ends[first]) / (len(self._ends) - 1 - first)
