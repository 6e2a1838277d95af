"""The training loop, with its clock and checkpoints.

A Job says what is trained on which batches. Randomness inside a step (dropout, noise) is seeded by the step's number,
so there is no generator state to save.
"""

import math
import pickle
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcard.errors import CardError, TrainingInterrupted, UsageError
from kcard.events import Event, OnEvent, ignore, note
from kcard.io import replacing
from kcard.manifest import Base, Prompt
from kcard.training.execution import forked_rng
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

# The clock of a training run, and what it reports.


def duration(seconds: float) -> str:
    """Format a duration: "45 seconds", "4 minutes", "1.6 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 0.05  # of the time at most goes into checkpoints
REPORT_SECONDS = 1.0
MEASURED_STEPS = 20
SETTLED = 50  # steps


class Clock:
    """Counts steps, tokens, losses and time of a run, reports them, and says when a checkpoint is due.

    step, seconds, tokens, losses  where a resumed run goes on
    timed   whether the user knows already how long it takes; else the first steps are measured, and reported
    limit   seconds after which the run ends though steps are left
    """

    def __init__(
        self,
        steps: int,
        on_event: OnEvent,
        step: int = 0,
        seconds: float = 0.0,
        tokens: int = 0,
        losses: Sequence[float] = (),
        *,
        timed: bool = False,
        limit: float | None = None,
    ) -> None:
        self.tokens = tokens
        self.losses = list(losses)  # of the last tenth of the steps
        self.done = self._first = step
        self._steps, self._on_event = steps, on_event
        # The estimate that was reported holds for the whole run, not for the rest of one that is resumed.
        self._timed = timed and step == 0
        self._begun = self._reported = self._saved = time.monotonic()
        self._pause = CHECKPOINT_SECONDS
        self._before = seconds
        self._limit = limit
        self._recent: list[float] = []
        self._last: deque[float] = deque(maxlen=SETTLED)

    @property
    def seconds(self) -> float:
        """Wall time of all sittings."""
        return self._before + time.monotonic() - self._begun

    def step(self, loss: float, tokens: int) -> None:
        """Count a step and its tokens."""
        self.done += 1
        self.tokens += tokens
        self._recent.append(loss)
        self._last.append(loss)
        if self.done > self._steps * 0.9:
            self.losses.append(loss)

    @property
    def last_loss(self) -> float:
        """The mean loss of the last tenth of the steps, or of the last 50 of a run that ended before."""
        losses = self.losses or self._last
        return sum(losses) / len(losses) if losses else math.nan

    def report(self, recited: float | None = None) -> None:
        """Report the progress, once a second, and after the first steps how long it will take at most.

        recited  the share of the passages that the model recites, where known
        """
        now = time.monotonic()
        spent = now - self._begun
        done = self.done - self._first
        left = spent / done * (self._steps - self.done)
        if self._limit is not None:
            left = max(0.0, min(left, self._limit - self._before - spent))
        if done == MEASURED_STEPS and self.done < self._steps and not self._timed:
            to_go = self._steps - self._first
            self._on_event(note(f"training takes about {duration(spent + left)}: {to_go} steps"))
        if now - self._reported < REPORT_SECONDS and self.done < self._steps:
            return
        mean = sum(self._recent) / len(self._recent)
        self._reported, self._recent = now, []
        minutes, seconds = divmod(round(left), 60)
        progress = f"loss {mean:.3f}" if recited is None else f"loss {mean:.3f}, recites {recited:.0%}"
        self._on_event(
            Event(
                "training",
                f"{progress}, {minutes}:{seconds:02d} left",
                self.done,
                self._steps,
                mean,
                self._before + spent,
                left,
                self.tokens,
            )
        )

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() - self._saved > self._pause

    def note_checkpoint(self, seconds: float) -> None:
        """Record a checkpoint's duration: slow ones are written less often."""
        self._saved = time.monotonic()
        self._pause = max(CHECKPOINT_SECONDS, seconds / CHECKPOINT_SHARE)


# Ctrl-C takes effect between steps: an optimizer stopped halfway leaves weights that can't be resumed.


class Interrupt:
    """While open, the first Ctrl-C only sets `is_requested`; the second has its usual effect.

    Signals reach only the main thread; in another thread this does nothing.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            self.is_requested = True
            self._restore()

        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


# Checkpoints: weights, optimizer states and the place in the run, written atomically in a hidden folder.

FILE = "state.pt"


@dataclass
class RunState:
    """The position of a run: after `step` steps, before batch `index` of `epoch`; updated as it runs.

    losses  of the last tenth of the steps
    recent  of the last SETTLED steps
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)

    def advance(self, loss: float) -> None:
        self.step += 1
        self.index += 1
        self.recent = [*self.recent[1 - SETTLED :], loss]

    def is_settled(self, loss: float) -> bool:
        """Return whether the mean loss of the last SETTLED steps is below `loss`."""
        return len(self.recent) == SETTLED and sum(self.recent) < SETTLED * loss

    def batches(self, job: "Job") -> Iterator[Any]:
        """Yield the batches from this position to the last step. The caller advances the state after each of them."""
        while self.step < job.steps:
            batches = job.epoch(self.epoch)
            for batch in batches[self.index :]:
                if self.step >= job.steps:
                    return
                yield batch
            self.epoch += 1
            self.index = 0


def save(folder: Path, job: "Job", state: RunState) -> None:
    """Write the checkpoint so that a reader finds the old one or the new one, never half of either.

    Raises CardError where there is no room for it.
    """
    import torch

    written = {
        "fingerprint": job.fingerprint,
        "steps": job.steps,
        "state": vars(state),
        "weights": [weight.detach() for weight in _trainable_weights(job)],
        "optimizers": [optimizer.state_dict() for optimizer in job.optimizers],
    }
    try:
        with replacing(folder / FILE, parents=True) as stream:
            torch.save(written, stream)
    except (OSError, RuntimeError) as error:  # torch's own where the disk is full
        raise unwritable(folder, error) from error


def steps_of(folder: Path) -> int | None:
    """Return how many steps the run of the checkpoint takes in all; None without a checkpoint or the number in it.

    Raises UsageError if it can't be read.
    """
    path = folder / FILE
    return _read(path).get("steps") if path.exists() else None


def load(folder: Path, job: "Job", on_event: OnEvent) -> RunState:
    """Load the checkpoint's weights and states into the job; without a checkpoint, start from scratch.

    Raises UsageError if the checkpoint is of another corpus or of other settings, or can't be read.
    """
    import torch

    path = folder / FILE
    if not path.exists():
        on_event(note(f"nothing to resume in {folder}: training starts from scratch"))
        return RunState()
    checkpoint = _read(path)
    if checkpoint["fingerprint"] != job.fingerprint:
        raise other_run(folder)
    trained = _trainable_weights(job)
    with torch.no_grad():
        for weight, saved in zip(trained, checkpoint["weights"], strict=True):
            weight.copy_(saved)
    for optimizer, saved in zip(job.optimizers, checkpoint["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    state = RunState(**checkpoint["state"])
    on_event(note(f"resuming after step {state.step} of {job.steps}"))
    return state


def _read(path: Path) -> dict[str, Any]:
    """Read the checkpoint; its tensors are loaded from disk as they are used."""
    import torch

    try:
        checkpoint: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise UsageError(
            f"the checkpoint {path} can't be read: {_reason(error)}; train without resume"
        ) from error
    return checkpoint


def unwritable(folder: Path, error: Exception) -> CardError:
    """Return the error of a checkpoint for which there is no room."""
    return CardError(
        f"the checkpoint can't be written to {folder}: {_reason(error)}; free some space and train again"
    )


def other_run(folder: Path) -> UsageError:
    """Return the error of a checkpoint that another run wrote."""
    return UsageError(
        f"the checkpoint in {folder} belongs to another corpus or other settings: repeat the original "
        "arguments, or train without resume"
    )


def _reason(error: Exception) -> str:
    """Return the first line of an error; where a write of torch failed, the operating system's message."""
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    return (getattr(cause, "strerror", None) or str(cause)).partition("\n")[0]


def _trainable_weights(job: "Job") -> "list[Parameter]":
    """Return the weights that training changes; the frozen base of an adapter is not saved."""
    return [
        weight for module in job.modules.values() for weight in module.parameters() if weight.requires_grad
    ]


class TrainingRun(ABC):
    """A training that is prepared, of `steps` steps."""

    steps: int

    @abstractmethod
    def run(
        self,
        checkpoint: Path,
        *,
        resume: bool = False,
        on_event: OnEvent = ignore,
        remedy: str = "call train again with resume=True",
    ) -> "TrainingOutcome":
        """Train, writing checkpoints into the folder `checkpoint`, or go on from the last one there with `resume`.

        Ctrl-C ends the step at hand, writes a checkpoint and raises TrainingInterrupted with `remedy`. Raises
        UsageError for the checkpoint of another run, and CardError where there is no room for one.
        """


@dataclass(frozen=True)
class Job(TrainingRun):
    """A training job of the embedded model.

    epoch   the batches of epoch n, which must depend on n alone if the job is resumed
    losses  the loss of a batch, to be minimised, as one or more terms, each with its number
            of tokens; each term is differentiated before the next is computed
    rate    the factor on every learning rate at a step
    optimizers  torch's, or what has their methods
    timed   whether the user was already told how long it takes; otherwise the first steps are measured and reported
    settled the mean loss of 50 steps below which training ends early; 0: never
    """

    modules: Mapping[str, "Module"]
    optimizers: Sequence[Any]
    steps: int
    epoch: Callable[[int], Sequence[Any]]
    losses: Callable[[Any], "Iterable[tuple[Tensor, int]]"]
    rate: Callable[[int], float]
    seed: int = 0
    clip: float = 1.0
    fingerprint: str = ""
    timed: bool = False
    settled: float = 0.0

    def run(
        self,
        checkpoint: Path,
        *,
        resume: bool = False,
        on_event: OnEvent = ignore,
        remedy: str = "call train again with resume=True",
    ) -> "TrainingOutcome":
        """See TrainingRun. The modules hold the result.

        A checkpoint is written every minute; on one thread the weights of a resumed run end the same, bit for bit.
        """
        state = load(checkpoint, self, on_event) if resume else RunState()
        device = next(next(iter(self.modules.values())).parameters()).device
        with forked_rng(device), Interrupt() as interrupt:
            for module in self.modules.values():
                module.train()
            clock = Clock(
                self.steps, on_event, state.step, state.seconds, state.tokens, state.losses, timed=self.timed
            )

            def keep() -> None:
                begun = time.monotonic()
                state.tokens, state.losses, state.seconds = clock.tokens, clock.losses, clock.seconds
                save(checkpoint, self, state)
                clock.note_checkpoint(time.monotonic() - begun)

            for batch in state.batches(self):
                loss, tokens = step(self, batch, state.step)
                clock.step(loss, tokens)
                state.advance(loss)
                try:
                    clock.report()
                except KeyboardInterrupt:
                    interrupt.is_requested = True
                if interrupt.is_requested and state.step < self.steps:
                    keep()
                    raise stopped(state.step, self.steps, checkpoint, remedy)
                if state.is_settled(self.settled):
                    done = f"stopped after {state.step} of {self.steps} steps"
                    on_event(note(f"{done}: the loss is below {self.settled}, so nothing is left to learn"))
                    break
                if clock.due():
                    keep()
        loss = clock.last_loss
        return TrainingOutcome(state.step, clock.tokens, clock.seconds, loss, state.epoch + (state.index > 0))


Run = TypeVar("Run", bound=TrainingRun, covariant=True)


@dataclass(frozen=True)
class TrainingOutcome:
    """A run's outcome. `loss`: mean of the last tenth of steps, or last 50; `seconds`: wall time, all sittings."""

    steps: int
    tokens: int
    seconds: float
    loss: float
    epochs: int


def cosine(steps: int, warm: int, floor: float = 0.05) -> Callable[[int], float]:
    """Return a schedule: linear warm-up over `warm` steps, then a half cosine down to `floor`."""

    def rate(step: int) -> float:
        wave = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, (step + 1) / max(1, warm)) * (floor + (1 - floor) * wave)

    return rate


def linear(steps: int, warm: int) -> Callable[[int], float]:
    """Return a schedule: linear warm-up over `warm` steps, then a straight line down to zero."""

    def rate(step: int) -> float:
        return min((step + 1) / max(1, warm), max(0.0, (steps - step) / max(1, steps - warm)), 1.0)

    return rate


def stopped(step: int, steps: int, checkpoint: Path, remedy: str) -> TrainingInterrupted:
    """Return what a run raises after Ctrl-C."""
    return TrainingInterrupted(f"stopped after {step} of {steps} steps; checkpoint in {checkpoint}: {remedy}")


def step(job: Job, batch: Any, number: int) -> tuple[float, int]:
    """Run step `number` of the job on a batch; return (loss, tokens)."""
    import torch

    torch.manual_seed(derive_seed(job.seed, "step", number))
    rate = job.rate(number)
    groups = [group for optimizer in job.optimizers for group in optimizer.param_groups]
    for group in groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * rate
    loss, tokens = 0.0, 0
    for part, count in job.losses(batch):
        part.backward()
        loss, tokens = loss + part.item(), tokens + count
    weights = [weight for group in groups for weight in group["params"]]
    torch.nn.utils.clip_grad_norm_(weights, job.clip)
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss, tokens


# What each way of training passes to `train`: a job to run, and how its result becomes files and a manifest.


@dataclass(frozen=True)
class Preparation(Generic[Run]):
    """A prepared training run, and what follows it.

    save    writes the model files and the tokenizer into a folder, once, and may release them
    method  of the card's manifest: full or lora
    check   measures, after training, what is recorded with the hyperparameters, such as a held-out loss
    device  where training runs
    seconds  that the preparation takes in addition to the steps, where it takes long
    """

    job: Run
    save: Callable[[Path], None]
    method: str
    base: Base
    prompt: Prompt
    hyperparameters: Mapping[str, Any]
    libraries: tuple[str, ...] = ("torch", "transformers", "tokenizers")
    check: Callable[[], Mapping[str, Any]] = field(default=dict)
    device: str = "cpu"
    seconds: float = 0.0
