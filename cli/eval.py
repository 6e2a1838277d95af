"""kcard eval, runs and report."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.evaluate import evaluate as verb
from kcard.api.evaluate import report as evaluate_verb
from kcard.api.evaluate import write_questions
from kcard.cli.options import command_for
from kcard.cli.output import Json, console, echo, late_counter, note, print_json, table
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions, BaselineOptions

if TYPE_CHECKING:
    from kcard.api.evaluate import Evaluation, Told
    from kcard.evaluation.analyses.answers import Analysis
    from kcard.evaluation.report.report import Report
    from kcard.evaluation.runs.summary import SettingSummary

__all__ = ["print_analysis", "register", "show"]


# What an evaluation came to, as a table for people.

HEADINGS = (
    "setting",
    "n",
    "",
    "95 % interval",
    "p",
    "p, all settings",
    "calls",
    "tokens",
    "seconds",
    "errors",
)


def show(found: "Evaluation") -> None:
    """A table for each task: settings as rows."""
    out = console()
    for task in found.run.plan.tasks:
        rows = [row for row in found.rows if row.task == task.name]
        if not rows:
            continue
        asked = f"{len(task.ids)} of {task.total} questions"
        echo(f"{task.name}, {asked}, {found.run.plan.llm}")
        paid = any(row.cost is not None for row in rows)
        headings = [heading or task.metric for heading in HEADINGS] + (["cost"] if paid else [])
        columns = table(*headings, right=headings[1:], no_wrap=True)
        for row in rows:
            columns.add_row(
                *_cells(row), *([f"{row.cost:.4f}" if row.cost is not None else "-"] if paid else [])
            )
        out.print(columns)
        if missing := sum(row.missing for row in rows):
            echo(f"{missing} questions were not asked yet")


def _cells(row: "SettingSummary") -> tuple[str, ...]:
    return (
        row.setting,
        str(row.n),
        f"{row.value:.3f}",
        f"\\[{row.low:.3f}, {row.high:.3f}]",
        "-" if row.p is None else f"{row.p:.2g}",
        "-" if row.p_holm is None else f"{row.p_holm:.2g}",
        str(row.calls),
        "-" if row.tokens_in is None or row.tokens_out is None else f"{row.tokens_in} + {row.tokens_out}",
        f"{row.seconds:.1f}",
        str(row.errors),
    )


def _register_eval(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


@command_for(verb, AskOptions, BaselineOptions, RayOptions, leave_out={"mode", "select"}, optional={"tasks"})
def evaluate(
    given: dict[str, Any],
    ctx: typer.Context,
    resume: Annotated[
        int | None, typer.Option(help="Go on with this run: ask what is missing or failed.")
    ] = None,
    rerun: Annotated[int | None, typer.Option(help="Ask everything of this run again, as a new run.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Write eval.yaml and .eval_results/*.yaml, the Hugging Face Hub's formats, into this folder."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare settings on the same questions: what do cards add to an LLM, and what do they cost?"""
    cluster = RayOptions.taken_from(given)
    given = _typed(ctx, given)
    if resume is not None and rerun is not None:
        raise UsageError("--resume and --rerun do not go together")
    with _told() as told:
        found = _evaluated(given, resume, rerun, told, cluster)
    _print(found, json_)
    if (analysis := given.get("analysis")) and not json_:
        print_analysis(found.run.number, analysis)
    if results is not None:
        _export(found.run.number, results)


def _evaluated(
    given: dict[str, Any], resume: int | None, rerun: int | None, told: "Told", cluster: RayOptions | None
) -> "Evaluation":
    from kcard.api import evaluate as api

    if resume is not None:
        return api.resume(resume, told=told, cluster=cluster, **_only(given))
    if rerun is not None:
        return api.rerun(rerun, told=told, cluster=cluster, **_only(given))
    return api.evaluate(**{"tasks": (), **given}, told=told, cluster=cluster)


def _only(given: dict[str, Any]) -> dict[str, Any]:
    """The options, none of which a run has of its own."""
    if odd := sorted(set(given) - {"path"}):
        named = "TASK" if odd[0] == "tasks" else "--" + odd[0].replace("_", "-")
        raise UsageError(f"{named} does not go with a run, which has its own options: leave it out")
    return given


def _typed(ctx: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed: a preset takes the place of the others."""
    sources = {key: ctx.get_parameter_source(key) for key in values}
    return {key: value for key, value in values.items() if getattr(sources[key], "name", "") != "DEFAULT"}


@contextmanager
def _told() -> "Iterator[Told]":
    """Notes, and a bar; where the user interrupts the run, how to go on."""
    from kcard.api.evaluate import Told

    started: list[int] = []
    try:
        with late_counter("asking") as progress:
            yield Told(lambda text: note(f"note: {text}"), lambda run: started.append(run.number), progress)
    except KeyboardInterrupt:
        if not started:
            raise
        note(f"interrupted: what was answered is kept; continue with `kcard eval --resume {started[0]}`")
        sys.exit(130)


def _print(found: "Evaluation", as_json: bool) -> None:

    if as_json:
        for row in found.rows:
            print_json(row.to_json(found.run.number))
    else:
        show(found)
    errors = sum(row.errors for row in found.rows)
    if errors:
        again = f"kcard eval --resume {found.run.number}"
        note(f"{errors} questions failed and count as wrong; ask them again with `{again}`")
    note(f"run {found.run.number}")


def _export(number: int, folder: Path) -> None:
    from kcard.api.evaluate import export

    for file in export(number, folder):
        note(f"written: {file}")


# kcard runs: the evaluations of this hub.

runs = typer.Typer(help="Runs of `kcard eval`: list, show, export, delete.", rich_markup_mode=None)

LONGEST = 60  # characters of a run's settings that are listed as they are

Number = Annotated[int, typer.Argument(help="Number of the run.", show_default=False)]


def _register_runs(app: typer.Typer) -> None:
    app.add_typer(runs, name="runs")


@runs.callback(invoke_without_command=True)
def list_runs(ctx: typer.Context, json_: Json = False) -> None:
    """List the runs of `kcard eval`, or show or delete one."""
    if ctx.invoked_subcommand is not None:
        return
    from kcard.evaluation.runs.run import RunStorage
    from kcard.hub.registry import Hub

    found = RunStorage(Hub().runs).list()
    if json_:
        for run in found:
            print_json(_data(run))
        return
    if not found:
        note("no runs yet: start one with `kcard eval TASK --path FILE`")
        return
    right = ("run", "answered", "failed", "planned")
    columns = table(
        "run", "started", "tasks", "settings", "llm", "answered", "failed", "planned", right=right
    )
    for run in found:
        plan = run.plan
        tasks, settings = ", ".join(task.name for task in plan.tasks), _brief(plan.settings)
        counts = map(str, (run.answered, run.failed, plan.planned))
        columns.add_row(str(run.number), run.started, tasks, settings, plan.llm, *counts)
    console().print(columns)


@runs.command("show")
def show_run(number: Number, json_: Json = False) -> None:
    """Show what a run came to, and the command that repeats it."""
    from kcard.api.evaluate import evaluation

    found = evaluation(number)
    if json_:
        for row in found.rows:
            print_json(row.to_json(number))
        return
    show(found)
    echo("kcard " + shlex.join(found.run.plan.command))


@runs.command("export")
def export_run(
    number: Number,
    folder: Annotated[Path, typer.Argument(help="Folder for the files.", show_default=False)],
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


def _brief(settings: Sequence[str]) -> str:
    """The settings as a cell of a table: many that differ in options, as analyses make them, are counted."""
    from kcard.evaluation.runs.run import SettingName

    whole = ", ".join(settings)
    if len(whole) <= LONGEST:
        return whole
    names = [SettingName.of(setting) for setting in settings]
    varied = [name for name in names if name.options]
    options = dict.fromkeys(key for name in varied for key, _ in name.options)
    counted = [f"{len(varied)} with other {', '.join(options)}"] if varied else []
    return ", ".join([name.base for name in names if not name.options] + counted)


def _data(run: Any) -> dict[str, Any]:
    plan = run.plan
    return {
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


# kcard report: a run of `kcard eval` as a web page, as tables, and its analyses.


def _register_report(app: typer.Typer) -> None:
    app.command()(report)


@command_for(evaluate_verb)
def report(
    given: dict[str, Any],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page to this file (HTML). [default: run-RUN.html]"),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file (CSV).")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Write every question under every setting to this file (CSV).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the charts of --analysis to this file (SVG).")
    ] = None,
    json_: Json = False,
) -> None:
    """Report a run of `kcard eval`: a web page, CSV files, paired tests, analyses."""
    from kcard.evaluation.report.pages import write_page

    if plot is not None and given["analysis"] is None:
        raise UsageError("--plot draws one analysis: add --analysis NAME; the page has the other plots")
    found = evaluate_verb(**given)
    _write_csv(found, given["analysis"], csv, questions)
    if output is not None or not (csv or questions or json_ or given["analysis"]):
        note(f"page written: {write_page(found, output or Path(f'run-{found.run.number}.html'))}")
    if plot is not None:
        from kcard.evaluation.charts.chart import write_pictures

        for path in write_pictures(found.analyses[0].charts, plot):
            note(f"plot written: {path}")
    if given["analysis"] is not None:
        _print_analysis(found.analyses[0], json_)
    elif json_:
        from kcard.evaluation.report.report import table_lines

        for line in table_lines(found):
            print_json(line)
    else:
        _print_table(found)


def print_analysis(run: int, name: str) -> None:
    """What an analysis finds in a run, as a table."""
    _print_analysis(evaluate_verb(run, analysis=name, limit=0).analyses[0], False)


def _write_csv(found: "Report", analysis: str | None, path: Path | None, questions: Path | None) -> None:
    from kcard.evaluation.report.report import analysis_lines, table_lines, write_csv

    if path is not None:
        note(
            f"table written: {write_csv(analysis_lines(found.analyses[0]) if analysis else table_lines(found), path)}"
        )
    if questions is not None:
        note(f"questions written: {write_questions(found.run.number, questions)}")


def _print_analysis(found: "Analysis", json_: bool) -> None:
    from kcard.evaluation.analyses.answers import shown
    from kcard.evaluation.report.report import analysis_lines

    if json_:
        for line in analysis_lines(found):
            print_json(line)
        return
    from rich.markup import escape

    note(found.text)
    numbers = {name for i, name in enumerate(found.columns) if not isinstance(found.rows[0][i], str)}
    rows = table(*found.columns, right=numbers)
    for row in found.rows:
        rows.add_row(*(escape(shown(cell)) for cell in row))
    console().print(rows)


def _print_table(found: "Report") -> None:
    from rich.markup import escape

    from kcard.evaluation.report.report import amount, headline, metric_name, probability

    for task in found.tasks:
        base, mine = found.reference(task), found.of(task)
        headings = (
            "setting",
            "n",
            metric_name(mine[0].metric),
            "95 % interval",
            f"over {base}",
            "p",
            "calls",
            "seconds",
        )
        rows = table(*map(escape, headings), right=headings[1:], no_wrap=True)
        for row in mine:
            pair = found.pair(task, row.setting, base)
            rows.add_row(
                escape(row.setting),
                str(row.n),
                f"{row.value:.3f}",
                f"\\[{row.low:.3f}, {row.high:.3f}]",
                "" if pair is None else f"{pair.difference.mean:+.3f}",
                "" if row.p_holm is None else probability(row.p_holm),
                amount(row.calls / row.n),
                amount(row.seconds / row.n),
            )
        echo(f"{task}: {headline(found, task)}")
        console().print(rows)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_eval(app)
    _register_runs(app)
    _register_report(app)
