"""kcard eval: the same questions under each setting, beside what each costs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.evaluate import evaluate as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, late_counter, note, print_json
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.options import AskOptions

if TYPE_CHECKING:
    from kcard.api.eval_asking import Told
    from kcard.api.evaluate import Evaluation

__all__ = ["register"]


def register(app: typer.Typer) -> None:
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
        from kcard.cli.report import print_analysis

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


def _export(number: int, folder: Path) -> None:
    from kcard.api.evaluate import export

    for file in export(number, folder):
        note(f"written: {file}")
