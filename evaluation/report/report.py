"""The report of a run: its tables, paired tests and excerpt of questions, as CSV files and as a web page."""

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.analyses.answers import Analysis, format_cell
from kcard.evaluation.metrics import compare_scores, holm
from kcard.evaluation.plots import (
    Curves,
    Intervals,
    PlotPoint,
    PlotSeries,
    render_template,
    write_document,
)
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import OF_A_TASK, EvalResult
from kcard.evaluation.runs.run import Run
from kcard.evaluation.runs.summary import SettingSummary, summarise
from kcard.io import build, replacing

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
            both = [(result, seconds[id_]) for id_, result in firsts.items() if id_ in seconds]
            if not both:
                continue
            comparison = compare_scores(
                [a.score(metric) for a, _ in both], [b.score(metric) for _, b in both], seed
            )
            comparable.append(
                SettingPair(
                    task=task,
                    first=first,
                    second=second,
                    questions=comparison.n,
                    only_first=sum(a.is_right(metric) and not b.is_right(metric) for a, b in both),
                    only_second=sum(b.is_right(metric) and not a.is_right(metric) for a, b in both),
                    difference=Mean(comparison.difference, comparison.low, comparison.high),
                    p=comparison.p,
                    p_holm=comparison.p,
                )
            )
        # Correct p for all pairs of the task.
        adjusted = holm([pair.p for pair in comparable])
        tested += [replace(pair, p_holm=p) for pair, p in zip(comparable, adjusted, strict=True)]
    return tested


# The questions that a page shows in full, with their texts cut, so that the page of a large run stays readable.

QUESTIONS = 200
TEXT = 6_000  # characters of one text
PAGE = 8_000_000  # characters of all texts of a page
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

    Long texts of the `whole` results are cut, and questions left out, so that their texts have at most about PAGE
    characters.
    """
    # Whether each setting is right, which questions differ, and which are first in the order of choice.
    by_question: dict[Key, dict[str, bool]] = {}
    groups: dict[Key, str] = {}
    for result in results:
        key = result.task, result.id
        by_question.setdefault(key, {})[result.setting] = result.is_right(metrics[result.task])
        groups.setdefault(key, result.group)
    differing = {key for key, right in by_question.items() if len({*right.values()}) > 1}
    order = _order_questions(groups, differing)[:most]
    chosen = set(order)
    # Their results, with long texts cut.
    texts: dict[Key, dict[str, EvalResult]] = {}
    for result in whole:
        if (result.task, result.id) in chosen:
            texts.setdefault((result.task, result.id), {})[result.setting] = shorten_result(result)
    # As many as fit on the page.
    shown: set[Key] = set()
    room = PAGE
    for key in order:
        room -= sum(_characters(asdict(result)) for result in texts[key].values())
        if room < 0 and shown:
            break
        shown.add(key)
    return Excerpt(
        tuple(
            ShownQuestion(
                tuple((right, texts[key][s]) for s, right in by_question[key].items()), key in differing
            )
            for key in by_question
            if key in shown
        ),
        len(by_question),
        len(differing),
    )


def _order_questions(groups: Mapping[Key, str], differing: set[Key]) -> list[Key]:
    """Order the questions: those that differ first, and within each half one from each task and group in turn."""
    order: list[Key] = []
    for is_differing in (True, False):
        parts: dict[Key, list[Key]] = {}
        for key, group in groups.items():
            if (key in differing) is is_differing:
                parts.setdefault((key[0], group), []).append(key)
        order += [key for turn in zip_longest(*parts.values()) for key in turn if key is not None]
    return order


def shorten_result(result: EvalResult) -> EvalResult:
    """Return the result with every text cut to TEXT characters."""
    return build(EvalResult, _cut(asdict(result)))


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT:
        half = TEXT // 2
        return f"{value[:half]}\n[… {len(value) - 2 * half:,} characters left out …]\n{value[-half:]}"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, (list, tuple)) else 0


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
        return next((row for row in self.of(task) if row.setting == setting), None)

    def reference(self, task: str) -> str:
        """Return the setting that the others are compared with: the first one of the task."""
        return self.of(task)[0].setting

    def pair(self, task: str, first: str, second: str) -> SettingPair | None:
        """Return the comparison of the first setting with the second; None if there is none."""
        for pair in self.pairs:
            if pair.task == task and {pair.first, pair.second} == {first, second} and first != second:
                return pair if pair.first == first else pair.turned
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
    metrics = metrics_of(run)
    if not results:
        raise UsageError(
            f"run {run.number} has no results yet: continue it with `kcard eval --resume {run.number}`"
        )
    return Report(
        run,
        tuple(summarise(run.plan, results)),
        tuple(compare_pairs(results, metrics, run.plan.seed)),
        make_excerpt(results, metrics, results if whole is None else whole, questions),
        tuple(analyses),
    )


def metrics_of(run: Run) -> Mapping[str, str]:
    """Return the metric of every task."""
    return {task.name: task.metric for task in run.plan.tasks}


# Figures and conclusions of a report in words.

METRICS = {"em": "exact match", "f1": "F1", "substring": "substring match", "macro-f1": "macro F1"}

SIGNIFICANT = 0.05


def amount(value: float | None, digits: int = 2) -> str:
    """Format a number with a few digits; a dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if abs(value) >= 0.01 or abs(value) < 0.001 else f"{value:.1g}"


def metric_name(metric: str) -> str:
    """Return the display name of a metric."""
    return METRICS.get(metric, metric.replace("-", " "))


def probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


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
        # The test compares accuracy if the metric is one of whole tasks; then the sentence says so.
        metric = OF_A_TASK.get(best.metric, "")
        d, label, p = pair.difference, f"{metric} " if metric else "", probability(best.p_holm)
        gain = f"; {label}{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] over {pair.second}"
        gain += f" (p {p})" if best.p_holm < SIGNIFICANT else f", which may be chance (p {p})"
    return f"{best.setting} has the highest {name}, {score}{gain}."


# The tables of a report as CSV: every setting of every task, and every question under every setting.

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the first characters of texts that spreadsheets evaluate


def table_lines(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the row of `kcard eval --json` for each setting of each task, and its difference from the first setting."""
    for row in report.rows:
        line = row.to_json(report.run.number)
        low, high = line.pop("interval")
        pair = report.pair(row.task, row.setting, report.reference(row.task))
        difference = pair and pair.difference
        yield line | {
            "low": low,
            "high": high,
            "difference": difference and round(difference.mean, 4),
            "difference_low": difference and round(difference.low, 4),
            "difference_high": difference and round(difference.high, 4),
        }


def question_lines(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a line for each result: question, accepted answers, prediction, cost and cards."""
    for result in results:
        passages = result.passages
        gate = result.trace.get("gate", {})
        yield {
            "task": result.task,
            "setting": result.setting,
            "id": result.id,
            "group": result.group,
            "question": result.question,
            "choices": json.dumps(dict(result.choices), ensure_ascii=False) if result.choices else "",
            "answers": json.dumps(list(result.answers), ensure_ascii=False),
            "prediction": result.prediction,
            "right": int(result.is_right(metrics[result.task])),
            **{name: result.scores.get(name, "") for name in ("em", "f1", "substring", "accuracy")},
            "calls": len(result.calls),
            "tokens_in": result.tokens_in,
            "tokens_out": result.tokens_out,
            "seconds": round(result.seconds, 4),
            "gate_score": gate.get("score"),
            "gate_fired": gate.get("fired"),
            "cards": json.dumps([p.get("card") for p in passages], ensure_ascii=False),
            "cards_kept": json.dumps([p.get("card") for p in passages if p.get("kept")], ensure_ascii=False),
            "error": result.error,
        }


def analysis_lines(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a line for each row of an analysis; a mean becomes three columns: NAME, NAME low and NAME high."""
    for row in analysis.rows:
        line: dict[str, Any] = {}
        for name, value in zip(analysis.columns, row, strict=True):
            if isinstance(value, Mean):
                line |= {name: value.mean, f"{name} low": value.low, f"{name} high": value.high}
            else:
                line[name] = value
        yield line


def write_csv(lines: Iterable[Mapping[str, Any]], path: Path | str) -> Path:
    """Write the lines to a CSV file in UTF-8, atomically. Raises UsageError if that fails.

    Texts that a spreadsheet would evaluate as formulas are prefixed with an apostrophe.
    """
    path, lines = Path(path).expanduser(), list(lines)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    try:
        with replacing(path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, columns, restval="")
            writer.writeheader()
            for line in lines:
                writer.writerow(
                    {
                        name: f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
                        for name, value in line.items()
                    }
                )
            text.flush()
            text.detach()
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}") from error
    return path


# The web page of a report, with the traces of its questions.
#
# A trace may come from another version of kcard or be edited by hand, so its structure is not trusted.

# The fields of a trace (kcard.types.Answer.to_json) that the page shows, with their types.
PLACE = {"file": str, "line": object, "section": str}
SCORES = ("relevance", "faithfulness", "factuality")
PASSAGE = {"card": str, "text": str, "pruned": str, "kept": bool, **dict.fromkeys(SCORES, float)}
TRACE = {
    "gate": {"name": str, "score": float, "fired": bool},
    "cards": [str],
    "passages": [PASSAGE | {"source": PLACE, "evidence": {"text": str, **PLACE}}],
    "citations": [{"sentence": str, "passage": int, "support": float, "verdict": str}],
    "confidence": float,
    "nearest": {"text": str, **PLACE},
    "notes": [str],
}


def parse_trace(data: Any, shape: Any = TRACE) -> Any:
    """Return the trace in this shape: what is missing or of another type becomes an empty text or list, or None."""
    if isinstance(shape, dict):
        return {
            key: parse_trace(data.get(key) if isinstance(data, dict) else None, inner)
            for key, inner in shape.items()
        }
    if isinstance(shape, list):
        return [parse_trace(item, shape[0]) for item in data] if isinstance(data, list | tuple) else []
    if shape is str:
        return "" if data is None else str(data)
    if shape is float and type(data) is int:
        return float(data)
    return data if shape is object or type(data) is shape else None


def format_place(source: Mapping[str, Any]) -> str:
    """Format the file, line and section of a source, as far as they are known."""
    line = f"line {source['line']}" if source["file"] and source["line"] else ""
    return ", ".join(filter(None, (source["file"], line, source["section"])))


# A report as a self-contained web page, without scripts or network access, under a strict content security policy.

FOLDER = Path(__file__).parent


def render(report: Report) -> str:
    """Render the page as HTML. Texts of cards, LLMs and data are escaped."""
    groups = sorted({shown.question.group for shown in report.excerpt.questions} - {""})
    # The style sheet, with rules that filter the questions by the page's controls.
    rules = [(FOLDER / "report.css").read_text(encoding="utf-8")]
    controls = (
        ("task", "t", len(report.tasks)),
        ("group", "g", len(groups)),
        ("right", "r", len(report.settings)),
        ("wrong", "w", len(report.settings)),
        ("differ", "d", 1),
    )
    for control, letter, count in controls:
        for i in range(count):
            hidden = f'main:has(#f-{control} option[value="{i}"]:checked) .q:not(.{letter}{i})'
            rules.append(f"{hidden} {{ display: none; }}")
    style = "\n".join(rules)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render_template(
        FOLDER / "report.html",
        report=report,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
        groups=groups,
        accuracy=accuracy,
        score=score,
        against=against,
        amount=amount,
        cell=format_cell,
        headline=headline,
        metric_name=metric_name,
        of_a_task=OF_A_TASK,
        other_scores=other_scores,
        probability=probability,
        trace=parse_trace,
        place=format_place,
        score_names=SCORES,
    )


def write_page(report: Report, path: Path | str) -> Path:
    """Write the page to `path`, atomically. Raises UsageError if that fails."""
    return write_document(path, render(report))


def accuracy(report: Report, task: str) -> Intervals:
    """Return a chart of every setting's score with its interval."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    points = tuple(PlotPoint(row.setting, score(row)) for row in rows)
    return Intervals(f"{metric} on {task}, 95 % interval", points, rows[0].value if len(rows) > 1 else None)


def against(report: Report, task: str, cost: str) -> Curves:
    """Return a chart of every setting's score against its `cost` per question: "calls" or "seconds"."""
    rows = report.of(task)
    label = {"calls": "LLM calls a question", "seconds": "seconds a question"}[cost]
    series = [PlotSeries.of(row.setting, [(getattr(row, cost) / row.n, score(row))]) for row in rows]
    return Curves(label, metric_name(rows[0].metric), tuple(series), "dot")


def score(row: SettingSummary) -> Mean:
    """Return the task's metric with its interval."""
    return Mean(row.value, row.low, row.high)
