"""A run in the Hugging Face Hub's formats: .eval_results/*.yaml for a model's repository, eval.yaml for a data set's.

The hub's pages show the former (kcard.hub.server.reading.eval_results). A result that somebody declares is not
verified; what verifies it is asking again, with the manifest beside it (kcard.evaluation.runs.manifest).
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kcard.evaluation.runs.manifest import MANIFEST, RunManifest, StatedResult
from kcard.evaluation.runs.run import RunTask
from kcard.files import write_text

__all__ = ["DATASETS", "write_results"]

FOLDER = ".eval_results"
EVAL = "eval.yaml"
DIGITS = 6
FRAMEWORK = "kcard"
# The data sets on the Hugging Face Hub that tasks are taken from; other tasks are called by their own names.
DATASETS: Mapping[str, str] = {
    "hotpotqa": "hotpotqa/hotpot_qa",
    "mmlu": "cais/mmlu",
    "nq": "google-research-datasets/nq_open",
    "popqa": "akariasai/PopQA",
    "squad": "rajpurkar/squad",
    "triviaqa": "mandarjoshi/trivia_qa",
    "truthfulqa": "truthfulqa/truthful_qa",
}


def write_results(manifest: RunManifest, folder: Path) -> list[Path]:
    """Write manifest.json, eval.yaml and .eval_results/TASK.yaml into the folder; the files that were written."""
    file = manifest.write(folder)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    written = [file, folder / EVAL]
    _write(folder / EVAL, _benchmark(manifest))
    for task in manifest.plan.tasks:
        entries = [_entry(manifest, task, stated, sha256) for stated in _of(manifest, task)]
        if entries:
            written.append(folder / FOLDER / f"{task.name}.yaml")
            _write(written[-1], entries)
    return written


def _of(manifest: RunManifest, task: RunTask) -> Iterator[StatedResult]:
    return (stated for stated in manifest.results if stated.task == task.name)


def _entry(manifest: RunManifest, task: RunTask, stated: StatedResult, sha256: str) -> dict[str, Any]:
    """One result: whose value it is, and all that it depends on in `notes`."""
    plan = manifest.plan
    cards = ", ".join(f"{name} (sha256 {digest[:12]})" for name, digest in plan.cards.items())
    parts = [
        f"setting {stated.setting}",
        f"{stated.metric}, 95 % interval {stated.low:.4f} to {stated.high:.4f}",
        f"{stated.n} of {task.total} questions, {stated.errors} failed",
        f"LLM {plan.llm}",
        *([f"cards {cards}"] if cards else []),
        f"seed {plan.seed}",
        f"data sha256 {task.sha256}",
        f"{MANIFEST} sha256 {sha256}",
        f"kcard {plan.versions.get('kcard', 'unknown')}",
    ]
    return {
        "dataset": {"id": DATASETS.get(task.name, task.name), "task_id": task.name},
        "value": round(stated.value, DIGITS),
        "date": manifest.started,
        "notes": "; ".join(parts),
    }


def _benchmark(manifest: RunManifest) -> dict[str, Any]:
    """What was asked, as the eval.yaml of a data set's repository."""
    tasks = manifest.plan.tasks
    return {
        "name": ", ".join(task.name for task in tasks),
        "description": "Settings compared on the same questions: " + ", ".join(manifest.plan.settings),
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": task.name, "config": "default", "split": "test"} for task in tasks],
    }


def _write(path: Path, data: Any) -> None:
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    write_text(path, text, parents=True)
