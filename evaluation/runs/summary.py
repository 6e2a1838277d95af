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
from kcard.evaluation.runs.results import EvalResult, RecordedCall
from kcard.evaluation.runs.run import Run, RunPlan, RunTask
from kcard.io import write_text
from kcard.trace import add_counts

SCORE_DIGITS = 4
BALANCED_ACCURACY = "balanced-accuracy"
MILLION = 1_000_000


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
        data = asdict(self)
        for key, value in data.items():
            if isinstance(value, float) and key not in ("p", "p_holm", "cost"):
                data[key] = round(value, SCORE_DIGITS)
        low, high = data.pop("low"), data.pop("high")
        return data | {"interval": [low, high], "run": run}


def summarise(plan: RunPlan, results: Iterable[EvalResult]) -> list[SettingSummary]:
    """Return a row for each task and setting that has results, in the order of the plan."""
    by_setting: defaultdict[tuple[str, str], list[EvalResult]] = defaultdict(list)
    for result in results:
        # The texts of a run may be larger than memory; only the number of calls is needed.
        without_texts = replace(result, trace={}, calls=(RecordedCall("", "", ""),) * len(result.calls))
        by_setting[result.task, result.setting].append(without_texts)
    rows = []
    for task in plan.tasks:
        settings = [setting for setting in plan.settings if by_setting[task.name, setting]]
        if not settings:
            continue  # an interrupted run did not come to this task
        # p of each setting against the first, on the questions that both have, and p corrected for all (Holm).
        first = _scores_by_id(by_setting[task.name, settings[0]], task.metric)
        ps = []
        for setting in settings[1:]:
            scores = _scores_by_id(by_setting[task.name, setting], task.metric)
            both = [id_ for id_ in scores if id_ in first]
            p = 1.0
            if both:
                p = compare_scores([scores[id_] for id_ in both], [first[id_] for id_ in both]).p
            ps.append(p)
        tests: list[tuple[float | None, float | None]] = [(None, None), *zip(ps, holm(ps), strict=True)]
        for setting, (p_value, p_holm) in zip(settings, tests, strict=True):
            row = _summarise_setting(task, setting, by_setting[task.name, setting], plan.options)
            rows.append(replace(row, p=p_value, p_holm=p_holm))
    return rows


def _scores_by_id(results: Sequence[EvalResult], metric: str) -> dict[str, float]:
    return {result.id: result.score(metric) for result in results}


def _summarise_setting(
    task: RunTask, setting: str, results: Sequence[EvalResult], options: Mapping[str, Any]
) -> SettingSummary:
    """Return the row of a setting, without its p."""
    scores = [result.score(task.metric) for result in results]
    value, (low, high) = sum(scores) / len(scores), interval(scores)
    accuracy = balanced = f1_of_classes = None
    if all("accuracy" in result.scores for result in results):
        predicted, actual = _read_choices(task, results)
        accuracy = _mean_score(results, "accuracy")
        balanced = balanced_accuracy(predicted, actual)
        f1_of_classes = macro_f1(predicted, actual)
        if task.metric == BALANCED_ACCURACY:
            value = balanced
            low, high = balanced_interval(predicted, actual)
    return SettingSummary(
        task=task.name,
        setting=setting,
        metric=task.metric,
        n=len(results),
        value=value,
        low=low,
        high=high,
        p=None,
        p_holm=None,
        em=_mean_score(results, "em"),
        f1=_mean_score(results, "f1"),
        substring=_mean_score(results, "substring"),
        accuracy=accuracy,
        balanced_accuracy=balanced,
        macro_f1=f1_of_classes,
        calls=sum(len(result.calls) for result in results),
        tokens_in=add_counts(result.tokens_in for result in results),
        tokens_out=add_counts(result.tokens_out for result in results),
        cost=_cost(results, options.get("price_in"), options.get("price_out")),
        seconds=sum(result.seconds for result in results),
        errors=sum(bool(result.error) for result in results),
        missing=len(task.ids) - len(results),
    )


def _read_choices(task: RunTask, results: Sequence[EvalResult]) -> tuple[list[str], list[str]]:
    """Return the chosen and the right option of each result: their texts if they are classes, else their letters."""
    predicted, actual = [], []
    for result in results:
        answer = result.answers[0]
        if result.prediction in result.answers:
            answer = result.prediction
        if task.metric == BALANCED_ACCURACY:
            predicted.append(result.choices.get(result.prediction, ""))
            actual.append(result.choices[answer])
        else:
            predicted.append(result.prediction if result.prediction in result.choices else "")
            actual.append(answer)
    return predicted, actual


def _cost(results: Sequence[EvalResult], price_in: float | None, price_out: float | None) -> float | None:
    """Return the cost at these prices of a million tokens; None without prices, or if a result has unknown tokens."""
    if price_in is None and price_out is None:
        return None
    total = 0.0
    for result in results:
        if result.tokens_in is None or result.tokens_out is None:
            return None
        total += result.tokens_in * (price_in or 0) + result.tokens_out * (price_out or 0)
    return total / MILLION


def _mean_score(results: Sequence[EvalResult], metric: str) -> float:
    return sum(result.scores[metric] for result in results) / len(results)


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
        for row in rows:
            if row.task != task.name:
                continue
            notes = [
                f"setting {row.setting}",
                f"{row.metric}, 95 % interval {row.low:.4f} to {row.high:.4f}",
                f"{row.n} of {task.total} questions, {row.errors} failed",
                f"LLM {plan.llm}",
                f"seed {plan.seed}",
                f"data sha256 {task.sha256}",
                f"kcard {plan.versions.get('kcard', 'unknown')}",
            ]
            if cards:
                notes.insert(4, f"cards {cards}")
            entries.append(
                {
                    "dataset": {"id": DATASETS.get(task.name, task.name), "task_id": task.name},
                    "value": round(row.value, EVAL_RESULTS_DIGITS),
                    "date": run.started,
                    "notes": "; ".join(notes),
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
