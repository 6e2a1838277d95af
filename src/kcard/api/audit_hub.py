"""Audit the versions of a hub without a verified result, as a client of it (`kcard audit --unverified`).

Each card is downloaded, measured in a child process with limits, and its exam and audit are posted with an operator's
token. The hub stores who measured it, when, and with which version of kcard. The child is `python -m
kcard.api.audit_hub`: it reads a request, one line of JSON, writes RESULT, and ends when its stdin does.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.config import settings
from kcard.errors import CardError, HubError, KcardError, UsageError, one_line
from kcard.events import Event, OnEvent, ignore
from kcard.io import parse_size
from kcard.system import limit_process

if TYPE_CHECKING:
    from kcard.hub.audits import AuditFinding

RESULT, ERRORS = "result.json", "errors.txt"
MAX_RESULT_BYTES = 8 << 20
MAX_ERROR_CHARACTERS = 300
SEEDS = 2**31


# The environment and limits of child processes that read cards, which are not trusted.

MAX_FILE_BYTES = 256 << 20
NICE = 10  # requests to the hub come first


def environment(folder: Path) -> dict[str, str]:
    """Return variables that give a child the packages and models on this machine, but no token and no URL.

    folder  the home of the child
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    return {
        "HF_HUB_CACHE": HF_HUB_CACHE,
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "KCARD_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TOKENIZERS_PARALLELISM": "false",
    }


def limit(memory: int, seconds: int | None = None) -> None:
    """Limit this process: address space in bytes, processor time (None: unlimited), the size of files, priority."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # a sandbox may forbid it
        os.nice(NICE)
    limit_process(memory=memory, seconds=seconds, file_size=MAX_FILE_BYTES)


@dataclass(frozen=True)
class AuditOutcome:
    """The outcome for a version: its scores, in [0, 1], as they were stored, or the error.

    `coverage` is the share of the card's passages that the evidence covers, `independent` whether the evidence is not
    the card's own corpus.
    """

    reference: str
    recall: float | None = None
    faithfulness: float | None = None
    factuality: float | None = None
    coverage: float | None = None
    independent: bool = True
    error: str | None = None


@dataclass(frozen=True)
class AuditRequest:
    """A child's task.

    card       the card's folder
    evidence   what to audit the card against, as for `kcard audit`; none: an exam only
    questions  maximum number
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


def audit_unverified(
    hub: str,
    *,
    evidence: Sequence[str] = (),
    questions: int = 100,
    memory: str = "8GB",
    minutes: float = 60.0,
    on_event: OnEvent = ignore,
) -> Iterator[AuditOutcome]:
    """Measure the versions of a hub without a verified result, and yield the outcome of each.

    evidence  files, folders or names of evidence; default: the setting hub_evidence; without any, only exams are taken
    memory    limit for measuring a card, such as 8GB; `minutes` limits its time
    on_event  called with the number of finished versions (kind measuring)

    A card that can't be measured does not affect others. Raises UsageError for a wrong option, HubError if the hub
    refuses or does not answer.
    """
    from kcard.api.hub import credentials
    from kcard.hub.client.connection import normalise_url
    from kcard.hub.client.transfer import RemoteReference, download_card
    from kcard.hub.values import is_independent

    specs = check_evidence(evidence or settings().hub_evidence)
    limits = (questions, parse_size(memory), max(1, round(minutes * 60)))
    url = normalise_url(hub)
    token = credentials().token(url)
    # The versions without a verified result, as the hub lists them, page by page.
    versions: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = _call(url, token, "GET", f"unverified?after={int(after)}")
        versions += page["versions"]
        if page["next"] is not None and page["next"] <= after:
            raise HubError(f"{url} lists pages without end")
        after = page["next"]
    for done, version in enumerate(versions):
        on_event(Event("measuring", done=done, total=len(versions)))
        reference = f"{version['repository']}@v{version['number']}"
        # A seed that publishers can't predict, so that they can't train on the questions.
        count, most, seconds = limits
        try:
            there = RemoteReference(str(version["repository"]), str(version["commit"]))
            with download_card(url, token, there, settings().home / "downloads") as folder:
                seed = secrets.randbelow(SEEDS)
                findings = measure_card(AuditRequest(str(folder), specs, count, seed, most, seconds))
            body = {"repository": version["repository"], "version": version["version"]}
            _call(url, token, "POST", "audits", body | {"findings": [asdict(each) for each in findings]})
        except (KcardError, OSError) as error:
            yield AuditOutcome(reference, error=one_line(error, MAX_ERROR_CHARACTERS))
        else:
            # Of each figure the latest one.
            figures = dict.fromkeys(("recall", "faithfulness", "factuality", "coverage", "overlap"))
            for finding in findings:
                for name in figures:
                    value = getattr(finding, name)
                    if value is not None:
                        figures[name] = value
            yield AuditOutcome(reference, independent=is_independent(figures.pop("overlap")), **figures)
    if versions:
        on_event(Event("measuring", done=len(versions), total=len(versions)))


def check_evidence(specs: Sequence[str]) -> tuple[str, ...]:
    """Return the evidence with absolute paths. Raises UsageError for neither a path nor a name."""
    from kcard.selectors.evidence import names

    checked = []
    for spec in map(str, specs):
        path, is_name = Path(spec).expanduser(), spec.partition(":")[0] in names()
        if not is_name and not path.exists():
            raise UsageError(
                f"evidence {spec!r} does not exist: name a file, a folder or one of {', '.join(names())}, with "
                "--evidence or in the setting hub_evidence"
            )
        checked.append(spec if is_name else str(path.absolute()))
    return tuple(checked)


def _call(url: str, token: str | None, method: str, path: str, body: Any = None) -> Any:
    from huggingface_hub import utils

    from kcard.hub.client.connection import connect

    client: Any = utils  # its functions for requests are not exported for type checkers
    with connect(url, token):
        headers = client.build_hf_headers(token=token or False, library_name="kcard")
        response = client.get_session().request(method, f"{url}/api/kcard/{path}", json=body, headers=headers)
        client.hf_raise_for_status(response)
        return response.json()


def measure_card(request: AuditRequest) -> "list[AuditFinding]":
    """Measure a card in a child process, which is killed after its time and with this process.

    Raises CardError if the card can't be measured, or needs more than it may.
    """
    # Run the child in an empty folder.
    with tempfile.TemporaryDirectory(prefix="kcard-audit-") as name:
        folder = Path(name)
        command = [sys.executable, "-P", "-m", "kcard.api.audit_hub"]
        with (
            (folder / ERRORS).open("wb") as errors,
            subprocess.Popen(
                command,
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            ) as child,
        ):
            try:
                assert child.stdin is not None
                with suppress(OSError):  # it ended at once, and says why
                    child.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
                    child.stdin.flush()
                child.wait(request.seconds)
            except subprocess.TimeoutExpired:
                raise CardError(f"it took longer than {request.seconds} s") from None
            finally:  # also after Ctrl-C
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                with suppress(OSError):
                    child.stdin.close()  # type: ignore[union-attr]
        # Read its findings, or the last line of its errors.
        path = folder / RESULT
        if child.returncode or not path.is_file() or path.stat().st_size > MAX_RESULT_BYTES:
            with (folder / ERRORS).open("rb") as stream:
                stream.seek(max(0, (folder / ERRORS).stat().st_size - MAX_ERROR_CHARACTERS))
                text = stream.read().decode(errors="replace").strip()
            cause = f"its limits are {request.memory} bytes of memory and {request.seconds} s"
            if text:
                cause = text.splitlines()[-1]
            code = child.returncode
            how = f"signal {-code}" if code < 0 else f"code {code}"
            raise CardError(f"its process ended with {how} ({cause})")
        findings = parse_findings(path.read_text(encoding="utf-8"))
    if not findings:
        raise CardError("no question can be generated from the card's passages")
    return findings


def parse_findings(text: str) -> "list[AuditFinding]":
    """Parse the findings of a child process. Raises CardError if it reports an error, or if they are invalid."""
    from kcard.evaluation.audit import make_finding
    from kcard.evaluation.records import Audit, Exam, mean_of
    from kcard.hub.audits import AuditFinding

    try:
        result = json.loads(text)
        if "error" in result:
            raise CardError(str(result["error"])[:MAX_ERROR_CHARACTERS])
        findings, exam = [], Exam.from_json(result["exam"])
        if exam.own is not None and exam.own.recall is not None:
            findings.append(
                AuditFinding(
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
                    kcard=exam.kcard,
                )
            )
        if "audit" in result:
            findings.append(make_finding(Audit.from_json(result["audit"])))
        return findings
    except (ValueError, TypeError, KeyError) as error:
        raise CardError(f"its result can't be read: {one_line(error)}") from error


def main() -> None:
    """Measure the card of the request, in the child. A card is not trusted: before it is read, the process limits its
    memory, time and files, and forbids itself to start programs and, unless the evidence is on other servers, to open
    connections.
    """
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    import torch

    from kcard.api.exam import audit, exam
    from kcard.cards.pickle_process import guard
    from kcard.selectors.evidence import LOCAL, names
    from kcard.training.readers.process import read_in_this_process

    torch.set_num_threads(1)
    limit(request["memory"], request["seconds"])
    read_in_this_process()
    if not any(spec.partition(":")[0] in {*names()} - {LOCAL} for spec in request["evidence"]):
        guard(libraries=True)
    card, sample = Path(request["card"]), {"limit": request["questions"], "seed": request["seed"]}
    try:
        result = {"exam": exam(card, **sample, output=Path("written.json")).to_json()}
        if request["evidence"]:
            result["audit"] = audit(card, evidence=request["evidence"], engine=(), **sample).to_json()
    except KcardError as error:  # others are read from the traceback
        result = {"error": one_line(error)}
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
