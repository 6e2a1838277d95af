"""kcard exam and check."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.check import check as verb
from kcard.api.exam import exam as exam_verb
from kcard.cli.options import command_for
from kcard.cli.output import (
    Json,
    console,
    interval,
    late_counter,
    note,
    print_json,
    progress,
    resumable,
    table,
)
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.api.check import Checked
    from kcard.evaluation.records import Distribution, EvalRun, Exam

__all__ = ["as_data", "register", "summary"]


def _register_exam(app: typer.Typer) -> None:
    app.command()(exam)


@command_for(exam_verb)
def exam(
    given: dict[str, Any],
    json_: Json = False,
) -> None:
    """Examine a card with questions about its own corpus and about what is not in it."""
    from kcard.evaluation.exam import is_smaller
    from kcard.evaluation.target import find

    found = find(given["card"], given["corpus"], given["field"])
    with progress() as report:
        taken = exam_verb(**given | {"card": found}, report=report)
    if given["output"] is None and found.reference is None and is_smaller(found, taken):
        note(
            f"{taken.card} keeps its earlier exam, which has more questions; save this one with --output FILE"
        )
    if given["output"] is None and found.reference is not None:
        note(f"{found.reference} is published and can't change; save its exam with --output FILE")
    if json_:
        print_json({"card": taken.card, "folder": str(found.card.folder), "exam": as_data(taken)})
    else:
        _print(taken)


def as_data(exam: "Exam") -> Any:
    """The exam as JSON-ready data, as exam.json has it."""
    return json.loads(exam.to_json())


def summary(exam: "Exam") -> str:
    """One sentence for the user."""
    if exam.own is None or not exam.own.questions:
        return f"{exam.card}: no question could be generated from its corpus, so there is no exam result"
    factuality = "not measured (no independent evidence)"
    if exam.factuality is not None:
        factuality = f"{exam.factuality.mean or 'unknown'} against {exam.evidence}"
    faithfulness = exam.faithfulness.mean if exam.faithfulness else None
    return (
        f"{exam.card}: recall {exam.recall} on {exam.own.questions} questions ({exam.own.asked}), lift "
        f"{exam.lift or 'unknown'} over {exam.base}{_abstention(exam.own)}, faithfulness to its own corpus "
        f"{faithfulness or 'unknown'}, factuality {factuality}"
    )


def _abstention(own: "EvalRun") -> str:
    return f", {own.admitted} of {own.absent} unanswerable questions admitted" if own.admitted else ""


def _print(exam: "Exam") -> None:
    """The numbers as a table, and what must be said with them."""
    from rich.markup import escape

    from kcard.evaluation.records import remarks

    columns = table(exam.card, no_wrap=True)
    runs = [(name, s) for name, s in (("own corpus", exam.own), ("given", exam.given)) if s is not None]
    for name, run in runs:
        heading = name if name == "own corpus" else run.asked
        columns.add_column(escape(heading), justify="right", overflow="fold")
    for label, values in _rows(exam, [run for _, run in runs]):
        columns.add_row(escape(label), *values)
    out = console()
    out.print(columns)
    for remark in remarks(exam):
        out.print(remark, markup=False, style="dim")


def _rows(exam: "Exam", runs: "list[EvalRun]") -> "Iterator[tuple[str, list[str]]]":
    """A label and a cell for each run."""
    yield "questions", [str(run.questions) for run in runs]
    yield "recall", [interval(run.recall) for run in runs]
    if any(run.model for run in runs):
        yield "  model alone", [interval(run.model) for run in runs]
        yield "  index alone", [interval(run.index) for run in runs]
    if any(run.admitted for run in runs):
        yield "found answered", [interval(run.answered) for run in runs]
        yield "not in the corpus, and admitted", [interval(run.admitted) for run in runs]
    yield f"lift over {exam.base}", [interval(run.lift, "+") for run in runs]
    yield "faithfulness", [_scores(run.faithfulness) for run in runs]
    yield "factuality", [_scores(run.factuality) for run in runs]
    if any(run.factuality for run in runs):
        yield "  covered by the evidence", [_covered(run.factuality) for run in runs]


def _covered(scores: "Distribution | None") -> str:
    """The share of the documents that have a score, and their number."""
    if scores is None or scores.coverage is None:
        return "-"
    return f"{scores.coverage:.2f} (n={len(scores.scores)})"


def _scores(scores: "Distribution | None") -> str:
    return interval(scores.mean if scores else None)


# kcard check: does this evidence support that claim? One claim, or a file of them.

INPUT = "Claims, one JSON object per line: claim, and evidence (a text or a list of texts), if --evidence names none."


def _register_check(app: typer.Typer) -> None:
    app.command()(check)


@command_for(verb, optional={"claim"})
def check(
    given: dict[str, Any],
    input_: Annotated[Path | None, typer.Option("--input", help=INPUT)] = None,
    output: Annotated[Path | None, typer.Option(help="File for the scores of --input.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run into --output.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check how far evidence supports a claim, and with which words."""
    claim, evidence, texts = given.pop("claim"), given.pop("evidence"), given.pop("texts")
    if (claim is None) == (input_ is None):
        raise UsageError("give one claim, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None:
        if texts:
            raise UsageError("--text goes with one claim: --input brings its own texts")
        _check_file(input_, output, evidence, resume, given)
        return
    if resume:
        raise UsageError("--resume needs --input and --output")
    if not evidence and not texts:
        raise UsageError("a claim needs evidence: --evidence FILE, FOLDER or NAME, or --text TEXT")
    checked = verb(claim, evidence, texts=texts, **given, report=_told)
    if json_:
        print_json(checked.to_json())
    else:
        _print_check(checked)


def _check_file(
    source: Path, target: Path, evidence: list[str], resume: bool, options: dict[str, Any]
) -> None:
    from kcard.api.check import check_file

    with resumable("scores", target), late_counter("checking") as report:
        totals = check_file(
            source, target, evidence or (), resume=resume, **options, report=report, told=_told
        )
    before = f", {totals.earlier} of them before" if totals.earlier else ""
    note(f"{totals.claims} claims scored{before}: {target}")


def _told(text: str) -> None:
    note(f"note: {text}")


def _print_check(checked: "Checked") -> None:
    out = console()
    if checked.source is None or checked.score is None:
        out.print("not covered: no evidence was found")
        return
    out.print(f"{checked.verdict}  {checked.score:.2f}")
    out.print(f"  {checked.window or '(no word of the evidence was read)'}", markup=False)
    if checked.source.file:
        out.print(f"  {checked.source.file}:{checked.source.line}", markup=False, style="dim")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_exam(app)
    _register_check(app)
