"""Measures a card in a child process, so that no card can harm the process that has it measured."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.api.confinement import environment
from kcard.api.measuring import RESULT
from kcard.errors import CardError, KcardError

if TYPE_CHECKING:
    from kcard.evaluation.record import Exam
    from kcard.hub.repositories.audits import AuditFinding

__all__ = ["Child", "MeasurementFailed", "Request"]

MODULE = "kcard.api.measuring"
LARGEST_RESULT = 64 << 20  # bytes
LONGEST_ERROR = 300


class MeasurementFailed(KcardError):
    """The card was not measured. `final`: trying again would not help."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Request:
    """What to measure.

    card       the card's folder
    evidence   what to audit the card against, as for `kcard audit`; none: no audit
    questions  how many at most
    seed       of the questions and of the card's sampling
    memory     limit of the child's address space in bytes
    seconds    limit of its time
    """

    card: str
    evidence: tuple[str, ...]
    questions: int
    seed: int
    memory: int
    seconds: int


class Child:
    """A child process that measures; its folder must be empty. It does not outlive this process.

    with Child(request, folder) as child:
        while child.running(1.0): ...
        findings = child.findings()
    """

    def __init__(self, request: Request, folder: Path) -> None:
        self._request, self._folder = request, folder
        self._deadline = time.monotonic() + request.seconds
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE],
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended at once: `findings` says why
            self._process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            self._process.stdin.flush()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def running(self, seconds: float) -> bool:
        """Whether it still runs after waiting for at most so many seconds. Kills it at the end of its time.

        Raises MeasurementFailed then.
        """
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            if time.monotonic() < self._deadline:
                return True
            self.kill()
            raise MeasurementFailed(f"it took longer than {self._request.seconds} s") from None
        return False

    def kill(self) -> None:
        """End it, and whatever it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def findings(self) -> "list[AuditFinding]":
        """What it found. Raises MeasurementFailed."""
        result = self._result()
        if (error := result.get("error")) is not None:
            raise MeasurementFailed(str(error)[:LONGEST_ERROR], final=result.get("final") is True)
        return _findings(result)

    def _result(self) -> dict[str, Any]:
        path = self._folder / RESULT
        if self._process.returncode != 0 or not path.is_file() or path.stat().st_size > LARGEST_RESULT:
            raise MeasurementFailed(self._reason())
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise MeasurementFailed("its result can't be read") from None
        return found if isinstance(found, dict) else {}

    def _reason(self) -> str:
        """Why it ended without a result."""
        with self._errors.open("rb") as stream:
            stream.seek(max(0, self._errors.stat().st_size - LONGEST_ERROR))
            said = stream.read().decode(errors="replace").split("\n")
        last = "".join(
            c for c in next((line for line in reversed(said) if line.strip()), "") if c.isprintable()
        )
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"code {code}"
        limit = f"its limits are {self._request.memory} bytes of memory and {self._request.seconds} s"
        return f"its process ended with {how} ({last or limit})"


def _findings(result: dict[str, Any]) -> "list[AuditFinding]":
    from kcard.evaluation.audit import finding
    from kcard.evaluation.audit_record import Audit
    from kcard.evaluation.record import Exam

    try:
        exam = _exam_finding(Exam.from_json(result["exam"]))
        audit = None if "audit" not in result else finding(Audit.from_json(result["audit"]))
    except (CardError, TypeError) as error:
        raise MeasurementFailed(f"its result can't be read: {error}") from error
    return [each for each in (exam, audit) if each is not None]


def _exam_finding(exam: "Exam") -> "AuditFinding | None":
    """The hub's own exam as the hub keeps it; None if no question could be asked."""
    from kcard.evaluation.record import mean_of
    from kcard.hub.repositories.audits import AuditFinding

    if exam.own is None or exam.own.recall is None:
        return None
    return AuditFinding(
        checker=exam.checker,
        checker_sha256=exam.checker_sha256,
        evidence=None,
        evidence_sha256=None,
        queries=exam.own.asked,
        queries_sha256=exam.own.questions_sha256,
        seed=exam.seed,
        faithfulness=mean_of(exam.faithfulness),
        factuality=None,
        record=exam.to_json(),
        kind="exam",
        recall=exam.own.recall.mean,
    )
