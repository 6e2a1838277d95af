"""kcard gate and calibrate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.gates import analyse as verb
from kcard.api.gates import calibrate as gates_verb
from kcard.api.gates import evaluate as evaluate_gate
from kcard.api.gates import fit as fit_gate
from kcard.api.gates import keep
from kcard.cli.options import command_for, given_settings
from kcard.cli.output import Json, console, counter, echo, late_counter, note, print_json, resumable, table
from kcard.integrators.options import AskOptions

if TYPE_CHECKING:
    from kcard.api.gates import CalibrationResult, Evaluation
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.evaluation.gates.calibration import Calibration, ComparedGate

__all__ = ["register"]


# kcard calibrate: every gate compared on your own records; the one that is worth it goes into the config.


def _register_calibrate(app: typer.Typer) -> None:
    app.command()(calibrate)


@command_for(gates_verb)
def calibrate(
    given: dict[str, Any],
    html: Annotated[Path | None, typer.Option(help="Write the report to this file (HTML).")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the cost/accuracy curves to this file (.svg or .png).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare only; change no config.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Change the config without confirmation.")] = False,
    json_: Json = False,
) -> None:
    """Compare all gates on your own records, and configure `kcard ask` to use the best one if it pays off."""
    if html is not None or plot is not None:
        from kcard.evaluation.gates.calibration import require

        require()
    found = gates_verb(**given, report=lambda name: note(f"comparing {name}"))
    _write(found, html, plot)
    if not json_:
        _print_calibrate(found.comparison)
        echo(found.choice.text)
    written = None if dry_run or not (_enough(found, yes) and _agreed(found, yes)) else keep(found)
    if written is not None:
        note(f"ask.gate = {written[0]} in {written[1]}")
    if json_:
        print_json(_data(found, None if written is None else written[0]))


def _enough(found: "CalibrationResult", yes: bool) -> bool:
    """Whether so many records may decide what every later question goes through."""
    from kcard.api.gates import ENOUGH

    if yes or len(found.records) >= ENOUGH:
        return True
    note(
        f"{len(found.records)} records are too few to change the config, which stays as it is: collect at least "
        f"{ENOUGH}, or use --yes"
    )
    return False


def _agreed(found: "CalibrationResult", yes: bool) -> bool:
    """Whether the config may be changed; only a terminal is asked."""
    if yes or not sys.stdin.isatty():
        return True
    return typer.confirm(f"Have `kcard ask` use the gate {found.gate}?", default=True, err=True)


def _write(found: "CalibrationResult", html: Path | None, plot: Path | None) -> None:
    if plot is not None:
        from kcard.evaluation.gates.calibration import write_plot

        write_plot(found.comparison, plot)
        note(f"plot: {plot}")
    if html is not None:
        from kcard.evaluation.gates.calibration import write_page

        note(f"report: {write_page(found.comparison, found.choice, html)}")


def _print_calibrate(found: "Calibration") -> None:
    base, best = found.baselines, found.reference
    headings = (
        "gate",
        "accuracy",
        "uses cards",
        "random",
        "guidance",
        f"over {best.name}",
        "p",
        "p, all gates",
    )
    rows = table(*headings, right=headings[1:], no_wrap=True)
    rows.add_row("never", f"{base.never:.3f}", "0%")
    rows.add_row("always", f"{base.always:.3f}", "100%")
    for row in sorted(found.rows, key=lambda row: -row.outcome.accuracy):
        rows.add_row(*_cells(row))
    rows.add_row("oracle", f"{base.oracle:.3f}")
    out = console()
    out.print(rows)
    for gate, why in found.skipped:
        note(f"not compared: {gate}: {why}")


def _cells(row: "ComparedGate") -> tuple[str, ...]:
    outcome, guidance = row.outcome, row.outcome.beneficial_guidance
    return (
        row.gate,
        f"{outcome.accuracy:.3f} \\[{row.low:.3f}, {row.high:.3f}]",
        f"{outcome.share:.0%}",
        f"{outcome.random_same_share:.3f}",
        "-" if guidance is None else f"{guidance:.0%}",
        f"{row.difference:+.3f} \\[{row.difference_low:+.3f}, {row.difference_high:+.3f}]",
        f"{row.p:.2g}",
        f"{row.p_holm:.2g}",
    )


def _data(found: "CalibrationResult", written: str | None) -> dict[str, Any]:
    from kcard.evaluation.gates.calibration import as_data

    chosen = found.choice.gate
    recommendation = {
        "gate": found.gate,
        "beats": chosen is not None,
        "text": found.choice.text,
        "written": written,
    }
    return {**as_data(found.comparison), "recommendation": recommendation}


# kcard gate analyse: what the papers report of gates, from records.


def _register_analyse(gates: typer.Typer) -> None:
    gates.command("analyse")(analyse)


@command_for(verb)
def analyse(
    given: dict[str, Any],
    plot: Annotated[Path | None, typer.Option(help="Write the plot to this file (.svg or .png).")] = None,
    json_: Json = False,
) -> None:
    """Analyse records as the papers do: popularity-curves, popularity-splits, recall, self-ask-templates,
    thrust-scores, thrust-shares, training-sizes."""
    if plot is not None:
        from kcard.evaluation.plots import new_figure

        new_figure()
    with late_counter("steps") as report:
        found = verb(**given | {"settings": given_settings(given["settings"])}, report=report)
    if plot is not None:
        from kcard.evaluation.plots import drawn, write

        write(drawn(found.chart, f"{found.name}, {found.records} records"), plot)
        note(f"plot: {plot}")
    if json_:
        print_json(found.to_json())
    else:
        _print_analyse(found)


def _print_analyse(found: "GateAnalysis") -> None:
    columns = list(found.rows[0])
    words = {key for key in columns if isinstance(found.rows[0][key], str)}
    shown = table(*(key.replace("_", " ") for key in columns), right={*columns} - words)
    for row in found.rows:
        shown.add_row(*(_cell(row[key]) for key in columns))
    console().print(shown)
    for key, value in found.summary.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for name, figure in parts:
            echo(f"{' '.join(filter(None, [key, name])).replace('_', ' ')}: {_cell(figure)}")


def _cell(value: Any) -> str:
    if value is None or value != value:  # not a number
        return "-"
    return f"{round(value, 3) + 0.0:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


gates = typer.Typer(
    no_args_is_help=True, help="Gates: does a question need a card at all?", rich_markup_mode=None
)


def _register_gate(app: typer.Typer) -> None:
    app.add_typer(gates, name="gate")
    _register_analyse(gates)


@gates.callback()
def _configured(ctx: typer.Context) -> None:
    """What is configured for ask holds for collecting too."""
    if ctx.invoked_subcommand != "collect":
        return
    from kcard.cli.options import default_map
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
    from kcard.api.gates import Collection

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


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_gate(app)
    _register_calibrate(app)
