"""The training loop: (seed, step) fixes every step, so that a resumed run ends in the same weights.

It knows no corpus and no card: a Job says what is trained on what. Randomness inside a step (dropout, noise)
is seeded by the step's number, so there is no generator state to keep.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from kcard.errors import TrainingInterrupted
from kcard.sampling import derive_seed
from kcard.training.checkpoint import FILE, RunState, content, load, save
from kcard.training.execution import forked_rng
from kcard.training.interrupt import Interrupt
from kcard.training.processes import Processes
from kcard.training.progress import Note, Report, TrainingProgress, duration, silent

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = ["Job", "Optimizer", "TrainingOutcome", "cosine", "linear", "run", "step", "together"]

P = ParamSpec("P")
T = TypeVar("T")

CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 0.05  # of the time at most goes into checkpoints
REPORT_SECONDS = 1.0
MEASURED_STEPS = 20


class Optimizer(Protocol):
    """What the loop asks of an optimizer; torch's have it. Each group has an `initial_lr`, the peak rate."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


@dataclass(frozen=True)
class Job:
    """What to train.

    epoch   the batches of epoch n, a function of n alone in a job that is resumed
    losses  the loss of a batch, to be minimised, in one or more parts whose sum it is, each with its number
            of tokens; each part is differentiated before the next is made
    rate    the factor on every learning rate at a step
    timed   whether the user knows already how long it takes; else the first steps are measured, and reported
    settled the mean loss of 50 steps below which training ends early; 0: never
    processes  those that train it together; None: this one alone
    """

    modules: Mapping[str, "Module"]
    optimizers: Sequence[Optimizer]
    steps: int
    epoch: Callable[[int], Sequence[Any]]
    losses: Callable[[Any], "Iterable[tuple[Tensor, int]]"]
    rate: Callable[[int], float]
    seed: int = 0
    clip: float = 1.0
    fingerprint: str = ""
    timed: bool = False
    settled: float = 0.0
    processes: Processes | None = None


@dataclass(frozen=True)
class TrainingOutcome:
    """`loss`: mean over the last tenth of the steps, or the last 50; `seconds`: wall time, all sittings."""

    steps: int
    tokens: int
    seconds: float
    loss: float
    epochs: int


def together(job: Job, function: "Callable[Concatenate[Job, P], T]", *given: P.args, **named: P.kwargs) -> T:
    """What `function` of a module gives for the job, called in all its processes at once."""
    if job.processes is not None:
        job.processes.tell((function, given, named))
    return function(job, *given, **named)


def cosine(steps: int, warm: int, floor: float = 0.05) -> Callable[[int], float]:
    """Linear warm-up over `warm` steps, then a half cosine down to `floor`."""

    def rate(step: int) -> float:
        wave = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, (step + 1) / max(1, warm)) * (floor + (1 - floor) * wave)

    return rate


def linear(steps: int, warm: int) -> Callable[[int], float]:
    """Linear warm-up over `warm` steps, then a straight line down to zero."""

    def rate(step: int) -> float:
        return min((step + 1) / max(1, warm), max(0.0, (steps - step) / max(1, steps - warm)), 1.0)

    return rate


def run(
    job: Job,
    checkpoint: Path,
    *,
    resume: bool = False,
    report: Report = silent,
    remedy: str = "call train again with resume=True",
) -> TrainingOutcome:
    """Train until `job.steps`; the modules hold the result.

    A checkpoint is written to `checkpoint` every minute and on Ctrl-C, which ends the step at hand first and
    raises TrainingInterrupted with `remedy`. `resume` goes on from it; on one thread the weights end the
    same, bit for bit, as without the interruption.
    """
    state = load(checkpoint, job, report) if resume else RunState()
    noticed = _noticed(job, state, checkpoint, remedy)
    device = next(next(iter(job.modules.values())).parameters()).device
    with forked_rng(device), noticed, Interrupt() as interrupt:
        for module in job.modules.values():
            module.train()
        clock = _Clock(job, state, report)

        def keep() -> None:
            begun = time.monotonic()
            save(checkpoint, job, clock.note(state), together(job, content))
            clock.kept(time.monotonic() - begun)

        for batch in _batches(job, state):
            loss, tokens = together(job, step, batch, state.step)
            clock.step(loss, tokens)
            state.advance(loss)
            try:
                clock.tell()
            except KeyboardInterrupt:
                interrupt.asked = True
            if interrupt.asked and state.step < job.steps:
                keep()
                done = f"{state.step} of {job.steps} steps"
                raise TrainingInterrupted(f"stopped after {done}; checkpoint in {checkpoint}: {remedy}")
            if state.settled(job.settled):
                done = f"stopped after {state.step} of {job.steps} steps"
                report(Note(f"{done}: the loss is below {job.settled}, so there is nothing more to learn"))
                break
            if clock.due():
                keep()
    return clock.outcome(state)


@contextmanager
def _noticed(job: Job, state: RunState, checkpoint: Path, remedy: str) -> Iterator[None]:
    """Where another process is lost, a TrainingInterrupted says how to go on."""
    try:
        yield
    except RuntimeError as error:
        lost = "" if job.processes is None else job.processes.lost(error)
        if not lost:
            raise
        kept = (
            f"checkpoint in {checkpoint}: {remedy}" if (checkpoint / FILE).exists() else "no checkpoint yet"
        )
        raise TrainingInterrupted(f"{lost} after {state.step} of {job.steps} steps; {kept}") from error


def _batches(job: Job, state: RunState) -> Iterator[Any]:
    """The batches from where `state` stands up to the last step; `state` moves with them."""
    while state.step < job.steps:
        batches = job.epoch(state.epoch)
        for batch in batches[state.index :]:
            if state.step >= job.steps:
                return
            yield batch
        state.next_epoch()


def step(job: Job, batch: Any, number: int) -> tuple[float, int]:
    """Step `number` of the job on a batch: (loss, tokens)."""
    import torch

    torch.manual_seed(derive_seed(job.seed, "step", number))
    rate = job.rate(number)
    groups = [group for optimizer in job.optimizers for group in optimizer.param_groups]
    for group in groups:
        group["lr"] = group["initial_lr"] * rate
    loss, tokens = 0.0, 0
    for part, held in job.losses(batch):
        part.backward()
        loss, tokens = loss + part.item(), tokens + held
    weights = [weight for group in groups for weight in group["params"]]
    if job.processes is not None:
        job.processes.sum_gradients(weights)
        loss, total = job.processes.total(loss, tokens)
        tokens = int(total)
    torch.nn.utils.clip_grad_norm_(weights, job.clip)
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss, tokens


class _Clock:
    """Counts tokens, loss and time, and tells the user about them."""

    def __init__(self, job: Job, state: RunState, report: Report) -> None:
        self._steps, self._report = job.steps, report
        # The estimate that was reported holds for the whole run, not for the rest of one that is resumed.
        self._timed = job.timed and state.step == 0
        self._begun = self._told = self._saved = time.monotonic()
        self._pause = CHECKPOINT_SECONDS
        self._first = state.step
        self._before = state.seconds
        self._tokens = state.tokens
        self._step = state.step
        self._recent: list[float] = []
        self._last: list[float] = list(state.losses)

    def step(self, loss: float, tokens: int) -> None:
        self._step += 1
        self._tokens += tokens
        self._recent.append(loss)
        if self._step > self._steps * 0.9:
            self._last.append(loss)

    def tell(self) -> None:
        now = time.monotonic()
        spent = now - self._begun
        done = self._step - self._first
        left = spent / done * (self._steps - self._step)
        if done == MEASURED_STEPS and self._step < self._steps and not self._timed:
            to_go = self._steps - self._first
            self._report(Note(f"training takes about {duration(spent + left)}: {to_go} steps"))
        if now - self._told < REPORT_SECONDS and self._step < self._steps:
            return
        mean = sum(self._recent) / len(self._recent)
        self._told, self._recent = now, []
        self._report(
            TrainingProgress(self._step, self._steps, mean, self._before + spent, left, self._tokens)
        )

    def due(self) -> bool:
        return time.monotonic() - self._saved > self._pause

    def kept(self, seconds: float) -> None:
        """A checkpoint took so long: a large one is written less often."""
        self._saved = time.monotonic()
        self._pause = max(CHECKPOINT_SECONDS, seconds / CHECKPOINT_SHARE)

    def note(self, state: RunState) -> RunState:
        """The state with what the clock knows, to be saved now."""
        state.tokens, state.losses = self._tokens, self._last
        state.seconds = self._before + time.monotonic() - self._begun
        return state

    def outcome(self, state: RunState) -> TrainingOutcome:
        seconds = self._before + time.monotonic() - self._begun
        last = self._last or state.recent
        loss = sum(last) / len(last) if last else math.nan
        return TrainingOutcome(self._step, self._tokens, seconds, loss, state.epoch + (state.index > 0))
