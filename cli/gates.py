"""kcard gate and calibrate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.experiment import experiment as run_experiment
from kcard.api.gates import ENOUGH, keep
from kcard.api.gates import analyse as analyse_records
from kcard.api.gates import calibrate as compare_gates
from kcard.api.gates import evaluate as evaluate_gate
from kcard.api.gates import fit as fit_gate
from kcard.cli.options import LongCommand, command_for, parse_key_values, typed_values
from kcard.cli.output import (
    Json,
    cell,
    console,
    echo,
    note,
    notice,
    print_json,
    print_whole,
    progress,
    resumable,
    show_note,
    table,
)
from kcard.events import Event
from kcard.integrators.options import AskOptions, PresetOption

if TYPE_CHECKING:
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.evaluation.gates.calibration import Calibration

# kcard calibrate: compares all gates on the user's own records and configures the best one if it pays off.


@command_for(compare_gates)
def calibrate(
    values: dict[str, Any],
    html: Annotated[Path | None, typer.Option(help="Write the report to this file (HTML).")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the cost/accuracy curves to this file (.svg or .png).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare only; change no config.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Change the config without confirmation.")] = False,
    json_: Json = False,
) -> None:
    """Compare all gates on your own records. If the best one pays off, `kcard ask` is configured to use it."""
    result = compare_gates(**values, on_event=lambda event: note(event.message) if event.is_note else None)
    from kcard.evaluation.gates.calibration import calibration_data, write_page, write_plot

    if plot is not None:
        write_plot(result.comparison, plot)
        note(f"plot: {plot}")
    if html is not None:
        note(f"report: {write_page(result.comparison, result.choice, html)}")
    if not json_:
        _print_comparison(result.comparison)
        echo(result.choice.text)

    # The config changes with enough records and, on a terminal, with the user's consent.
    has_enough = yes or len(result.records) >= ENOUGH
    if not dry_run and not has_enough:
        note(
            f"{len(result.records)} records are too few to change the config, which stays as it is: collect at "
            f"least {ENOUGH}, or use --yes"
        )
    may_change = not dry_run and has_enough
    if may_change and not yes and sys.stdin.isatty():
        may_change = typer.confirm(f"Have `kcard ask` use the gate {result.gate}?", default=True, err=True)
    change = keep(result) if may_change else None
    if change is not None:
        note(f"ask.gate = {change[0]} in {change[1]}")
    if json_:
        recommendation = {
            "gate": result.gate,
            "beats": result.choice.gate is not None,
            "text": result.choice.text,
            "written": None if change is None else change[0],
        }
        print_json({**calibration_data(result.comparison), "recommendation": recommendation})


def _print_comparison(calibration: "Calibration") -> None:
    """Print a row for each gate, best first, between the baselines and the oracle."""
    base, best = calibration.baselines, calibration.reference
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
    for row in sorted(calibration.rows, key=lambda row: -row.outcome.accuracy):
        outcome, guidance = row.outcome, row.outcome.beneficial_guidance
        rows.add_row(
            row.gate,
            f"{outcome.accuracy:.3f} \\[{row.low:.3f}, {row.high:.3f}]",
            f"{outcome.share:.0%}",
            f"{outcome.random_same_share:.3f}",
            cell(guidance, ".0%"),
            f"{row.difference:+.3f} \\[{row.difference_low:+.3f}, {row.difference_high:+.3f}]",
            f"{row.p:.2g}",
            f"{row.p_holm:.2g}",
        )
    rows.add_row("oracle", f"{base.oracle:.3f}")
    console().print(rows)
    for gate, why in calibration.skipped:
        note(f"not compared: {gate}: {why}")


# kcard gate experiment: a paper's experiment, whole.


def _gate_defaults() -> dict[str, Any]:
    """Return the settings of ask, which apply to the commands that answer questions."""
    from kcard.cli.options import default_map
    from kcard.config import settings

    defaults = default_map(settings()).get("ask", {})
    return {key: value for key, value in defaults.items() if key in AskOptions.__dataclass_fields__}


@command_for(run_experiment, AskOptions, leave_out={"gate"})
def experiment(values: dict[str, Any], ctx: typer.Context, json_: Json = False) -> None:
    """Run a paper's experiment on gates: collect records, fit its gates per task, evaluate and analyse them."""
    typed = typed_values(values, ctx)
    with progress() as show_progress:

        def on_event(event: Event) -> None:
            note(event.message) if event.is_note else show_progress(event)

        result = run_experiment(**typed, on_event=on_event)
    if json_:
        print_json(result.to_json())
        return
    headings = ("task", "gate", "held out", "accuracy", "uses cards", "random", "guidance", "never", "always")
    rows = table(*headings, right=headings[2:], no_wrap=True)
    for row in result.rows:
        if (outcome := row.outcome) is None:
            rows.add_row(row.task, row.gate, str(row.held_out), "-")
            continue
        guidance = outcome.beneficial_guidance
        rows.add_row(
            *(row.task, row.gate, str(row.held_out), f"{outcome.accuracy:.3f}", f"{outcome.share:.0%}"),
            *(f"{outcome.random_same_share:.3f}", cell(guidance, ".0%")),
            *(f"{outcome.never:.3f}", f"{outcome.always:.3f}"),
        )
    print_whole(rows)
    for name, analysis in result.analyses.items():
        echo(f"{name}, {analysis.records} records")
        _print_analysis(analysis)
    note(
        f"records, gates and all figures: {result.folder}; plots: `kcard gate analyse NAME --plot FILE --records "
        f"{result.folder / result.rows[0].task / 'records.jsonl'}`"
    )


# kcard gate analyse: what the papers report about gates, computed from records.


@command_for(analyse_records)
def analyse(
    values: dict[str, Any],
    plot: Annotated[Path | None, typer.Option(help="Write the plot to this file (.svg or .png).")] = None,
    json_: Json = False,
) -> None:
    """Analyse records as the papers do: popularity-curves, popularity-splits, recall, self-ask-templates,
    thrust-scores, thrust-shares, training-sizes."""
    with progress() as on_event:
        analysis = analyse_records(
            **values | {"settings": parse_key_values(values["settings"])}, on_event=on_event
        )
    if plot is not None:
        from kcard.evaluation.plots import draw_chart, write_figure

        write_figure(draw_chart(analysis.chart, f"{analysis.name}, {analysis.records} records"), plot)
        note(f"plot: {plot}")
    if json_:
        print_json(analysis.to_json())
        return
    _print_analysis(analysis)


def _print_analysis(analysis: "GateAnalysis") -> None:
    """Print the table of an analysis, and its single figures."""
    columns = list(analysis.rows[0])
    words = {key for key in columns if isinstance(analysis.rows[0][key], str)}
    rows = table(*(key.replace("_", " ") for key in columns), right={*columns} - words)
    for row in analysis.rows:
        rows.add_row(*(_cell(row[key]) for key in columns))
    print_whole(rows)
    for key, value in analysis.summary.items():
        for name, figure in value.items() if isinstance(value, dict) else [("", value)]:
            text = (
                ", ".join(f"{part.replace('_', ' ')} {_cell(each)}" for part, each in figure.items())
                if isinstance(figure, dict)
                else _cell(figure)
            )
            echo(f"{' '.join(filter(None, [key, name])).replace('_', ' ')}: {text}")


def _cell(value: Any) -> str:
    if value is None or value != value:  # not a number
        return "-"
    return f"{round(value, 3) + 0.0:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


gates = typer.Typer(
    no_args_is_help=True, help="Gates: does a question need a card at all?", rich_markup_mode=None
)


@gates.callback()
def _configure(ctx: typer.Context) -> None:
    """Let the settings of ask apply to collect and experiment too."""
    if ctx.invoked_subcommand in {"collect", "experiment"}:
        ctx.default_map = {ctx.invoked_subcommand: _gate_defaults()}


@gates.command("collect", cls=LongCommand)
@command_for(AskOptions, PresetOption, leave_out={"gate"})
def collect(
    values: dict[str, Any],
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
    limit: Annotated[
        int | None, typer.Option(min=1, help="Questions, drawn with the seed. [default: all]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: ask questions that are missing in --output or failed.")
    ] = False,
) -> None:
    """Answer questions without and with cards, and record how correct both answers are."""
    from kcard.api.gates import Collection

    run: dict[str, Any] = {
        "questions": questions,
        "task": task,
        "metric": metric,
        "limit": limit,
        "resume": resume,
    }
    collection = Collection(**run, output=output, **values, on_event=show_note)
    if collection.llm.announcement:
        notice(collection.llm.announcement)
    total, output = len(collection.rows), collection.output
    if collection.done:
        note(f"{collection.done} of {total} questions are already answered")
    with resumable("records", output), progress() as on_event:
        totals = collection.run(on_event)
    note(f"{collection.done + totals.answered} of {total} records: {output} ({totals.calls} LLM calls)")
    if totals.failed:
        note(
            f"{totals.failed} questions failed; repeat them with --resume, because gates need records without errors"
        )
        sys.exit(1)


@gates.command("fit")
@command_for(fit_gate)
def fit(values: dict[str, Any], json_: Json = False) -> None:
    """Fit a gate on records, for `kcard ask --gate`."""
    fitted, path = fit_gate(**values | {"settings": parse_key_values(values["settings"])})
    name = values["kind"] if values["output"] is None else str(path)
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
def evaluate(values: dict[str, Any], json_: Json = False) -> None:
    """Evaluate a gate on records that it was not fitted on."""
    with progress() as on_event:
        evaluation = evaluate_gate(
            **values | {"settings": parse_key_values(values["settings"])}, on_event=on_event
        )
    if json_:
        print_json(evaluation.to_json())
        return

    # The figures, the baselines and the settings, a line each; then the settings that differed between folds.
    outcome = evaluation.outcome
    guidance = outcome.beneficial_guidance
    how = "as it is" if evaluation.folds is None else f"{evaluation.folds} folds"
    echo(f"{evaluation.gate}, {outcome.n} records, {how}")
    rows = {
        "accuracy": f"{outcome.accuracy:.3f}",
        "uses cards": f"{outcome.share:.1%} of the questions",
        "guidance": "-"
        if guidance is None
        else f"{guidance:.1%} of the questions where it matters decided correctly",
        "over-asking": f"{outcome.over_asking:.1%} of the questions use cards that do not improve the answer",
        "under-asking": f"{outcome.under_asking:.1%} do not use cards that would",
        **{f"at {share:.0%} calls": f"{v:.3f}" for share, v in evaluation.ranking.accuracy_at.items()},
        "calibration": "-"
        if evaluation.ranking.ece is None
        else f"{evaluation.ranking.ece:.3f} (ECE of P(right without))",
        "never": f"{outcome.never:.3f}",
        "always": f"{outcome.always:.3f}",
        "random": f"{outcome.random_same_share:.3f} at the same share",
        "oracle": f"{outcome.oracle:.3f}",
        **{key: str(value) for key, value in evaluation.settings.items()},
    }
    for key, value in rows.items():
        echo(f"  {key:<14} {value}")
    for key, counts in (evaluation.tuned or {}).items():
        echo(f"  {key + ' in folds':<14} {', '.join(f'{v} ({n})' for v, n in counts.items())}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    gates.command("analyse")(analyse)
    gates.command("experiment", cls=LongCommand)(experiment)
    app.add_typer(gates, name="gate")
    app.command()(calibrate)
