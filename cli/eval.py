"""kcard eval: the same questions under each setting, beside what each costs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.evaluate import evaluate as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, late_counter, note, print_json
from kcard.errors import UsageError
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.options import AskOptions

if TYPE_CHECKING:
    from kcard.api.eval_asking import Told
    from kcard.api.evaluate import Evaluation

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


@command_for(verb, AskOptions, BaselineOptions, leave_out={"mode", "select"}, optional={"tasks"})
def evaluate(
    given: dict[str, Any],
    ctx: typer.Context,
    resume: Annotated[
        int | None, typer.Option(help="Go on with this run: ask what is missing or failed.")
    ] = None,
    rerun: Annotated[int | None, typer.Option(help="Ask everything of this run again, as a new run.")] = None,
    json_: Json = False,
) -> None:
    """Compare settings on the same questions: what do cards add to an LLM, and what do they cost?"""
    from kcard.api import evaluate as api

    given = _typed(ctx, given)
    if resume is not None and rerun is not None:
        raise UsageError("--resume and --rerun do not go together")
    number = rerun if resume is None else resume
    if number is not None and (odd := sorted(set(given) - {"path"})):
        named = "TASK" if odd[0] == "tasks" else "--" + odd[0].replace("_", "-")
        raise UsageError(f"{named} does not go with a run, which has its own options: leave it out")
    with _told() as told:
        if resume is not None:
            found = api.resume(resume, told=told, path=given.get("path", ()))
        elif rerun is not None:
            found = api.rerun(rerun, told=told, path=given.get("path", ()))
        else:
            found = api.evaluate(**{"tasks": (), **given}, told=told)
    _print(found, json_)


def _typed(ctx: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed: a preset takes the place of the others."""
    sources = {key: ctx.get_parameter_source(key) for key in values}
    return {key: value for key, value in values.items() if getattr(sources[key], "name", "") != "DEFAULT"}


@contextmanager
def _told() -> "Iterator[Told]":
    """Notes, and a bar; where the user interrupts the run, how to go on."""
    from kcard.api.eval_asking import Told

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
    from kcard.cli.eval_view import show

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
