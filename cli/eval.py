"""The commands kcard eval, kcard runs and kcard report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kcard.api.evaluate import evaluate as evaluate_settings
from kcard.api.evaluate import report as make_report
from kcard.api.evaluate import write_questions
from kcard.cli.options import LongCommand, command_for, typed_values
from kcard.cli.output import (
    Json,
    console,
    echo,
    note,
    notice,
    print_in_parts,
    print_json,
    print_whole,
    progress,
    table,
)
from kcard.cluster import RayOptions
from kcard.errors import KcardError, UsageError
from kcard.events import Event
from kcard.integrators.options import AskOptions, BaselineOptions

if TYPE_CHECKING:
    from kcard.api.evaluate import Evaluation
    from kcard.evaluation.analyses.analysis import Analysis
    from kcard.evaluation.report.report import Report


@command_for(
    evaluate_settings,
    BaselineOptions,
    AskOptions,
    RayOptions,
    leave_out={"mode", "select"},
    optional={"tasks"},
)
def evaluate(
    values: dict[str, Any],
    ctx: typer.Context,
    resume: Annotated[
        int | None,
        typer.Option(
            help="Continue this run: ask questions that are missing or failed.",
            rich_help_panel="The comparison",
        ),
    ] = None,
    rerun: Annotated[
        int | None, typer.Option(help="Repeat this run as a new one.", rich_help_panel="The comparison")
    ] = None,
    json_: Json = False,
) -> None:
    """Compare settings on the same questions. What do cards add to an LLM, and what do they cost?"""
    from kcard.api import evaluate as api

    cluster = RayOptions.pop_from(values)
    # Options that were not typed may come from a preset or, with --resume or --rerun, from the run.
    typed = typed_values(values, ctx)
    if resume is not None and rerun is not None:
        raise UsageError("--resume and --rerun do not go together")
    excess = sorted(set(typed) - {"path"})
    if excess and (resume is not None or rerun is not None):
        name = "--" + excess[0].replace("_", "-")
        if name == "--tasks":
            name = "TASK"
        raise UsageError(f"{name} does not go with a run, which has its own options: leave it out")
    run_numbers: list[int] = []  # of the run, once it has begun
    try:
        with progress(notice) as show_progress:

            def on_event(event: Event) -> None:
                if event.kind == "run":
                    run_numbers.append(event.done)
                else:
                    show_progress(event)

            if resume is not None:
                evaluation = api.resume(resume, on_event=on_event, cluster=cluster, **typed)
            elif rerun is not None:
                evaluation = api.rerun(rerun, on_event=on_event, cluster=cluster, **typed)
            else:
                evaluation = api.evaluate(**{"tasks": (), **typed}, on_event=on_event, cluster=cluster)
    except KeyboardInterrupt:
        if not run_numbers:
            raise
        note(f"interrupted: what was answered is kept; continue with `kcard eval --resume {run_numbers[0]}`")
        sys.exit(130)
    except KcardError:
        if run_numbers:
            note(f"what was answered is kept; continue with `kcard eval --resume {run_numbers[0]}`")
        raise

    number = evaluation.run.number
    if json_:
        for row in evaluation.rows:
            print_json(row.to_json(number))
    else:
        show(evaluation)
    errors = sum(row.errors for row in evaluation.rows)
    if errors:
        note(
            f"{errors} questions failed and count as wrong; ask them again with `kcard eval --resume {number}`"
        )
    note(f"run {number}")
    analysis = typed.get("analysis")
    if analysis and not json_:
        _print_analysis(make_report(number, analysis=analysis, limit=0).analyses[0])


def show(evaluation: "Evaluation") -> None:
    """Print a table for each task, with a row for each setting."""
    for caption, headings, rows in evaluation.tables:
        echo(caption)
        print_in_parts(headings, rows)


# kcard runs: the evaluations of this hub.

runs = typer.Typer(help="List the runs of `kcard eval`; show, export or delete some.", rich_markup_mode=None)

# A run's settings in the list; longer ones are shortened to a count and their names.
MAX_SETTINGS_CHARACTERS = 60

Number = Annotated[int, typer.Argument(help="Number of the run.")]


@runs.callback(invoke_without_command=True)
def list_runs(ctx: typer.Context, json_: Json = False) -> None:
    """List the runs of `kcard eval`, or show or delete one."""
    if ctx.invoked_subcommand is not None:
        return
    from kcard.evaluation.runs.run import RunStorage, SettingName
    from kcard.hub.registry import Hub

    listed = RunStorage(Hub().runs).list()
    if json_:
        for run in listed:
            plan = run.plan
            data = {
                "run": run.number,
                "started": run.started,
                "tasks": [task.name for task in plan.tasks],
                "settings": list(plan.settings),
                "llm": plan.llm,
                "answered": run.answered,
                "failed": run.failed,
                "planned": plan.planned,
                "command": ["kcard", *plan.command],
            }
            print_json(data)
        return
    if not listed:
        note("no runs yet: start one with `kcard eval TASK --path FILE`")
        return
    right = ("run", "answered", "failed", "planned")
    rows = table("run", "started", "tasks", "settings", "llm", "answered", "failed", "planned", right=right)
    for run in listed:
        plan = run.plan
        settings = ", ".join(plan.settings)
        if len(settings) > MAX_SETTINGS_CHARACTERS:
            names = [SettingName.of(setting).base for setting in plan.settings]
            settings = f"{len(plan.settings)} of {', '.join(dict.fromkeys(names))}"
        tasks = ", ".join(task.name for task in plan.tasks)
        counts = (str(run.answered), str(run.failed), str(plan.planned))
        rows.add_row(str(run.number), run.started, tasks, settings, plan.llm, *counts)
    console().print(rows)


@runs.command("show")
def show_run(number: Number, json_: Json = False) -> None:
    """Show what a run came to, and the command that repeats it."""
    from kcard.api.evaluate import evaluation as load_evaluation

    evaluation = load_evaluation(number)
    if json_:
        for row in evaluation.rows:
            print_json(row.to_json(number))
        return
    show(evaluation)
    echo("kcard " + shlex.join(evaluation.run.plan.command))


@runs.command("export")
def export_run(
    number: Number,
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")],
) -> None:
    """Write eval.yaml and .eval_results/*.yaml, for the pages of data sets and models."""
    from kcard.api.evaluate import export

    for file in export(number, folder):
        echo(str(file))


@runs.command("delete")
def delete_runs(numbers: Annotated[list[int], typer.Argument(help="Numbers of runs.")]) -> None:
    """Delete runs with their results."""
    from kcard.evaluation.runs.run import RunStorage
    from kcard.hub.registry import Hub

    storage = RunStorage(Hub().runs)
    for number in numbers:
        storage.delete(number)
        note(f"deleted run {number}")


# kcard report: a run of `kcard eval` as a web page, tables or analyses.


@command_for(make_report)
def report(
    values: dict[str, Any],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page to this file (HTML). [default: run-RUN.html]"),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file (CSV).")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Write every question under every setting to this file (CSV).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the charts of --analysis to this file (.svg or .png).")
    ] = None,
    json_: Json = False,
) -> None:
    """Report a run of `kcard eval`. The report is a web page, CSV files, paired tests or analyses."""
    from kcard.evaluation.report.page import write_page
    from kcard.evaluation.report.tables import analysis_lines, table_lines, write_csv

    analysis = values["analysis"]
    if plot is not None and analysis is None:
        raise UsageError("--plot draws one analysis: add --analysis NAME; the page has the other plots")
    result = make_report(**values)
    if csv is not None:
        lines = table_lines(result)
        if analysis:
            lines = analysis_lines(result.analyses[0])
        note(f"table written: {write_csv(lines, csv)}")
    if questions is not None:
        note(f"questions written: {write_questions(result.run.number, questions)}")
    if output is not None or not (csv or questions or json_ or analysis):
        page = output or Path(f"run-{result.run.number}.html")
        note(f"page written: {write_page(result, page)}")
    if plot is not None:
        from kcard.evaluation.plots import write_charts

        for path in write_charts(result.analyses[0].charts, plot):
            note(f"plot written: {path}")
    if analysis is not None:
        _print_analysis(result.analyses[0], as_json=json_)
    elif json_:
        for line in table_lines(result):
            print_json(line)
    else:
        _print_report(result)


def _print_analysis(analysis: "Analysis", *, as_json: bool = False) -> None:
    from kcard.evaluation.analyses.analysis import format_cell
    from kcard.evaluation.report.tables import analysis_lines

    if as_json:
        for line in analysis_lines(analysis):
            print_json(line)
        return
    note(analysis.text)
    number_columns = []
    for name, value in zip(analysis.columns, analysis.rows[0], strict=True):
        if not isinstance(value, str):
            number_columns.append(name)
    rows = table(*analysis.columns, right=number_columns)
    for row in analysis.rows:
        rows.add_row(*(escape(format_cell(cell)) for cell in row))
    print_whole(rows)


def _print_report(result: "Report") -> None:
    """Print a table for each task: each setting's figures, and its difference from the reference with the p of a paired
    test."""
    from kcard.evaluation.report.report import amount, headline, metric_name, probability

    for task in result.tasks:
        reference, summaries = result.reference(task), result.of(task)
        headings = (
            "setting",
            "n",
            metric_name(summaries[0].metric),
            "95 % interval",
            f"over {reference}",
            "p",
            "calls",
            "seconds",
        )
        rows = []
        for summary in summaries:
            difference = p = ""
            pair = result.pair(task, summary.setting, reference)
            if pair is not None:
                difference = f"{pair.difference.mean:+.3f}"
            if summary.p_holm is not None:
                p = probability(summary.p_holm)
            row = [
                summary.setting,
                str(summary.n),
                f"{summary.value:.3f}",
                f"[{summary.low:.3f}, {summary.high:.3f}]",
                difference,
                p,
                amount(summary.calls / summary.n),
                amount(summary.seconds / summary.n),
            ]
            rows.append(row)
        echo(f"{task}: {headline(result, task)}")
        print_in_parts(headings, rows)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("eval", cls=LongCommand)(evaluate)
    app.add_typer(runs, name="runs")
    app.command()(report)
