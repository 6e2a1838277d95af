"""The tables of a report as CSV: every setting of every task, every question under every setting, and analyses."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.records import Mean
from kcard.evaluation.report.report import Report
from kcard.evaluation.runs.results import EvalResult
from kcard.io import write_text

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
        choices = ""
        if result.choices:
            choices = json.dumps(dict(result.choices), ensure_ascii=False)
        cards, kept_cards = [], []
        for passage in result.passages:
            cards.append(passage.get("card"))
            if passage.get("kept"):
                kept_cards.append(passage.get("card"))
        gate = result.trace.get("gate", {})
        yield {
            "task": result.task,
            "setting": result.setting,
            "id": result.id,
            "group": result.group,
            "question": result.question,
            "choices": choices,
            "answers": json.dumps(list(result.answers), ensure_ascii=False),
            "prediction": result.prediction,
            "right": int(result.is_right(metrics[result.task])),
            "em": result.scores.get("em", ""),
            "f1": result.scores.get("f1", ""),
            "substring": result.scores.get("substring", ""),
            "accuracy": result.scores.get("accuracy", ""),
            "calls": len(result.calls),
            "tokens_in": result.tokens_in,
            "tokens_out": result.tokens_out,
            "seconds": round(result.seconds, 4),
            "gate_score": gate.get("score"),
            "gate_fired": gate.get("fired"),
            "cards": json.dumps(cards, ensure_ascii=False),
            "cards_kept": json.dumps(kept_cards, ensure_ascii=False),
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
    columns: dict[str, None] = {}
    for line in lines:
        columns |= dict.fromkeys(line)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    for line in lines:
        safe = dict(line)
        for name, value in line.items():
            if isinstance(value, str) and value.startswith(FORMULA):
                safe[name] = f"'{value}"
        writer.writerow(safe)
    try:
        write_text(path, text.getvalue())
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}") from error
    return path
