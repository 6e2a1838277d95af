"""kcard browse: what every card knows and how far it can be trusted."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.browse import browse as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, as_data, console, interval, note, print_json, table
from kcard.sizes import shown_size

if TYPE_CHECKING:
    from kcard.evaluation.browse import CardReport
    from kcard.evaluation.history import Measured, PastAudit
    from kcard.evaluation.record import Judged

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(browse)


@command_for(verb)
def browse(
    given: dict[str, Any],
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    json_: Json = False,
) -> None:
    """Browse published cards: recall, faithfulness (own corpus) and factuality (independent evidence)."""
    reports = verb(**given)
    if html is not None:
        from kcard.evaluation.page import write_page

        write_page(reports, html)
        note(f"page written: {html}")
    if json_:
        print_json([_row(report) for report in reports])
    elif given["name"] is not None:
        _print_detail(reports[0])
    elif html is None:
        _print_table(reports)


def _row(report: "CardReport") -> dict[str, Any]:
    keys = (
        "reference",
        "name",
        "description",
        "domain",
        "base",
        "kind",
        "size",
        "recall",
        "lift",
        "given",
        "faithfulness",
        "factuality",
        "coverage",
    )
    scores = {
        "faithfulness_scores": report.faithfulness_scores,
        "factuality_scores": report.factuality_scores,
    }
    sources = {
        "recall_from": report.recall_origin,
        "faithfulness_from": report.faithful.origin if report.faithful else None,
        "factuality_from": report.factual.origin if report.factual else None,
    }
    audits = [_audit(past) for past in report.audits]
    marks: dict[str, Any] = {"unexamined": report.unexamined}
    if report.factual is not None:
        marks |= {"judged": len(report.factuality_scores), "independent": report.factual.independent}
    if report.quarantine is not None:
        marks |= {"quarantined": True, "quarantine": as_data(report.quarantine)}
    trust = {
        "declared": None if report.declared is None else as_data(report.declared),
        "verified": None if report.verified is None else as_data(report.verified),
    }
    return {key: getattr(report, key) for key in keys} | scores | sources | trust | {"audits": audits} | marks


def _audit(past: "PastAudit") -> dict[str, Any]:
    """One audit of the history, by what names it and what it found."""
    a = past.audit
    means = {
        key: None if scores is None or scores.mean is None else asdict(scores.mean)
        for key, scores in (("faithfulness", a.faithfulness), ("factuality", a.factuality))
    }
    means["coverage"] = None if a.coverage is None else asdict(a.coverage)
    named = (
        "checker",
        "checker_sha256",
        "evidence",
        "evidence_sha256",
        "evidence_overlap",
        "independent",
        "queries",
        "queries_sha256",
        "seed",
    )
    kept = {key: getattr(a, key) for key in named}
    return {"version": past.version, "taken": past.taken.isoformat()} | means | kept


def _print_table(reports: "list[CardReport]") -> None:
    if not reports:
        note("no card matches; publish one with `kcard publish`")
        return
    from rich.markup import escape

    from kcard.evaluation.histogram import histogram

    rows = table("card", "domain", "base", overflow="fold")
    given = any(report.given is not None for report in reports)
    for heading in ("size", "recall", "lift", *(["given"] if given else []), "faithfulness", "factuality"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for r in reports:
        rows.add_row(
            escape(r.reference) + "".join(f" ({mark})" for mark in _marks(r)),
            escape(r.domain),
            escape(r.base),
            shown_size(r.size),
            f"{_number(r.recall)} {r.recall_source}".strip(),
            f"{_number(r.lift, '+')} {r.recall_source if r.lift is not None else ''}".strip(),
            *([_number(r.given)] if given else []),
            f"{histogram(r.faithfulness_scores)} {_number(r.faithfulness)} {_source(r.faithful)}".strip(),
            f"{histogram(r.factuality_scores)} {_number(r.factuality)} {_source(r.factual)}{_covered(r)}".strip(),
        )
    console().print(rows)


def _marks(r: "CardReport") -> list[str]:
    return ["quarantined"] * r.quarantined + ["unexamined weights"] * r.unexamined


def _covered(r: "CardReport") -> str:
    """How much of what the card wrote the evidence covers, and whether it is independent of the card."""
    if r.factual is None:
        return ""
    known = "" if r.coverage is None else f", {r.coverage:.0%} covered, n={len(r.factuality_scores)}"
    return known + ("" if r.factual.independent else ", evidence not independent")


def _source(measured: "Measured | None") -> str:
    return measured.source if measured else ""


def _print_detail(r: "CardReport") -> None:
    from rich.markup import escape

    from kcard.evaluation.histogram import counts

    out = console()
    out.print(f"[bold]{escape(r.reference)}[/bold]  {escape(r.description)}")
    out.print(f"{escape(r.domain)} · {escape(r.base)} · {shown_size(r.size)}")
    if r.quarantined:
        out.print(f"quarantined: {r.quarantine}", markup=False)
    if r.unexamined:
        out.print("unexamined: it has weights, but no plausible exam")
    if r.declared and r.declared.fault:
        out.print(f"its exam.json is not plausible: {r.declared.fault}", markup=False)
    for line in _recalls(r):
        out.print(escape(line))
    if r.note:
        out.print(escape(r.note))
    for what, scores, mean, by in (
        ("faithfulness", r.faithfulness_scores, r.faithfulness, r.faithful),
        ("factuality", r.factuality_scores, r.factuality, r.factual),
    ):
        against = "own corpus" if what == "faithfulness" else by.against if by else "independent evidence"
        origin = f", {by.origin}" if by else ""
        origin += _covered(r) if what == "factuality" else ""
        out.print(f"\n{what} ({escape(against)}) {_number(mean)}{origin}")
        found = counts(scores) if scores else []
        for i, count in enumerate(found):
            out.print(f"  {i / 10:.1f} {'█' * round(40 * count / max(found))} {count}")
    _print_audits(r)
    for what, passages in (("best", r.best), ("worst", r.worst)):
        if passages:
            out.print(f"\n{what} passages of the card's own exam")
        for passage in passages:
            out.print(_passage(passage), soft_wrap=True)


def _print_audits(r: "CardReport") -> None:
    """The history of all versions, oldest first, and what was worst in the latest audit of this one."""
    from rich.markup import escape

    if not r.audits:
        return
    headings = (
        "audits",
        "version",
        "faithfulness",
        "factuality",
        "covered",
        "evidence",
        "queries",
        "checker",
    )
    rows = table(*headings, overflow="fold")
    for past in r.audits:
        a = past.audit
        means = (interval(scores.mean if scores else None) for scores in (a.faithfulness, a.factuality))
        evidence = f"{a.evidence or '-'}{'' if a.independent else ' (not independent)'}"
        covered = "-" if a.coverage is None else f"{a.coverage.mean:.0%}"
        cells = (covered, evidence, a.queries, a.checker)
        rows.add_row(f"{past.taken:%Y-%m-%d %H:%M}", f"v{past.version}", *means, *map(escape, cells))
    out = console()
    out.print()
    out.print(rows)
    if r.audit is None or not r.audit.audit.worst:
        return
    out.print(f"\nworst documents of the latest audit, by {r.audit.audit.ranked_by}")
    for d in r.audit.audit.worst:
        score = d.factuality if r.audit.audit.ranked_by == "factuality" else d.faithfulness
        out.print(f"  {_number(score)}  {escape(d.text)}\n        asked: {escape(d.query)}", soft_wrap=True)


def _recalls(r: "CardReport") -> list[str]:
    """What was recalled of which questions, and above what, by the hub's exam and by the card's own."""
    from kcard.evaluation.history import origin

    taken = [] if r.hub_exam is None else [(r.hub_exam.exam, origin(r.hub_exam.taken))]
    taken += [] if r.exam is None else [(r.exam, origin(None))]
    return [
        f"recall {run.recall or '-'}, lift {run.lift or '-'} over {exam.base}, {run.questions} questions "
        f"({run.asked}), {source}"
        for exam, source in taken
        for run in (exam.own, exam.given)
        if run is not None
    ]


def _passage(p: "Judged") -> str:
    from rich.markup import escape

    score = p.faithfulness if p.factuality is None else p.factuality
    return f"  {_number(score)}  {escape(p.text)}\n        asked: {escape(p.question)}"


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"
