"""kcard runs: the evaluations of this hub."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.cli.output import Json, console, echo, note, print_json, table

__all__ = ["register"]

runs = typer.Typer(help="Runs of `kcard eval`: list, show, export, delete.", rich_markup_mode=None)

LONGEST = 60  # characters of a run's settings that are listed as they are

Number = Annotated[int, typer.Argument(help="Number of the run.", show_default=False)]


def register(app: typer.Typer) -> None:
    app.add_typer(runs, name="runs")


@runs.callback(invoke_without_command=True)
def list_runs(ctx: typer.Context, json_: Json = False) -> None:
    """List the runs of `kcard eval`, or show or delete one."""
    if ctx.invoked_subcommand is not None:
        return
    from kcard.evaluation.runs.storage import RunStorage
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
    from kcard.cli.eval_view import show

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
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub

    storage = RunStorage(Hub().runs)
    for number in numbers:
        storage.delete(number)
        note(f"deleted run {number}")


def _brief(settings: Sequence[str]) -> str:
    """The settings as a cell of a table: many that differ in options, as analyses make them, are counted."""
    from kcard.evaluation.runs.setting_name import SettingName

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
