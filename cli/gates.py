"""kcard gate and calibrate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.gates import MIN_RECORDS, keep
from kcard.api.gates import analyse as analyse_records
from kcard.api.gates import calibrate as compare_gates
from kcard.api.gates import evaluate as evaluate_gate
from kcard.api.gates import fit as fit_gate
from kcard.cli.options import LongCommand, command_for, parse_key_values
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
from kcard.integrators.options import AskOptions, PresetOption

if TYPE_CHECKING:
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
    with progress() as on_event:
        result = compare_gates(**values, on_event=on_event)
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
    has_enough = yes or len(result.records) >= MIN_RECORDS
    if not dry_run and not has_enough:
        note(
            f"{len(result.records)} records are too few to change the config, which stays as it is: collect at "
            f"least {MIN_RECORDS}, or use --yes"
        )
    may_change = not dry_run and has_enough
    if may_change and not yes and sys.stdin.isatty():
        may_change = typer.confirm(f"Have `kcard ask` use the gate {result.gate}?", default=True, err=True)
    written = None
    if may_change:
        written, path = keep(result)
        note(f"ask.gate = {written} in {path}")
    if json_:
        recommendation = {
            "gate": result.gate,
            "beats": result.choice.gate is not None,
            "text": result.choice.text,
            "written": written,
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

    # The table, then the single figures.
    columns = list(analysis.rows[0])
    rows = table()
    for key in columns:
        is_text = isinstance(analysis.rows[0][key], str)
        rows.add_column(key.replace("_", " "), justify="left" if is_text else "right")
    for row in analysis.rows:
        rows.add_row(*(_cell(row[key]) for key in columns))
    print_whole(rows)
    for key, value in analysis.summary.items():
        figures = {key: value}
        if isinstance(value, dict):
            figures = {f"{key} {name}": figure for name, figure in value.items()}
        for name, figure in figures.items():
            echo(f"{name.replace('_', ' ')}: {_cell(figure)}")


def _cell(value: Any) -> str:
    if value is None or value != value:  # not a number
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_cell(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{round(value, 3) + 0.0:.3f}".rstrip("0").rstrip(".")
    return str(value)


gates = typer.Typer(
    no_args_is_help=True, help="Gates: does a question need a card at all?", rich_markup_mode=None
)


@gates.callback()
def _configure(ctx: typer.Context) -> None:
    """Let the settings of ask apply to collect, which answers questions."""
    from kcard.cli.options import default_map
    from kcard.config import settings

    if ctx.invoked_subcommand != "collect":
        return
    # Those of serve are those of ask that go with AskOptions.
    ctx.default_map = {"collect": default_map(settings()).get("serve", {})}


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
    from kcard.api.collect import Collection

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
    outcome, ranking = evaluation.outcome, evaluation.ranking
    how = "as it is" if evaluation.folds is None else f"{evaluation.folds} folds"
    echo(f"{evaluation.gate}, {outcome.n} records, {how}")
    guidance = calibration = "-"
    if outcome.beneficial_guidance is not None:
        guidance = f"{outcome.beneficial_guidance:.1%} of the questions where it matters decided correctly"
    if ranking.ece is not None:
        calibration = f"{ranking.ece:.3f} (ECE of P(right without))"
    rows: dict[str, object] = {
        "accuracy": f"{outcome.accuracy:.3f}",
        "uses cards": f"{outcome.share:.1%} of the questions",
        "guidance": guidance,
        "over-asking": f"{outcome.over_asking:.1%} of the questions use cards that do not improve the answer",
        "under-asking": f"{outcome.under_asking:.1%} do not use cards that would",
    }
    for share, accuracy in ranking.accuracy_at.items():
        rows[f"at {share:.0%} calls"] = f"{accuracy:.3f}"
    rows |= {
        "calibration": calibration,
        "never": f"{outcome.never:.3f}",
        "always": f"{outcome.always:.3f}",
        "random": f"{outcome.random_same_share:.3f} at the same share",
        "oracle": f"{outcome.oracle:.3f}",
    }
    rows |= evaluation.settings
    for key, counts in (evaluation.tuned or {}).items():
        rows[f"{key} in folds"] = ", ".join(f"{value} ({count})" for value, count in counts.items())
    for key, value in rows.items():
        echo(f"  {key:<14} {value}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    gates.command("analyse")(analyse)
    app.add_typer(gates, name="gate")
    app.command()(calibrate)
