"""kcard calibrate: every gate compared on your own records; the one that is worth it goes into the config."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.calibrate import calibrate as verb
from kcard.api.calibrate import keep
from kcard.cli.command import command_for
from kcard.cli.output import Json, console, echo, note, print_json, table

if TYPE_CHECKING:
    from kcard.api.calibrate import CalibrationResult
    from kcard.evaluation.gates.calibration import Calibration, ComparedGate

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(calibrate)


@command_for(verb)
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
        from kcard.evaluation.gates.plot import require

        require()
    found = verb(**given, report=lambda name: note(f"comparing {name}"))
    _write(found, html, plot)
    if not json_:
        _print(found.comparison)
        echo(found.choice.text)
    written = None if dry_run or not (_enough(found, yes) and _agreed(found, yes)) else keep(found)
    if written is not None:
        note(f"ask.gate = {written[0]} in {written[1]}")
    if json_:
        print_json(_data(found, None if written is None else written[0]))


def _enough(found: "CalibrationResult", yes: bool) -> bool:
    """Whether so many records may decide what every later question goes through."""
    from kcard.api.calibrate import ENOUGH

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
        from kcard.evaluation.gates.plot import write_plot

        write_plot(found.comparison, plot)
        note(f"plot: {plot}")
    if html is not None:
        from kcard.evaluation.gates.page import write_page

        note(f"report: {write_page(found.comparison, found.choice, html)}")


def _print(found: "Calibration") -> None:
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
    from kcard.evaluation.gates.data import as_data

    chosen = found.choice.gate
    recommendation = {
        "gate": found.gate,
        "beats": chosen is not None,
        "text": found.choice.text,
        "written": written,
    }
    return {**as_data(found.comparison), "recommendation": recommendation}
