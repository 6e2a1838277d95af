"""How to ask what a table of a paper shows."""

import math
from typing import TYPE_CHECKING, Any

from kcard.cli.output import console, echo, table

if TYPE_CHECKING:
    from kcard.api.paper_table import Reproduction

__all__ = ["data", "show"]


def show(found: "Reproduction") -> None:
    """The table as the paper has it, the commands, and what is missing."""
    from rich.markup import escape

    paper = found.table
    echo(f"{paper.paper}, table {paper.number}: {paper.title}")
    for label in ("data", "model", "metric"):
        echo(f"  {label:<8} {getattr(paper, label)}")
    if paper.rows:
        columns = table("in the paper", "setting", *paper.columns, right=paper.columns)
        for row in paper.rows:
            values = ("-" if math.isnan(value) else f"{value:g}" for value in row.values)
            columns.add_row(escape(row.name), row.setting or "-", *values)
        console().print(columns)
    for title, lines in (
        ("commands", found.commands),
        ("missing here", found.missing),
        ("not to be had", paper.lacks),
    ):
        if lines:
            echo(f"{title}:")
            for line in lines:
                echo(f"  {line}")


def data(found: "Reproduction") -> dict[str, Any]:
    """The same as JSON."""
    paper = found.table
    rows = [
        {
            "name": row.name,
            "setting": row.setting,
            "values": [None if math.isnan(value) else value for value in row.values],
        }
        for row in paper.rows
    ]
    return {
        "paper": paper.paper,
        "table": paper.number,
        "title": paper.title,
        "data": paper.data,
        "model": paper.model,
        "metric": paper.metric,
        "columns": list(paper.columns),
        "rows": rows,
        "commands": list(found.commands),
        "missing": list(found.missing),
        "lacks": list(paper.lacks),
    }
