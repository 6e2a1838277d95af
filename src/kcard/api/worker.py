"""worker: measure published versions: exams and audits by the hub itself, from its queue of jobs."""

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from kcard.config import settings
from kcard.errors import KcardError, Unavailable, UsageError
from kcard.option import Option, check_values, documented
from kcard.sizes import parse_size

if TYPE_CHECKING:
    from kcard.api.measurement import Request
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.jobs import Claim

__all__ = ["checked_evidence", "work_for_server", "worker"]

POLL_SECONDS = 2.0
BEAT_SECONDS = 15.0  # a quarter of a lease
STEP_SECONDS = 0.5
MEMORY = "8GB"
DONE = "done"
Report = Callable[[str], None]
T = TypeVar("T")


@documented
def worker(
    *,
    evidence: Annotated[
        Sequence[str] | None,
        Option(
            "Evidence for audits: a file, a folder, wikipedia. Repeatable.",
            default="the setting hub_evidence, else no audits",
            command_line=list[str] | None,
        ),
    ] = None,
    questions: Annotated[int, Option("Maximum number of questions about a card's corpus.", least=1)] = 100,
    memory: Annotated[str, Option("Memory limit for measuring a card, such as 8GB.")] = MEMORY,
    minutes: Annotated[float, Option("Time limit for measuring a card, in minutes.", least=0.01)] = 60.0,
    drain: Annotated[bool, Option("Stop when no job is due.")] = False,
    hub: "Hub | None" = None,
    stop: threading.Event | None = None,
    report: Report | None = None,
) -> int:
    """Measure published versions until SIGTERM, Ctrl-C or `stop`; returns the number of jobs done.

    From now on the hub has every published version measured. Each card is measured in a child process with limits.
    Several workers may share a hub. A worker that stops puts its job back; the job of a worker that was killed is
    done by another after a minute. `report` is called with a sentence about each job.

    Raises UsageError for a wrong option, HubError if the hub can't be opened.
    """
    check_values(worker, {"questions": questions, "minutes": minutes})
    from kcard.hub.registry import Hub

    limits = _Limits(
        checked_evidence(evidence or settings().hub_evidence),
        questions,
        parse_size(memory),
        max(1, round(minutes * 60)),
    )
    found = Hub() if hub is None else hub
    found.jobs.switch(True)
    at_work = _Worker(found, limits, report or _silent, threading.Event() if stop is None else stop)
    with _stopping(at_work.stop):
        return at_work.run(drain)


def checked_evidence(specs: Sequence[str]) -> tuple[str, ...]:
    """The evidence, with absolute paths. Raises UsageError for what is neither a path nor the name of evidence."""
    from kcard.selectors.evidence.registry import names

    found = []
    for spec in specs:
        path = Path(spec).expanduser()
        if spec.partition(":")[0] not in names() and not path.exists():
            raise UsageError(
                f"evidence {spec!r} does not exist: name a file, a folder or one of {', '.join(names())}, with "
                "--evidence or in the setting hub_evidence"
            )
        found.append(spec if spec.partition(":")[0] in names() else str(path.absolute()))
    return tuple(found)


def work_for_server(hub: "Hub", report: Report) -> None:
    """Measure as the settings say, in a process of a server."""
    worker(hub=hub, report=report)


@dataclass(frozen=True)
class _Limits:
    """How every card is measured."""

    evidence: tuple[str, ...]
    questions: int
    memory: int
    seconds: int


@dataclass(frozen=True)
class _Worker:
    hub: "Hub"
    limits: _Limits
    report: Report
    stop: threading.Event

    def run(self, drain: bool) -> int:
        """Work until `stop` is set, or no job is due if `drain`."""
        name = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        done = 0
        while not self.stop.is_set():
            try:
                claim = self.hub.jobs.claim(name)
            except Unavailable as error:
                self.report(f"waiting: {error}")
                claim = None
            if claim is not None:
                done += self._work(claim)
            elif drain:
                break
            else:
                self.stop.wait(POLL_SECONDS)
        return done

    def _work(self, claim: "Claim") -> bool:
        """Do a job; whether it is done."""
        from kcard.hub.repositories.jobs import LeaseLost

        what = f"job {claim.job.number}, {claim.job.reference}"
        self.report(f"{what}: measuring (attempt {claim.job.attempts})")
        try:
            outcome = self._outcome(claim)
        except (LeaseLost, Unavailable) as error:
            outcome = f"given up: {error}"
        self.report(f"{what}: {outcome}")
        return outcome == DONE

    def _outcome(self, claim: "Claim") -> str:
        """Do a job; what came of it. Raises LeaseLost, and Unavailable if the database is."""
        from kcard.api.measurement import MeasurementFailed
        from kcard.hub.repositories.jobs import LeaseLost

        try:
            if self._measured(claim):
                return DONE
            self.hub.jobs.release(claim)
            return "put back"
        except LeaseLost:
            raise
        except (KcardError, OSError) as error:
            text, final = str(error), isinstance(error, MeasurementFailed) and error.final
            failed = self._patiently(lambda: self.hub.jobs.fail(claim, text, final=final))
            return f"{failed.state}: {failed.error}"

    def _measured(self, claim: "Claim") -> bool:
        """Measure the version of a job and complete it; False if the worker must stop first."""
        from kcard.api.measurement import Child, MeasurementFailed
        from kcard.hub.store.disk import partial_folder

        request = self._request(claim)
        with partial_folder(self.hub.partial) as scratch, Child(request, scratch) as child:
            beat = time.monotonic() + BEAT_SECONDS
            while child.running(STEP_SECONDS):
                if self.stop.is_set():
                    return False
                if time.monotonic() >= beat:
                    beat = time.monotonic() + BEAT_SECONDS
                    self._patiently(lambda: self.hub.jobs.extend(claim))
            findings = child.findings()
        if not findings:
            raise MeasurementFailed("no question can be made of what travels with the card", final=True)
        self._patiently(lambda: self.hub.jobs.complete(claim, findings))
        return True

    def _request(self, claim: "Claim") -> "Request":
        """Raises what Hub.folder raises."""
        from kcard.api.measurement import Request

        job, limits = claim.job, self.limits
        return Request(
            card=str(self.hub.folder(job.reference)),
            evidence=limits.evidence,
            questions=limits.questions,
            seed=job.seed,
            memory=limits.memory,
            seconds=limits.seconds,
        )

    def _patiently(self, action: Callable[[], T]) -> T:
        """Repeat an action while the database is unavailable, until half a lease is over."""
        end = time.monotonic() + 2 * BEAT_SECONDS
        while True:
            try:
                return action()
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(STEP_SECONDS)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGTERM and Ctrl-C, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silent(text: str) -> None:
    """A report that goes nowhere."""
