"""kcard browse: what every card knows, and how far it can be trusted."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from kcard.api.exam import browse as browse_cards
from kcard.cli.options import command_for
from kcard.cli.output import Json, as_data, cell, console, note, print_json, table
from kcard.hub.values import DECLARED, GOOD, ScoreEstimate, format_score
from kcard.io import shown_size

if TYPE_CHECKING:
    from rich.text import Text

    from kcard.evaluation.audit_history import SourcedScores
    from kcard.evaluation.browse import CardReport

# The colours of values on a terminal.
COLOURS = {"good": "green", "fair": "yellow", "poor": "red", "none": ""}
# The columns of the table after name and description; a narrow terminal drops the last ones first.
FIGURES = ("factuality", "recall", "faithfulness", "lift", "given")
COLUMNS = (*FIGURES, "domain", "size", "base")
UNKNOWN = "-"
MIN_DESCRIPTION_WIDTH, MAX_DESCRIPTION_WIDTH = 30, 60  # columns of a terminal
MAX_DESCRIPTION_CHARACTERS = 160
MAX_COMMANDS = 5
MIN_WIDTH_OF_AUDITS = 120  # columns of a terminal that shows all of an audit

# Attributes of a report and of an audit as --json has them.
FACTS = ("reference", "name", "description", "domain", "base", "kind", "size")
SCORES = ("recall", "lift", "given", "faithfulness", "factuality", "coverage")
PROVENANCE = (
    *("checker", "checker_sha256", "evidence", "evidence_sha256", "evidence_overlap", "independent"),
    *("queries", "queries_sha256", "seed"),
)


@command_for(browse_cards)
def browse(
    values: dict[str, Any],
    json_: Json = False,
) -> None:
    """Browse published cards with their measured figures.

    Faithfulness is to a card's own corpus, factuality to independent evidence.
    """
    reports = browse_cards(**values)
    if json_:
        print_json([_browse_row(report) for report in reports])
    elif values["name"] is not None:
        _print_detail(reports[0])
    else:
        is_filtered = any(values[key] for key in ("text", "domain", "base"))
        _print_table(reports, values["sort"], is_filtered=is_filtered)


def _browse_row(report: "CardReport") -> dict[str, Any]:
    """Return a card as a row of --json: its figures, where they come from, and the history of its audits."""
    row: dict[str, Any] = {name: getattr(report, name) for name in (*FACTS, *SCORES)}
    row["faithfulness_scores"] = report.faithfulness_scores
    row["factuality_scores"] = report.factuality_scores
    row["recall_from"] = report.recall_origin
    row["faithfulness_from"] = report.faithful and report.faithful.origin
    row["factuality_from"] = report.factual and report.factual.origin
    row["declared"], row["verified"] = as_data(report.declared), as_data(report.verified)

    # The figures with their samples; the factuality by which the card is ranked may be of an earlier version.
    row["estimates"] = {
        "recall": as_data(report.recall_estimate),
        "lift": as_data(report.lift_estimate),
        "faithfulness": as_data(report.faithful and report.faithful.estimate),
        "factuality": as_data(report.factual and report.factual.estimate),
    }
    row["standing"] = None
    if report.standing is not None and report.standing.estimate is not None:
        version = report.standing.version or report.number
        row["standing"] = as_data(report.standing.estimate) | {"version": version, "waiting": report.waits}

    # The audits of all versions, with their means and how they were measured.
    row["audits"] = []
    for past in report.audits:
        entry = {"version": past.version, "taken": past.taken.isoformat()}
        for name in ("faithfulness", "factuality"):
            scores = getattr(past.audit, name)
            entry[name] = as_data(scores and scores.mean)
        entry["coverage"] = as_data(past.audit.coverage)
        row["audits"].append(entry | as_data(past.audit, *PROVENANCE))

    # What limits the trust in the card.
    row["unexamined"] = report.unexamined
    if report.factual is not None:
        row |= {"judged": len(report.factuality_scores), "independent": report.factual.independent}
    if report.quarantine is not None:
        row |= {"quarantined": True, "quarantine": as_data(report.quarantine)}
    return row


# The table: as many columns as the terminal has room for, the name always whole.


def _print_table(reports: "list[CardReport]", sort: str, *, is_filtered: bool) -> None:
    """Print a row for each card, with the figures that fit; below the description, what to know about them."""
    if not reports:
        from kcard.hub.registry import Hub
        from kcard.hub.selection import EMPTY_HUB

        has_cards = len(Hub()) > 0
        note("no card matches" if is_filtered and has_cards else EMPTY_HUB)
        return
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    cells = [_figure_cells(report) for report in reports]
    # The columns that fit; what cards are sorted by stays longest, and nothing else takes the room of a figure.
    columns: list[str] = []
    name_width = max(len(report.reference) for report in reports)
    room = out.width - name_width - 2 - MIN_DESCRIPTION_WIDTH
    for name in sorted(COLUMNS, key=lambda name: name != sort):
        has_values, width = False, len(name)
        for row in cells:
            if row[name].plain != UNKNOWN:
                has_values, width = True, max(width, row[name].cell_len)
        if has_values and width + 2 <= room:
            columns.append(name)
            room -= width + 2
        elif has_values and name in FIGURES:
            break
    # A name that leaves no room for its description has a line of its own.
    is_stacked = room < 0
    rows = table("card", "description", *(name for name in COLUMNS if name in columns), right={"size"})
    for column in rows.columns:
        column.no_wrap = column.header != "description"
    rows.columns[1].max_width = MAX_DESCRIPTION_WIDTH
    for report, row in zip(reports, cells, strict=True):
        description = Text("\n").join(_description_lines(report, row, columns))
        if is_stacked:
            out.print(Text(report.reference, "bold"), soft_wrap=True)
            out.print(Padding(description, (0, 0, 0, 2)))
        else:
            rows.add_row(Text(report.reference), description, *(row[str(c.header)] for c in rows.columns[2:]))
    if not is_stacked:
        out.print(rows)
    # The commands that measure the others, each whole.
    unmeasured = [report for report in reports if report.standing is None]
    for report in unmeasured[:MAX_COMMANDS]:
        out.print(Text(f"factuality not measured: {_measuring_command(report)}", "dim"), soft_wrap=True)
    if len(unmeasured) > MAX_COMMANDS:
        out.print(Text(f"and of {len(unmeasured) - MAX_COMMANDS} more cards", "dim"))


def _figure_cells(report: "CardReport") -> "dict[str, Text]":
    """Return the cells of a card by column."""
    from rich.text import Text

    declared = report.recall_source == DECLARED
    return {
        "factuality": _sourced(report.standing),
        "recall": format_estimate(report.recall_estimate, declared=declared),
        "faithfulness": _sourced(report.faithful),
        "lift": format_estimate(report.lift_estimate, sign="+", declared=declared),
        "given": format_estimate(report.given_estimate, declared=True),
        "domain": Text(report.domain),
        "base": Text(report.base),
        "size": Text(shown_size(report.size)),
    }


def _sourced(scores: "SourcedScores | None") -> "Text":
    if scores is None:
        return format_estimate(None)
    return format_estimate(
        scores.estimate, declared=scores.source == DECLARED, independent=scores.independent
    )


def format_estimate(
    estimate: ScoreEstimate | None, *, sign: Any = "", declared: bool = False, independent: bool = True
) -> "Text":
    """Return a figure with its sample, coloured by its value: .81 (n 40, .66–.90); "-" for None.

    A difference, with a sign, and a figure whose evidence is not independent have no colour.
    """
    from rich.text import Text

    if estimate is None:
        return Text(UNKNOWN)
    colour = COLOURS["none" if sign or not independent else estimate.tone]
    text = Text.assemble((format_score(estimate.value, sign), colour), f" ({estimate.sample})")
    if declared:
        text.append(" declared", "dim")
    return text


def _description_lines(
    report: "CardReport", row: "dict[str, Text]", columns: Sequence[str]
) -> "Iterator[Text]":
    """Yield the description, a figure if no column has one, and what limits the trust in the card."""
    from rich.text import Text

    description = report.description
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        description = description[: MAX_DESCRIPTION_CHARACTERS - 1].rstrip() + "…"
    yield Text(description)
    # One figure at least, whichever it has.
    figures = [name for name in FIGURES if row[name].plain != UNKNOWN]
    if figures and not set(figures) & set(columns):
        yield Text.assemble(f"{figures[0]} ", row[figures[0]])
    remarks = [Text(remark) for remark in factuality_remarks(report)]
    if report.unexamined:
        remarks.insert(0, Text("unexamined weights"))
    if report.quarantine is not None:
        threshold = format_score(report.quarantine.threshold)
        remarks.insert(0, Text(f"quarantined: below {threshold}", COLOURS["poor"]))
    if remarks:
        yield Text(" · ").join(remarks)


def factuality_remarks(report: "CardReport") -> Iterator[str]:
    """Yield what to know about the factuality of a card: its version, its coverage, whether it is ranked."""
    standing = report.standing
    if standing is None:
        return
    if report.waits and standing.estimate is not None:
        value = format_score(standing.estimate.value)
        yield f"v{standing.version}: {value}; v{report.number} waiting"
    if standing.coverage is not None and standing.coverage < 1:
        yield f"{1 - standing.coverage:.0%} not covered by the evidence"
    if not standing.independent:
        remark = "not ranked: its evidence repeats its own corpus"
        if standing.overlap is not None:
            remark += f" by {standing.overlap:.0%}"
        yield remark


def _measuring_command(report: "CardReport") -> str:
    return f"kcard audit {report.name} --evidence FILE"


def describe_figures(report: "CardReport") -> Iterator[str]:
    """Yield a line for each figure of a card, with its sample and its source; without any, how to measure them."""
    standing = report.standing
    if standing is not None and standing.estimate is not None:
        line = f"factuality {standing.estimate}, {standing.origin}"
        if standing.against:
            line += f" against {standing.against}"
            if report.verified is not None and report.verified.evidence_sha256 and not report.waits:
                line += f" (sha256 {report.verified.evidence_sha256[:12]})"
        yield line
        for remark in factuality_remarks(report):
            yield f"  {remark}"
    else:
        yield f"factuality not measured: {_measuring_command(report)}"
    if report.faithful is not None and report.faithful.estimate is not None:
        yield f"faithfulness {report.faithful.estimate}, {report.faithful.origin}"
    if report.recall_estimate is not None:
        yield f"recall {report.recall_estimate}, {report.recall_origin}"
    if report.declared is not None and report.declared.fault:
        yield f"its exam.json is not plausible: {report.declared.fault}"


# One card in detail.


def _print_detail(r: "CardReport") -> None:
    """Print all that is known of one card: exams, distributions of scores, audits, best and worst passages."""
    from rich.markup import escape
    from rich.text import Text

    from kcard.evaluation.audit_history import describe_origin
    from kcard.evaluation.metrics import count_by_range

    out = console()
    out.print(f"[bold]{escape(r.reference)}[/bold]  {escape(r.description)}")
    out.print(f"{escape(r.domain)} · {escape(r.base)} · {shown_size(r.size)}")
    if r.quarantined:
        out.print(f"quarantined: {r.quarantine}", markup=False)
    if r.unexamined:
        out.print("unexamined: it has weights, but no plausible exam")
    if r.declared and r.declared.fault:
        out.print(f"its exam.json is not plausible: {r.declared.fault}", markup=False)

    # Recall by the hub's exam and by the card's own.
    exams = []
    if r.hub_exam is not None:
        exams.append((r.hub_exam.exam, describe_origin(r.hub_exam.taken)))
    if r.exam is not None:
        exams.append((r.exam, describe_origin(None)))
    for exam, source in exams:
        for run in (exam.own, exam.given):
            if run is not None:
                line = (
                    f"recall {cell(run.recall)}, lift {cell(run.lift)} over {exam.base}, {run.questions} questions "
                    f"({run.asked}), {source}"
                )
                out.print(line, markup=False)
    if r.note:
        out.print(r.note, markup=False)

    # The distributions of the scores.
    against = r.factual.against if r.factual else "independent evidence"
    for heading, by in (("faithfulness (own corpus)", r.faithful), (f"factuality ({against})", r.factual)):
        title = Text(f"\n{heading} ")
        if by is None:
            title.append(UNKNOWN)
        else:
            title.append(format_estimate(by.estimate)).append(f", {by.origin}")
        out.print(title)
        if by is r.factual:
            for remark in factuality_remarks(r):
                out.print(remark, markup=False)
            if r.standing is None:
                out.print(f"measure it: {_measuring_command(r)}", markup=False)
        if by is not None and by.scores.scores:
            bins = count_by_range(by.scores.scores)
            for i, count in enumerate(bins):
                out.print(f"  {i / 10:.1f} {'█' * round(40 * count / max(bins))} {count}")

    _print_audits(r)
    for what, passages in (("best", r.best), ("worst", r.worst)):
        shown = []
        for passage in passages:
            score = passage.factuality
            if score is None:
                score = passage.faithfulness
            if what == "best" or score is None or score < GOOD:
                shown.append(_scored(score, passage.text, passage.question))
        if shown:
            out.print(f"\n{what} passages of the card's own exam")
        for lines in shown:
            out.print(lines, soft_wrap=True)


def _print_audits(r: "CardReport") -> None:
    """Print the audits of all versions, oldest first, and the worst documents of this version's latest."""
    from rich.markup import escape

    from kcard.evaluation.audit_history import estimate_of

    if not r.audits:
        return
    out = console()
    is_wide = out.width >= MIN_WIDTH_OF_AUDITS
    headings: tuple[str, ...] = ("evidence",)
    if is_wide:
        headings = ("covered", "evidence", "queries", "checker")
    rows = table("audits", "version", "faithfulness", "factuality", no_wrap=True)
    for heading in headings:
        rows.add_column(heading, overflow="fold")
    for past in r.audits:
        audit = past.audit
        estimates: list[ScoreEstimate | None] = []
        for scores in (audit.faithfulness, audit.factuality):
            estimates.append(None if scores is None else estimate_of(scores.mean, len(scores.scores)))
        taken, cells = f"{past.taken:%Y-%m-%d}", {"evidence": audit.evidence or "-"}
        if not audit.independent:
            cells["evidence"] += " (not independent)"
        if is_wide:
            taken = f"{past.taken:%Y-%m-%d %H:%M}"
            cells |= {"queries": audit.queries, "checker": audit.checker}
            cells["covered"] = cell(audit.coverage and audit.coverage.mean, ".0%")
        values = [escape(cells[heading]) for heading in headings]
        rows.add_row(taken, f"v{past.version}", *map(format_estimate, estimates), *values)
    out.print()
    out.print(rows)
    if r.audit is None or not r.audit.audit.worst:
        return
    latest = r.audit.audit
    out.print(f"\nworst documents of the latest audit, by {latest.ranked_by}")
    for document in latest.worst:
        score = document.faithfulness
        if latest.ranked_by == "factuality":
            score = document.factuality
        out.print(_scored(score, document.text, document.query), soft_wrap=True)


def _scored(score: float | None, text: str, question: str) -> "Text":
    """Return a passage with its score, in the colour of the score, and the question."""
    from rich.text import Text

    shown = Text("  ")
    if score is None:
        shown.append("-")
    else:
        shown.append(format_score(score), COLOURS[ScoreEstimate(score).tone])
    return shown.append(f"  {text}\n        asked: {question}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(browse)
