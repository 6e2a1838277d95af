"""A run in the Hugging Face Hub's formats: .eval_results/*.yaml for a model's repository, eval.yaml for a data set's.

The hub's pages show the former as self-declared (kcard.hub.server.reading.eval_results).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kcard.evaluation.runs.run import Run, RunPlan, RunTask
from kcard.evaluation.runs.summary import SettingSummary
from kcard.files import write_text

__all__ = ["write_results"]

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


def write_results(run: Run, rows: Sequence[SettingSummary], folder: Path) -> list[Path]:
    """Write eval.yaml and .eval_results/TASK.yaml into the folder; the files that were written."""
    written = [folder / EVAL]
    _write(folder / EVAL, _benchmark(run.plan))
    for task in run.plan.tasks:
        entries = [_entry(run, task, row) for row in rows if row.task == task.name]
        if entries:
            written.append(folder / FOLDER / f"{task.name}.yaml")
            _write(written[-1], entries)
    return written


def _entry(run: Run, task: RunTask, row: SettingSummary) -> dict[str, Any]:
    """One result: whose value it is, and all that it depends on in `notes`."""
    plan = run.plan
    cards = ", ".join(f"{name} (sha256 {digest[:12]})" for name, digest in plan.cards.items())
    parts = [
        f"setting {row.setting}",
        f"{row.metric}, 95 % interval {row.low:.4f} to {row.high:.4f}",
        f"{row.n} of {task.total} questions, {row.errors} failed",
        f"LLM {plan.llm}",
        *([f"cards {cards}"] if cards else []),
        f"seed {plan.seed}",
        f"data sha256 {task.sha256}",
        f"kcard {plan.versions.get('kcard', 'unknown')}",
    ]
    return {
        "dataset": {"id": DATASETS.get(task.name, task.name), "task_id": task.name},
        "value": round(row.value, DIGITS),
        "date": run.started,
        "notes": "; ".join(parts),
    }


def _benchmark(plan: RunPlan) -> dict[str, Any]:
    """What was asked, as the eval.yaml of a data set's repository."""
    return {
        "name": ", ".join(task.name for task in plan.tasks),
        "description": "Settings compared on the same questions: " + ", ".join(plan.settings),
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": task.name, "config": "default", "split": "test"} for task in plan.tasks],
    }


def _write(path: Path, data: Any) -> None:
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    write_text(path, text, parents=True)
