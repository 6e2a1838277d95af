"""Summaries of a run: a row for each setting, and the Hugging Face Hub's result files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kcard.evaluation.metrics import (
    balanced_accuracy,
    balanced_interval,
    compare_scores,
    holm,
    interval,
    macro_f1,
)
from kcard.evaluation.runs.run import EvalResult, Prices, RecordedCall, Run, RunPlan, RunTask
from kcard.io import write_text
from kcard.types import add_counts

DIGITS = 4
BALANCED = "balanced-accuracy"


@dataclass(frozen=True)
class SettingSummary:
    """A setting on a task. Scores are means over all `n` questions, in [0, 1]; failed questions count as wrong.

    value, low, high  the task's own `metric` with its 95 % interval
    p, p_holm         of the paired test against the first setting, and corrected for all settings of the task; None for
                      the first setting
    calls             requests to the LLM; tokens_in, tokens_out: of all of them, None if the backend reports none
    cost              None without prices
    seconds           of all questions together
    errors            questions that failed
    missing           questions without a result
    """

    task: str
    setting: str
    metric: str
    n: int
    value: float
    low: float
    high: float
    p: float | None
    p_holm: float | None
    em: float
    f1: float
    substring: float
    accuracy: float | None
    balanced_accuracy: float | None
    macro_f1: float | None
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    cost: float | None
    seconds: float
    errors: int
    missing: int = 0

    def to_json(self, run: int) -> dict[str, Any]:
        """Return the row as `kcard eval --json` prints it."""
        data = {
            key: round(value, DIGITS)
            if isinstance(value, float) and key not in ("p", "p_holm", "cost")
            else value
            for key, value in asdict(self).items()
        }
        low, high = data.pop("low"), data.pop("high")
        return data | {"interval": [low, high], "run": run}


def summarise(
    plan: RunPlan, results: Iterable[EvalResult], prices: Prices | None = None
) -> list[SettingSummary]:
    """Return a row for each task and setting that has results, in the order of the plan."""
    by_setting: defaultdict[tuple[str, str], list[EvalResult]] = defaultdict(list)
    for result in results:
        # The texts of a run may be larger than memory; only the number of calls is needed.
        without_texts = replace(result, trace={}, calls=(RecordedCall("", "", ""),) * len(result.calls))
        by_setting[result.task, result.setting].append(without_texts)
    rows = []
    for task in plan.tasks:
        settings = {s: by_setting[task.name, s] for s in plan.settings if by_setting[task.name, s]}
        if not settings:
            continue  # an interrupted run did not come to this task
        # p of each setting against the first, on the questions that both have, and p corrected for all (Holm).
        first, *others = [_scores(task, part) for part in settings.values()]
        ps = []
        for scores in others:
            both = [i for i in scores if i in first]
            ps.append(compare_scores([scores[i] for i in both], [first[i] for i in both]).p if both else 1.0)
        tests: list[tuple[float | None, float | None]] = [(None, None), *zip(ps, holm(ps), strict=True)]
        for (setting, part), (p, adjusted) in zip(settings.items(), tests, strict=True):
            rows.append(_summarise_setting(task, setting, part, p, adjusted, prices or Prices()))
    return rows


def _scores(task: RunTask, results: Iterable[EvalResult]) -> dict[str, float]:
    """Return the score of each question by the task's metric; by accuracy for a metric of whole tasks."""
    metric = "accuracy" if task.metric == BALANCED else task.metric
    return {result.id: result.scores.get(metric, result.scores["em"]) for result in results}


def _summarise_setting(
    task: RunTask,
    setting: str,
    results: Sequence[EvalResult],
    p: float | None,
    adjusted: float | None,
    prices: Prices,
) -> SettingSummary:
    scores = list(_scores(task, results).values())
    value, (low, high) = _mean(scores), interval(scores)
    choice = all("accuracy" in result.scores for result in results)
    # The chosen and the right options: their texts if they are classes, else their letters.
    predicted, actual = [], []
    for result in results if choice else ():
        answer = result.prediction if result.prediction in result.answers else result.answers[0]
        classes = result.choices if task.metric == BALANCED else {letter: letter for letter in result.choices}
        predicted.append(classes.get(result.prediction, ""))
        actual.append(classes[answer])
    if task.metric == BALANCED:
        value = balanced_accuracy(predicted, actual)
        low, high = balanced_interval(predicted, actual)
    return SettingSummary(
        task=task.name,
        setting=setting,
        metric=task.metric,
        n=len(results),
        value=value,
        low=low,
        high=high,
        p=p,
        p_holm=adjusted,
        em=_mean([result.scores["em"] for result in results]),
        f1=_mean([result.scores["f1"] for result in results]),
        substring=_mean([result.scores["substring"] for result in results]),
        accuracy=_mean([result.scores["accuracy"] for result in results]) if choice else None,
        balanced_accuracy=balanced_accuracy(predicted, actual) if choice else None,
        macro_f1=macro_f1(predicted, actual) if choice else None,
        calls=sum(len(result.calls) for result in results),
        tokens_in=add_counts(result.tokens_in for result in results),
        tokens_out=add_counts(result.tokens_out for result in results),
        cost=prices.cost(results),
        seconds=sum(result.seconds for result in results),
        errors=sum(bool(result.error) for result in results),
        missing=len(task.ids) - len(results),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# The Hugging Face Hub's formats: .eval_results/*.yaml for the repository of a model, eval.yaml for that of a data set.
# The hub's pages show the former as self-declared (kcard.hub.server.results).

FOLDER = ".eval_results"
EVAL = "eval.yaml"
EVAL_RESULTS_DIGITS = 6
FRAMEWORK = "kcard"
# The data sets of tasks on the Hugging Face Hub; other tasks keep their own names.
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
    """Write eval.yaml and .eval_results/TASK.yaml into the folder, and return their paths."""
    written = [folder / EVAL]
    # The tasks, as in the eval.yaml of a data set's repository.
    benchmark = {
        "name": ", ".join(task.name for task in run.plan.tasks),
        "description": "Settings compared on the same questions: " + ", ".join(run.plan.settings),
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": task.name, "config": "default", "split": "test"} for task in run.plan.tasks],
    }
    _write_yaml(folder / EVAL, benchmark)
    # The value of every setting of every task, with everything that it depends on in `notes`.
    plan = run.plan
    cards = ", ".join(f"{name} (sha256 {digest[:12]})" for name, digest in plan.cards.items())
    for task in plan.tasks:
        entries = []
        for row in (row for row in rows if row.task == task.name):
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
            entries.append(
                {
                    "dataset": {"id": DATASETS.get(task.name, task.name), "task_id": task.name},
                    "value": round(row.value, EVAL_RESULTS_DIGITS),
                    "date": run.started,
                    "notes": "; ".join(parts),
                }
            )
        if entries:
            written.append(folder / FOLDER / f"{task.name}.yaml")
            _write_yaml(written[-1], entries)
    return written


def _write_yaml(path: Path, data: Any) -> None:
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    write_text(path, text, parents=True)
