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
from kcard.evaluation.papers import Paper
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
            help="Write manifest.json, eval.yaml and .eval_results/*.yaml, which others can verify, into this folder."
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(help="Repeat the evaluation of this manifest (a file or its folder), and compare."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="By how much a second run's value may differ, for --results and --verify. [default: 0.02, and the "
            "manifest's]"
        ),
    ] = None,
    table: Annotated[
        int | None,
        typer.Option(
            help="Ask nothing: show how to ask what this table of --paper shows, and what is missing."
        ),
    ] = None,
    paper: Annotated[Paper, typer.Option(help="The paper of --table.")] = "knowledge-card",
    json_: Json = False,
) -> None:
    """Compare settings on the same questions: what do cards add to an LLM, and what do they cost?"""
    cluster = RayOptions.taken_from(given)
    given = _typed(ctx, given)
    if cluster is not None and (table is not None or verify is not None):
        raise UsageError(f"--ray does not go with --{'verify' if table is None else 'table'}")
    if table is not None:
        _show_table(paper, table, given, json_)
        return
    ways = {"resume": resume, "rerun": rerun, "verify": verify}
    chosen = [name for name, value in ways.items() if value is not None]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} do not go together")
    with _told() as told:
        if verify is not None:
            _verify(verify, _only(given, {"path", "llm", "llm_url"}), tolerance, told, json_)
            return
        found = _evaluated(given, resume, rerun, told, cluster)
    _print(found, json_)
    if (analysis := given.get("analysis")) and not json_:
        from kcard.cli.report import print_analysis

        print_analysis(found.run.number, analysis)
    if results is not None:
        _export(found.run.number, results, tolerance)


def _evaluated(
    given: dict[str, Any], resume: int | None, rerun: int | None, told: "Told", cluster: RayOptions | None
) -> "Evaluation":
    from kcard.api import evaluate as api

    if resume is not None:
        return api.resume(resume, told=told, cluster=cluster, **_only(given, {"path"}))
    if rerun is not None:
        return api.rerun(rerun, told=told, cluster=cluster, **_only(given, {"path"}))
    return api.evaluate(**{"tasks": (), **given}, told=told, cluster=cluster)


def _only(given: dict[str, Any], allowed: set[str]) -> dict[str, Any]:
    """The options, none of which a run has of its own."""
    if odd := sorted(set(given) - allowed):
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


def _export(number: int, folder: Path, tolerance: float | None) -> None:
    from kcard.api.verify_evaluation import export_evaluation

    for file in export_evaluation(number, folder, tolerance=tolerance):
        note(f"written: {file}")


def _verify(
    manifest: Path, given: dict[str, Any], tolerance: float | None, told: "Told", as_json: bool
) -> None:
    from kcard.api.verify_evaluation import verify_evaluation
    from kcard.cli.eval_view import compared, show_verification

    found = verify_evaluation(manifest, tolerance=tolerance, told=told, **given)
    if as_json:
        for result in found.results:
            print_json(compared(result) | {"run": found.evaluation.run.number})
    else:
        show_verification(found)
    if not found.agrees:
        note(f"the second run differs by more than {found.tolerance:g}, or in the number of questions")
        sys.exit(1)
    note(f"the second run agrees within {found.tolerance:g}")


def _show_table(paper: str, number: int, given: dict[str, Any], as_json: bool) -> None:
    from kcard.api.paper_table import reproduction
    from kcard.cli import paper_view

    if odd := sorted(set(given) - {"path", "llm"}):
        raise UsageError(f"--table shows commands with --path and --llm: leave out {odd[0]}")
    found = reproduction(paper, number, **given)
    if as_json:
        print_json(paper_view.data(found))
    else:
        paper_view.show(found)
