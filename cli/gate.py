"""kcard gate: records of answers without and with cards; gates fitted on them, and judged by them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.gate import evaluate as evaluate_gate
from kcard.api.gate import fit as fit_gate
from kcard.cli import analyse
from kcard.cli.command import command_for
from kcard.cli.key_values import given_settings
from kcard.cli.output import Json, counter, echo, late_counter, note, print_json, resumable
from kcard.integrators.options import AskOptions

if TYPE_CHECKING:
    from kcard.api.gate import Evaluation

__all__ = ["register"]


gates = typer.Typer(
    no_args_is_help=True, help="Gates: does a question need a card at all?", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    app.add_typer(gates, name="gate")
    analyse.register(gates)


@gates.callback()
def _configured(ctx: typer.Context) -> None:
    """What is configured for ask holds for collecting too."""
    if ctx.invoked_subcommand != "collect":
        return
    from kcard.cli.defaults import default_map
    from kcard.config import settings

    found = default_map(settings()).get("ask", {})
    ctx.default_map = {
        "collect": {key: v for key, v in found.items() if key in AskOptions.__dataclass_fields__}
    }


@gates.command("collect")
@command_for(AskOptions, leave_out={"gate"})
def collect(
    given: dict[str, Any],
    questions: Annotated[Path, typer.Option(help="Questions with answers, or a data set in its own layout.")],
    output: Annotated[Path, typer.Option(help="File for the records.")],
    task: Annotated[
        str | None,
        typer.Option(help="The data set: midterm, popqa ... [default: what the file says, otherwise jsonl]"),
    ] = None,
    metric: Annotated[
        Literal["substring", "em", "f1", "accuracy"] | None,
        typer.Option(
            help="The metric of correctness; all four are stored. [default: the task's; substring for jsonl]"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: ask questions that are missing in --output or failed.")
    ] = False,
) -> None:
    """Answer questions without and with cards, and record how correct both answers are."""
    run = {"questions": questions, "output": output, "task": task, "metric": metric, "resume": resume}
    _collected(run, given)


def _collected(run: dict[str, Any], options: dict[str, Any]) -> None:
    from kcard.api.collect import Collection

    collection = Collection(**run, **options, report=lambda text: note(f"note: {text}"))
    if announcement := getattr(collection.llm, "announcement", None):
        note(f"note: {announcement}")
    total, output = len(collection.rows), collection.output
    if collection.done:
        note(f"{collection.done} of {total} questions are already answered")
    with resumable("records", output), counter("asking", total) as report:
        totals = collection.run(report)
    note(f"{collection.done + totals.answered} of {total} records: {output} ({totals.calls} LLM calls)")
    if totals.failed:
        note(
            f"{totals.failed} questions failed; repeat them with --resume, because gates need records without errors"
        )
        sys.exit(1)


@gates.command("fit")
@command_for(fit_gate)
def fit(given: dict[str, Any], json_: Json = False) -> None:
    """Fit a gate on records, for `kcard ask --gate`."""
    fitted, path = fit_gate(**given | {"settings": given_settings(given["settings"])})
    name = given["kind"] if given["output"] is None else str(path)
    if json_:
        print_json(
            {
                "gate": fitted.kind,
                "file": str(path),
                "threshold": fitted.threshold,
                "settings": dict(fitted.settings),
            }
        )
    else:
        echo(str(path))
    note(
        f"use it with `kcard ask --gate {name}`, evaluate it with `kcard gate eval --gate {path} --records ...`"
    )


@gates.command("eval")
@command_for(evaluate_gate)
def evaluate(given: dict[str, Any], json_: Json = False) -> None:
    """Evaluate a gate on records that it was not fitted on."""
    with late_counter("folds") as report:
        found = evaluate_gate(**given | {"settings": given_settings(given["settings"])}, report=report)
    if json_:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: "Evaluation") -> None:
    outcome = found.outcome
    guidance = outcome.beneficial_guidance
    how = "as it is" if found.folds is None else f"{found.folds} folds"
    echo(f"{found.gate}, {outcome.n} records, {how}")
    rows = {
        "accuracy": f"{outcome.accuracy:.3f}",
        "uses cards": f"{outcome.share:.1%} of the questions",
        "guidance": "-"
        if guidance is None
        else f"{guidance:.1%} of the questions where it matters decided correctly",
        "over-asking": f"{outcome.over_asking:.1%} of the questions use cards that do not improve the answer",
        "under-asking": f"{outcome.under_asking:.1%} do not use cards that would",
        **{f"at {share:.0%} calls": f"{v:.3f}" for share, v in found.ranking.accuracy_at.items()},
        "calibration": "-"
        if found.ranking.ece is None
        else f"{found.ranking.ece:.3f} (ECE of P(right without))",
        "never": f"{outcome.never:.3f}",
        "always": f"{outcome.always:.3f}",
        "random": f"{outcome.random_same_share:.3f} at the same share",
        "oracle": f"{outcome.oracle:.3f}",
        **{key: str(value) for key, value in found.settings.items()},
    }
    for key, value in rows.items():
        echo(f"  {key:<14} {value}")
    for key, values in (found.tuned or {}).items():
        echo(f"  {key + ' in folds':<14} {', '.join(f'{v} ({n})' for v, n in values.items())}")
