"""report: what a run came to, with its paired tests, its analyses and the questions behind the numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kcard.option import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.evaluation.report.report import Report
    from kcard.hub.registry import Hub

__all__ = ["report", "write_questions"]


@documented
def report(
    run: Annotated[int, Option("Number of a run of `kcard eval`.", argument=True)],
    *,
    limit: Annotated[
        int, Option("Questions that the page shows in full, those on which settings differ first.", least=0)
    ] = 200,
    analysis: Annotated[
        str | None,
        Option(
            "One analysis instead of the table: NAME, or NAME=FILE.",
            default="on the page, all that find something",
        ),
    ] = None,
    hub: "Hub | None" = None,
) -> "Report":
    """The report of a stored run; `kcard.evaluation.report.page.write_page` writes it as a web page.

    Raises HubError for an unknown run, and UsageError for one without results, or an analysis that is unknown or finds
    nothing in this run.
    """
    check_values(report, {"limit": limit})
    from kcard.evaluation.analyses.registry import analyse, applicable
    from kcard.evaluation.report.brief import brief
    from kcard.evaluation.report.report import make_report, metrics_of
    from kcard.evaluation.runs.storage import RunStorage

    storage = RunStorage(_hub(hub).runs)
    found = storage.get(run)
    results, metrics = [brief(result) for result in storage.results(run)], metrics_of(found)
    analyses = applicable(results, metrics) if analysis is None else [analyse(analysis, results, metrics)]
    return make_report(found, results, limit, analyses, whole=storage.results(run) if limit else ())


def write_questions(run: int, path: Path | str, *, hub: "Hub | None" = None) -> Path:
    """Write every question of a run under every setting as CSV.

    Raises HubError for an unknown run, UsageError where the file can't be written.
    """
    from kcard.evaluation.report.csv_tables import question_lines, write_csv
    from kcard.evaluation.report.report import metrics_of
    from kcard.evaluation.runs.storage import RunStorage

    storage = RunStorage(_hub(hub).runs)
    return write_csv(question_lines(storage.results(run), metrics_of(storage.get(run))), path)


def _hub(hub: "Hub | None") -> "Hub":
    from kcard.hub.registry import Hub

    return Hub() if hub is None else hub
