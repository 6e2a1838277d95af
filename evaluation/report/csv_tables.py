"""A report's tables as CSV: settings x tasks, and every question under every setting."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import right
from kcard.evaluation.report.report import Report
from kcard.evaluation.runs.result import Result
from kcard.files import replacing

__all__ = ["analysis_lines", "question_lines", "table_lines", "write_csv"]

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def table_lines(report: Report) -> Iterator[dict[str, Any]]:
    """What `kcard eval --json` says of each setting of each task, and its difference from the task's first setting."""
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


def question_lines(results: Iterable[Result], metrics: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One line for each result: what was asked, accepted and answered, what it cost, and which cards were used."""
    for result in results:
        passages = [p for p in result.trace.get("passages", ()) if isinstance(p, dict)]
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
            "right": int(right(result.scores, metrics[result.task])),
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
    """One line for each row of an analysis; of a mean with its interval three columns: NAME, NAME low, NAME high."""
    for row in analysis.rows:
        line: dict[str, Any] = {}
        for name, value in zip(analysis.columns, row, strict=True):
            if isinstance(value, Mean):
                line |= {name: value.mean, f"{name} low": value.low, f"{name} high": value.high}
            else:
                line[name] = value
        yield line


def write_csv(lines: Iterable[Mapping[str, Any]], path: Path | str) -> Path:
    """Write the lines, whole or not at all, in UTF-8; UsageError where that can't be done.

    A text that a spreadsheet would compute as a formula has an apostrophe before it.
    """
    path, lines = Path(path).expanduser(), list(lines)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    try:
        with replacing(path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, columns, restval="")
            writer.writeheader()
            writer.writerows({name: _safe(value) for name, value in line.items()} for line in lines)
            text.flush()
            text.detach()
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}") from error
    return path


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
