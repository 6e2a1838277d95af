"""kcard report: a run of `kcard eval` as a web page, as tables, and its analyses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.report import report as verb
from kcard.api.report import write_questions
from kcard.cli.command import command_for
from kcard.cli.output import Json, console, echo, note, print_json, table
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.evaluation.analyses.analysis import Analysis
    from kcard.evaluation.report.report import Report

__all__ = ["print_analysis", "register"]


def register(app: typer.Typer) -> None:
    app.command()(report)


@command_for(verb)
def report(
    given: dict[str, Any],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page to this file (HTML). [default: run-RUN.html]"),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file (CSV).")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Write every question under every setting to this file (CSV).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the charts of --analysis to this file (SVG).")
    ] = None,
    json_: Json = False,
) -> None:
    """Report a run of `kcard eval`: a web page, CSV files, paired tests, analyses."""
    from kcard.evaluation.report.page import write_page

    if plot is not None and given["analysis"] is None:
        raise UsageError("--plot draws one analysis: add --analysis NAME; the page has the other plots")
    found = verb(**given)
    _write_csv(found, given["analysis"], csv, questions)
    if output is not None or not (csv or questions or json_ or given["analysis"]):
        note(f"page written: {write_page(found, output or Path(f'run-{found.run.number}.html'))}")
    if plot is not None:
        from kcard.evaluation.charts.picture import write_pictures

        for path in write_pictures(found.analyses[0].charts, plot):
            note(f"plot written: {path}")
    if given["analysis"] is not None:
        _print_analysis(found.analyses[0], json_)
    elif json_:
        from kcard.evaluation.report.csv_tables import table_lines

        for line in table_lines(found):
            print_json(line)
    else:
        _print_table(found)


def print_analysis(run: int, name: str) -> None:
    """What an analysis finds in a run, as a table."""
    _print_analysis(verb(run, analysis=name, limit=0).analyses[0], False)


def _write_csv(found: "Report", analysis: str | None, path: Path | None, questions: Path | None) -> None:
    from kcard.evaluation.report.csv_tables import analysis_lines, table_lines, write_csv

    if path is not None:
        note(
            f"table written: {write_csv(analysis_lines(found.analyses[0]) if analysis else table_lines(found), path)}"
        )
    if questions is not None:
        note(f"questions written: {write_questions(found.run.number, questions)}")


def _print_analysis(found: "Analysis", json_: bool) -> None:
    from kcard.evaluation.analyses.analysis import shown
    from kcard.evaluation.report.csv_tables import analysis_lines

    if json_:
        for line in analysis_lines(found):
            print_json(line)
        return
    from rich.markup import escape

    note(found.text)
    numbers = {name for i, name in enumerate(found.columns) if not isinstance(found.rows[0][i], str)}
    rows = table(*found.columns, right=numbers)
    for row in found.rows:
        rows.add_row(*(escape(shown(cell)) for cell in row))
    console().print(rows)


def _print_table(found: "Report") -> None:
    from rich.markup import escape

    from kcard.evaluation.report.words import amount, headline, metric_name, probability

    for task in found.tasks:
        base, mine = found.reference(task), found.of(task)
        headings = (
            "setting",
            "n",
            metric_name(mine[0].metric),
            "95 % interval",
            f"over {base}",
            "p",
            "calls",
            "seconds",
        )
        rows = table(*map(escape, headings), right=headings[1:], no_wrap=True)
        for row in mine:
            pair = found.pair(task, row.setting, base)
            rows.add_row(
                escape(row.setting),
                str(row.n),
                f"{row.value:.3f}",
                f"\\[{row.low:.3f}, {row.high:.3f}]",
                "" if pair is None else f"{pair.difference.mean:+.3f}",
                "" if row.p_holm is None else probability(row.p_holm),
                amount(row.calls / row.n),
                amount(row.seconds / row.n),
            )
        echo(f"{task}: {headline(found, task)}")
        console().print(rows)
