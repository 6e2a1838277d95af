"""kcard gate analyse: what the papers report of gates, from records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.analyse import analyse as verb
from kcard.cli.command import command_for
from kcard.cli.key_values import given_settings
from kcard.cli.output import Json, console, echo, late_counter, note, print_json, table

if TYPE_CHECKING:
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis

__all__ = ["register"]


def register(gates: typer.Typer) -> None:
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
        from kcard.evaluation.figure import new_figure

        new_figure()
    with late_counter("steps") as report:
        found = verb(**given | {"settings": given_settings(given["settings"])}, report=report)
    if plot is not None:
        from kcard.evaluation.figure import write
        from kcard.evaluation.gates.analyses.chart import drawn

        write(drawn(found.chart, f"{found.name}, {found.records} records"), plot)
        note(f"plot: {plot}")
    if json_:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: "GateAnalysis") -> None:
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
