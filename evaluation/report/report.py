"""The report of a run: its table, paired tests, analyses, and the questions to show in full."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, zip_longest
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.metrics import compare_scores, holm
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import OF_A_TASK, EvalResult
from kcard.evaluation.runs.run import Run
from kcard.evaluation.runs.summary import SettingSummary, summarise
from kcard.io import build

# Paired comparisons of every two settings of a task.


@dataclass(frozen=True)
class SettingPair:
    """Two settings on the same questions of a task.

    only_first, only_second  number of questions that only one of them answered
    difference               mean score of the first minus that of the second, with the paired bootstrap's 95 % interval
    p                        two-sided, of McNemar's exact test; for scores between 0 and 1, of the permutation test
    p_holm                   p corrected for all pairs of the task (Holm, 1979)
    """

    task: str
    first: str
    second: str
    questions: int
    only_first: int
    only_second: int
    difference: Mean
    p: float
    p_holm: float

    @property
    def turned(self) -> "SettingPair":
        """The same comparison with the settings swapped."""
        d = self.difference
        return replace(
            self,
            first=self.second,
            second=self.first,
            only_first=self.only_second,
            only_second=self.only_first,
            difference=Mean(0.0 - d.mean, 0.0 - d.high, 0.0 - d.low),  # avoids -0.0
        )


def compare_pairs(
    results: Sequence[EvalResult], metrics: Mapping[str, str], seed: int = 0
) -> list[SettingPair]:
    """Compare every two settings of every task on the questions that both have."""
    # The results by task, setting and question.
    by_task: dict[str, dict[str, dict[str, EvalResult]]] = {}
    for result in results:
        by_task.setdefault(result.task, {}).setdefault(result.setting, {})[result.id] = result
    tested: list[SettingPair] = []
    for task, settings in by_task.items():
        metric = metrics[task]
        # Every two settings that share a question.
        comparable = []
        for (first, firsts), (second, seconds) in combinations(settings.items(), 2):
            ids = [id_ for id_ in firsts if id_ in seconds]
            if not ids:
                continue
            scores = [firsts[id_].score(metric) for id_ in ids]
            other_scores = [seconds[id_].score(metric) for id_ in ids]
            comparison = compare_scores(scores, other_scores, seed)
            only_first = only_second = 0
            for id_ in ids:
                is_right, is_other_right = firsts[id_].is_right(metric), seconds[id_].is_right(metric)
                only_first += is_right and not is_other_right
                only_second += is_other_right and not is_right
            comparable.append(
                SettingPair(
                    task=task,
                    first=first,
                    second=second,
                    questions=comparison.n,
                    only_first=only_first,
                    only_second=only_second,
                    difference=Mean(comparison.difference, comparison.low, comparison.high),
                    p=comparison.p,
                    p_holm=comparison.p,
                )
            )
        # Correct p for all pairs of the task.
        adjusted = holm([pair.p for pair in comparable])
        for pair, p_holm in zip(comparable, adjusted, strict=True):
            tested.append(replace(pair, p_holm=p_holm))
    return tested


# The questions that a page shows in full, with their texts cut, so that the page of a large run stays readable.

QUESTIONS = 200
MAX_TEXT_CHARACTERS = 6_000
Key = tuple[str, str]  # task and id of a question


@dataclass(frozen=True)
class ShownQuestion:
    """A question with its result under each setting, and whether it is right. `differ`: whether some settings answered
    it and others did not."""

    results: tuple[tuple[bool, EvalResult], ...]
    differ: bool

    @property
    def question(self) -> EvalResult:
        """The first result, for the question's text and group."""
        return self.results[0][1]


@dataclass(frozen=True)
class Excerpt:
    """The questions that a page shows, of `total`, in the order of the run. `differing`: how many differ."""

    questions: tuple[ShownQuestion, ...]
    total: int
    differing: int

    @property
    def left_out(self) -> int:
        return self.total - len(self.questions)


def make_excerpt(
    results: Sequence[EvalResult],
    metrics: Mapping[str, str],
    whole: Iterable[EvalResult],
    most: int = QUESTIONS,
) -> Excerpt:
    """Choose at most `most` questions: those on which settings differ first, one from each task and group in turn.

    Their `whole` results are shown, with long texts cut.
    """
    # Whether each setting is right; of each task and group, the questions on which settings differ, and the others.
    by_question: dict[Key, dict[str, bool]] = {}
    groups: dict[Key, str] = {}
    for result in results:
        key = result.task, result.id
        by_question.setdefault(key, {})[result.setting] = result.is_right(metrics[result.task])
        groups.setdefault(key, result.group)
    differing: dict[Key, list[Key]] = {}
    others: dict[Key, list[Key]] = {}
    for key, right in by_question.items():
        parts = others
        if len(set(right.values())) > 1:
            parts = differing
        parts.setdefault((key[0], groups[key]), []).append(key)
    order: list[Key] = []
    for parts in (differing, others):
        for turn in zip_longest(*parts.values()):
            order += filter(None, turn)
    # The results of the chosen ones, in the order of the run.
    chosen = set(order[:most])
    texts: dict[Key, dict[str, EvalResult]] = {}
    for result in whole:
        if (result.task, result.id) in chosen:
            texts.setdefault((result.task, result.id), {})[result.setting] = shorten_result(result)
    shown = []
    for key, right in by_question.items():
        if key in chosen:
            pairs = [(is_right, texts[key][setting]) for setting, is_right in right.items()]
            shown.append(ShownQuestion(tuple(pairs), len(set(right.values())) > 1))
    return Excerpt(tuple(shown), len(by_question), sum(map(len, differing.values())))


def shorten_result(result: EvalResult) -> EvalResult:
    """Return the result with every text cut to MAX_TEXT_CHARACTERS."""
    return build(EvalResult, _cut(asdict(result)))


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS:
        half = MAX_TEXT_CHARACTERS // 2
        return f"{value[:half]}\n[… {len(value) - 2 * half:,} characters left out …]\n{value[-half:]}"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(inner) for inner in value]
    return value


@dataclass(frozen=True)
class Report:
    """A run with its table, its paired tests, its analyses, and the questions to show in full."""

    run: Run
    rows: tuple[SettingSummary, ...]
    pairs: tuple[SettingPair, ...]
    excerpt: Excerpt
    analyses: tuple[Analysis, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    def of(self, task: str) -> tuple[SettingSummary, ...]:
        """Return the rows of a task."""
        return tuple(row for row in self.rows if row.task == task)

    def row(self, task: str, setting: str) -> SettingSummary | None:
        for row in self.of(task):
            if row.setting == setting:
                return row
        return None

    def reference(self, task: str) -> str:
        """Return the setting that the others are compared with: the first one of the task."""
        return self.of(task)[0].setting

    def pair(self, task: str, first: str, second: str) -> SettingPair | None:
        """Return the comparison of the first setting with the second; None if there is none."""
        for pair in self.pairs:
            if pair.task == task and {pair.first, pair.second} == {first, second} and first != second:
                if pair.first == first:
                    return pair
                return pair.turned
        return None


def make_report(
    run: Run,
    results: Sequence[EvalResult],
    questions: int = QUESTIONS,
    analyses: Sequence[Analysis] = (),
    whole: Iterable[EvalResult] | None = None,
) -> Report:
    """Return the report of a run.

    questions  maximum number of questions to show in full
    whole      the results with their texts, if `results` have none (drop_texts)

    Raises UsageError if there are no results.
    """
    if whole is None:
        whole = results
    metrics = metrics_of(run)
    if not results:
        raise UsageError(
            f"run {run.number} has no results yet: continue it with `kcard eval --resume {run.number}`"
        )
    return Report(
        run,
        tuple(summarise(run.plan, results)),
        tuple(compare_pairs(results, metrics, run.plan.seed)),
        make_excerpt(results, metrics, whole, questions),
        tuple(analyses),
    )


def metrics_of(run: Run) -> Mapping[str, str]:
    """Return the metric of every task."""
    return {task.name: task.metric for task in run.plan.tasks}


# Figures and conclusions of a report in words.

METRICS = {"em": "exact match", "f1": "F1", "substring": "substring match", "macro-f1": "macro F1"}

SIGNIFICANCE_LEVEL = 0.05


def amount(value: float | None, digits: int = 2) -> str:
    """Format a number with a few digits; a dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if 0.001 <= abs(value) < 0.01:
        return f"{value:.1g}"
    return f"{value:.{digits}f}"


def metric_name(metric: str) -> str:
    """Return the display name of a metric."""
    return METRICS.get(metric, metric.replace("-", " "))


def probability(p: float) -> str:
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def other_scores(row: SettingSummary) -> Mapping[str, float]:
    """Return a setting's scores in metrics other than the task's own.

    For multiple choice these are accuracy, balanced accuracy and macro F1, since em, F1 and substring equal accuracy.
    """
    if row.accuracy is None:
        scores: dict[str, float | None] = {"em": row.em, "f1": row.f1, "substring": row.substring}
    else:
        scores = {
            "accuracy": row.accuracy,
            "balanced-accuracy": row.balanced_accuracy,
            "macro-f1": row.macro_f1,
        }
    return {name: value for name, value in scores.items() if name != row.metric and value is not None}


def headline(report: Report, task: str) -> str:
    """Return a sentence that names the best setting of a task and says whether its lead is significant."""
    rows = report.of(task)
    best = max(rows, key=lambda row: row.value)
    base = report.reference(task)
    name = metric_name(best.metric)
    score = f"{best.value:.3f} [{best.low:.3f}, {best.high:.3f}]"
    if len(rows) == 1:
        return f"{best.setting} has {name} {score}."
    if best.setting == base:
        return f"No setting has a higher {name} than {base}: {score}."
    pair = report.pair(task, best.setting, base)
    gain = ""
    if pair is not None and best.p_holm is not None:
        d = pair.difference
        gain = f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] over {pair.second}"
        # The test compares accuracy if the metric is one of whole tasks; then the sentence says so.
        if best.metric in OF_A_TASK:
            gain = f"{OF_A_TASK[best.metric]} {gain}"
        if best.p_holm >= SIGNIFICANCE_LEVEL:
            gain += ", which may be chance"
        gain = f"; {gain} (p {probability(best.p_holm)})"
    return f"{best.setting} has the highest {name}, {score}{gain}."
