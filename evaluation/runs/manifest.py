"""What a run states, so that others can repeat it: its plan and, for each task and setting, what came out.

manifest.json holds a RunManifest; equal runs have equal manifests but for `started`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.run import Run, RunPlan
from kcard.evaluation.runs.summary import SettingSummary
from kcard.files import write_text
from kcard.json_values import build, canonical, parse

__all__ = ["MANIFEST", "TOLERANCE", "RunManifest", "StatedResult", "predictions_sha256", "read_manifest"]

MANIFEST = "manifest.json"
FORM = 1
TOLERANCE = 0.02


@dataclass(frozen=True)
class StatedResult:
    """The value of a task's `metric` under a setting with its 95 % interval, over n questions of which some failed.

    predictions  sha256 of all predictions, see predictions_sha256
    """

    task: str
    setting: str
    metric: str
    n: int
    errors: int
    value: float
    low: float
    high: float
    predictions: str


@dataclass(frozen=True)
class RunManifest:
    """A run as it is published. `tolerance`: by how much the value of a second run may differ."""

    plan: RunPlan
    results: tuple[StatedResult, ...]
    started: str
    tolerance: float = TOLERANCE
    form: int = FORM

    @classmethod
    def of(
        cls, run: Run, rows: Sequence[SettingSummary], results: Iterable[Result], tolerance: float = TOLERANCE
    ) -> "RunManifest":
        """The manifest of a run with these rows and results."""
        hashes = predictions_sha256(results)
        stated = tuple(
            StatedResult(
                task=row.task,
                setting=row.setting,
                metric=row.metric,
                n=row.n,
                errors=row.errors,
                value=row.value,
                low=row.low,
                high=row.high,
                predictions=hashes[row.task, row.setting],
            )
            for row in rows
        )
        return cls(run.plan, stated, run.started, tolerance)

    def write(self, folder: Path) -> Path:
        """Write manifest.json into the folder."""
        write_text(folder / MANIFEST, canonical(self), parents=True)
        return folder / MANIFEST


def read_manifest(path: Path) -> RunManifest:
    """The manifest in a file, or in a folder that holds manifest.json. Raises UsageError for anything else."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
        found = build(RunManifest, parse(text))
    except OSError as error:
        raise UsageError(f"can't read the manifest {file}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{file} is not the manifest of an evaluation: {error}") from error
    if found.form != FORM:
        raise UsageError(f"{file} has form {found.form}, this version reads form {FORM}: upgrade kcard")
    return found


def predictions_sha256(results: Iterable[Result]) -> Mapping[tuple[str, str], str]:
    """For each task and setting the sha256 of a JSON list of [question id, prediction], in the order of the run."""
    found: defaultdict[tuple[str, str], list[list[str]]] = defaultdict(list)
    for result in results:
        found[result.task, result.setting].append([result.id, result.prediction])
    return {
        key: hashlib.sha256(json.dumps(pairs, ensure_ascii=False).encode()).hexdigest()
        for key, pairs in found.items()
    }
