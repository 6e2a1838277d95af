"""kcard exam and check."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.check import check as check_claim
from kcard.api.exam import exam as examine_card
from kcard.cli.options import command_for
from kcard.cli.output import (
    Json,
    console,
    interval,
    mean_cell,
    note,
    notice,
    print_json,
    progress,
    resumable,
    show_note,
    table,
)
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.evaluation.records import Exam, ExamRun

# Rows of the table of an exam that are left out where nothing is known.
MODEL_ALONE, INDEX_ALONE = "  model alone", "  index alone"
ANSWERED_LABEL, ADMITTED_LABEL = "found answered", "not in the corpus, and admitted"
COVERED_LABEL = "  covered by the evidence"
OPTIONAL_ROWS = {MODEL_ALONE, INDEX_ALONE, ANSWERED_LABEL, ADMITTED_LABEL, COVERED_LABEL}
UNKNOWN = "-"


@command_for(examine_card)
def exam(
    values: dict[str, Any],
    json_: Json = False,
) -> None:
    """Examine a card on its own corpus. The questions are about the corpus, and about what is not in it."""
    from kcard.evaluation.exam import has_fewer_questions
    from kcard.evaluation.target import find_target

    target = find_target(values["card"], values["corpus"], values["field"])
    with progress() as on_event:
        result = examine_card(**values | {"card": target}, on_event=on_event)
    if values["output"] is None and target.reference is None and has_fewer_questions(target, result):
        note(
            f"{result.card} keeps its earlier exam, which has more questions; save this one with --output FILE"
        )
    if values["output"] is None and target.reference is not None:
        note(f"{target.reference} is published and can't change; save its exam with --output FILE")
    if json_:
        print_json({"card": result.card, "folder": str(target.card.folder), "exam": as_data(result)})
        return

    # The figures as a table, a column for each set of questions, and the remarks that belong to them.
    from rich.markup import escape

    from kcard.evaluation.records import explain_figures

    columns, figures = table(result.card, no_wrap=True), []
    for heading, run in (("own corpus", result.own), ("", result.given)):
        if run is not None:
            columns.add_column(escape(heading or run.asked), justify="right", overflow="fold")
            figures.append(_figures(run, result.base))
    if figures:
        for label in figures[0]:
            cells = [column[label] for column in figures]
            if label not in OPTIONAL_ROWS or set(cells) != {UNKNOWN}:
                columns.add_row(escape(label), *cells)
    out = console()
    out.print(columns)
    for remark in explain_figures(result):
        out.print(remark, markup=False, style="dim")


def _figures(run: "ExamRun", base: str) -> dict[str, str]:
    """Return the cells of a column by the label of their row."""
    factuality, covered = run.factuality, UNKNOWN
    if factuality is not None and factuality.coverage is not None:
        # The share of the documents that have a score, and their number.
        covered = f"{factuality.coverage:.2f} (n={len(factuality.scores)})"
    return {
        "questions": str(run.questions),
        "recall": interval(run.recall),
        MODEL_ALONE: interval(run.model),
        INDEX_ALONE: interval(run.index),
        ANSWERED_LABEL: interval(run.answered),
        ADMITTED_LABEL: interval(run.admitted),
        f"lift over {base}": interval(run.lift, "+"),
        "faithfulness": mean_cell(run.faithfulness),
        "factuality": mean_cell(factuality),
        COVERED_LABEL: covered,
    }


def as_data(exam: "Exam") -> Any:
    """Return the exam as JSON-ready data, as in exam.json."""
    return json.loads(exam.to_json())


MIN_SUMMARY_QUESTIONS = 10


def has_enough_questions(exam: "Exam") -> bool:
    """Return whether figures over the questions about the card's corpus mean something."""
    return exam.own is not None and exam.own.questions >= MIN_SUMMARY_QUESTIONS


def summary(exam: "Exam") -> str:
    """Summarize an exam in one sentence."""
    if exam.own is None or not exam.own.questions:
        return f"{exam.card}: no question could be generated from its corpus, so there is no exam result"
    if not has_enough_questions(exam):
        return (
            f"{exam.card}: too few questions to tell what it recalls: its corpus yields {exam.own.questions}, and "
            f"figures take {MIN_SUMMARY_QUESTIONS} or more"
        )
    factuality = "not measured (no independent evidence)"
    if exam.factuality is not None:
        factuality = f"{exam.factuality.mean or 'unknown'} against {exam.evidence}"
    faithfulness = exam.faithfulness.mean if exam.faithfulness else None
    own = exam.own
    abstention = ""
    if own.admitted:
        abstention = f", {own.admitted} of {own.absent} unanswerable questions admitted"
    return (
        f"{exam.card}: recall {exam.recall} on {own.questions} questions ({own.asked}), lift "
        f"{exam.lift or 'unknown'} over {exam.base}{abstention}, faithfulness to its own corpus "
        f"{faithfulness or 'unknown'}, factuality {factuality}"
    )


# kcard check: does this evidence support that claim? One claim, or a file of them.

INPUT = "Claims, one JSON object per line: claim, and evidence (a text or a list of texts), if --evidence names none."


@command_for(check_claim, optional={"claim"})
def check(
    values: dict[str, Any],
    input_: Annotated[Path | None, typer.Option("--input", help=INPUT)] = None,
    output: Annotated[Path | None, typer.Option(help="File for the scores of --input.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run into --output.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check how far evidence supports a claim, and with which words."""
    # The claims of a file.
    claim, evidence, texts = values.pop("claim"), values.pop("evidence"), values.pop("texts")
    if (claim is None) == (input_ is None):
        raise UsageError("give one claim, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None:
        if texts:
            raise UsageError("--text goes with one claim: --input brings its own texts")
        from kcard.api.check import check_file

        with resumable("scores", output), progress(notice) as on_event:
            totals = check_file(input_, output, evidence or (), resume=resume, **values, on_event=on_event)
        count = f"{totals.claims} claims scored"
        if totals.earlier:
            count += f", {totals.earlier} of them before"
        note(f"{count}: {output}")
        return

    # One claim.
    if resume:
        raise UsageError("--resume needs --input and --output")
    if not evidence and not texts:
        raise UsageError("a claim needs evidence: --evidence FILE, FOLDER or NAME, or --text TEXT")
    result = check_claim(claim, evidence, texts=texts, **values, on_event=show_note)
    if json_:
        print_json(result.to_json())
        return
    out = console()
    if result.source is None or result.score is None:
        out.print("not covered: no evidence was found")
        return
    out.print(f"{result.verdict}  {result.score:.2f}")
    out.print(f"  {result.window or '(no word of the evidence was read)'}", markup=False)
    if result.source.file:
        out.print(f"  {result.source.file}:{result.source.line}", markup=False, style="dim")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(exam)
    app.command()(check)
