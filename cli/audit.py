"""kcard audit and browse."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.exam import audit as verb
from kcard.api.exam import browse as exam_verb
from kcard.cli import options
from kcard.cli.options import command_for
from kcard.cli.output import (
    Json,
    as_data,
    console,
    echo,
    interval,
    late_counter,
    note,
    print_json,
    progress,
    resumable,
    table,
)
from kcard.cli.publish import HubOption, named
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.io import shown_size
from kcard.options import declared

if TYPE_CHECKING:
    from kcard.evaluation.audit import Measured, PastAudit
    from kcard.evaluation.browse import CardReport
    from kcard.evaluation.records import Audit, AuditedDocument, Distribution, Judged, Mean
    from kcard.hub.registry import Hub

__all__ = ["register"]


def _register_audit(app: typer.Typer) -> None:
    app.command()(audit)


@command_for(verb, RayOptions, leave_out={"card"})
def audit(
    given: dict[str, Any],
    cards: Annotated[
        list[str] | None,
        typer.Argument(
            help="Published cards (name@v2); else a draft's name or a card folder. Several are audited one by one; "
            "pool:NAME and biomedical/ stand for their cards.",
            show_default=False,
            autocompletion=options.drafts,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: audit cards that are missing in --output or failed.")
    ] = False,
    unverified: Annotated[
        bool,
        typer.Option(
            "--unverified",
            help="Instead of cards: all versions on a hub without a verified result, with an operator's token.",
        ),
    ] = False,
    hub: HubOption = None,
    memory: Annotated[str, typer.Option(help="With --unverified: memory limit for a card.")] = "8GB",
    minutes: Annotated[
        float, typer.Option(min=0.01, help="With --unverified: time limit for a card, in minutes.")
    ] = 60.0,
    json_: Json = False,
) -> None:
    """Audit cards: let them write for many queries, judge each document, and store the results in the hub."""
    if unverified:
        cards = [*(cards or []), *(name for name in given if _is_given(given, name))]
        if cards:
            raise UsageError(
                f"--unverified takes --evidence, --limit, --memory and --minutes only, not {cards[0]}"
            )
        _audit_unverified(named(hub), given, memory, minutes, json_)
        return
    if not cards or hub is not None:
        raise UsageError("name cards to be audited; --hub is for --unverified")
    cluster = RayOptions.taken_from(given)
    if cluster is not None or resume or len(cards) > 1 or cards[0].startswith("pool:"):
        _audit_several(cards, given, cluster, resume, json_)
    else:
        _audit_one(cards[0], given, json_)


def _is_given(given: dict[str, Any], name: str) -> bool:
    """Whether an option differs from its default that --unverified does not take."""
    known = declared(verb) | declared(RayOptions)
    value, default = given[name], known[name].default
    return name not in {"evidence", "limit"} and (value or None) != (default or None)


def _audit_unverified(hub: str, given: dict[str, Any], memory: str, minutes: float, as_json: bool) -> None:
    from kcard.api.audit_hub import audit_unverified

    done = failed = 0
    limits: dict[str, Any] = {"questions": given["limit"], "memory": memory, "minutes": minutes}
    with late_counter("measuring") as report:
        for outcome in audit_unverified(hub, evidence=given["evidence"], report=report, **limits):
            done, failed = done + 1, failed + (outcome.error is not None)
            if as_json:
                print_json(as_data(outcome))
                continue
            names = ("recall", "faithfulness", "factuality", "coverage")
            scores = [(name, getattr(outcome, name)) for name in names]
            shown = [f"{name} {score:.2f}" for name, score in scores if score is not None]
            if not outcome.independent:
                shown.append("(the evidence is not independent: it repeats the card's corpus)")
            echo("  ".join([outcome.reference, *(shown if outcome.error is None else [outcome.error])]))
    note(f"{done - failed} of {done} versions measured")
    if failed:
        sys.exit(1)


def _audit_one(card: str, given: dict[str, Any], as_json: bool) -> None:
    from kcard.evaluation.target import find_published
    from kcard.hub.registry import Hub

    hub = Hub()
    found = find_published(card, hub)
    with progress() as report:
        taken = verb(found, **given, hub=hub, report=report)
    _say_where(hub, found.reference, taken)
    if as_json:
        print_json(json.loads(taken.to_json()))
    else:
        _print(taken)


def _audit_several(
    cards: Sequence[str], given: dict[str, Any], cluster: RayOptions | None, resume: bool, as_json: bool
) -> None:
    """Audit them, and print a row for each; exit code 1 where some failed."""
    from rich.markup import escape

    from kcard.api.exam import audit_many
    from kcard.evaluation.records import Audit

    kept = nullcontext() if given["output"] is None else resumable("audits", given["output"])
    with kept, late_counter("auditing") as report:
        found = audit_many(cards, resume=resume, cluster=cluster, progress=report, **given)
    shown = table("card", "queries", "faithfulness", "factuality", "covered", right={"queries"})
    for row in found:
        if as_json:
            print_json(row.get("audit") or {"card": row["card"], "error": row["error"]})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            taken = Audit.from_json(json.dumps(row["audit"]))
            means = (interval(_mean(scores)) for scores in (taken.faithfulness, taken.factuality))
            shown.add_row(escape(taken.card), str(taken.asked), *means, _covered(taken))
            if not taken.independent:
                note(f"{taken.card}: {_dependent(taken)}")
    if shown.rows:
        console().print(shown)
    failed = sum("error" in row for row in found)
    note(f"{len(found) - failed} of {len(found)} cards audited")
    if failed:
        sys.exit(1)


def _say_where(hub: "Hub", reference: str | None, taken: "Audit") -> None:
    """Whether the audit is kept, and what follows from it."""
    if reference is None:
        note(
            f"{taken.card} is not published, so the hub does not store its audit; save it with --output FILE"
        )
        return
    note(f"stored in the hub; `kcard browse {taken.card.partition('@')[0]}` shows it")
    if (reason := hub.quarantine.held([hub.get(reference)]).get(reference)) is not None:
        note(f"{reference} is quarantined, so it is used only if named: {reason}")


def _print(taken: "Audit") -> None:
    """The two columns, the domains, and the worst documents with what they were judged by."""
    from rich.markup import escape

    rows = table(escape(taken.card), overflow="fold")
    for heading in ("queries", "faithfulness", "factuality", "not covered"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_row("all", str(taken.asked), *_row(_mean(taken.faithfulness), taken.factuality))
    rows.add_row("", "", *(_histogram(scores) for scores in (taken.faithfulness, taken.factuality)), "")
    for domain in taken.domains:
        unknown = "-" if taken.factuality is None else str(domain.unknown)
        cells = (interval(domain.faithfulness), interval(domain.factuality), unknown)
        rows.add_row(escape(domain.name or "(none)"), str(domain.queries), *cells)
    out = console()
    out.print(rows)
    out.print(_remark(taken), markup=False, style="dim")
    if taken.worst:
        out.print(f"\nworst documents, by {taken.ranked_by}")
    for document in taken.worst:
        out.print(_document(document, taken.ranked_by), markup=False, soft_wrap=True)


def _row(faithfulness: "Mean | None", factuality: "Distribution | None") -> tuple[str, str, str]:
    if factuality is None:
        return interval(faithfulness), "-", "-"
    return interval(faithfulness), interval(factuality.mean), str(factuality.unknown)


def _remark(taken: "Audit") -> str:
    """What was asked and who judged, in a sentence or two."""
    digest = f", sha256 {taken.checker_sha256[:12]}" if taken.checker_sha256 else ""
    evidence = "no independent evidence was given, so factuality was not measured"
    if taken.evidence is not None and taken.evidence_sha256 is not None:
        evidence = f"factuality against {taken.evidence}, sha256 {taken.evidence_sha256[:12]}"
    if taken.factuality is not None and taken.coverage is not None:
        n = len(taken.factuality.scores)
        evidence += (
            f", which covers {_covered(taken)} of what the card wrote: factuality is over these {n} documents"
        )
    if not taken.independent:
        evidence += f"; {_dependent(taken)}"
    empty = f", {taken.empty} of them empty" if taken.empty else ""
    plural = "" if taken.documents == 1 else "s"
    return (
        f"{taken.documents} document{plural} per query{empty}; queries: {taken.queries}, sha256 "
        f"{taken.queries_sha256[:12]}; {evidence}; checked by {taken.checker}{digest}; seed {taken.seed}"
        + "".join(f". {note}" for note in taken.evidence_notes)
    )


def _covered(taken: "Audit") -> str:
    return "-" if taken.coverage is None else f"{taken.coverage.mean:.0%}"


def _dependent(taken: "Audit") -> str:
    """That the evidence is not independent of the card, and what follows."""
    return (
        f"the evidence is not independent: {taken.evidence_overlap:.0%} of it and the card's corpus are the same, so "
        "this factuality is not ranked and quarantines nothing"
    )


def _document(d: "AuditedDocument", ranked_by: str) -> str:
    score = d.factuality if ranked_by == "factuality" else d.faithfulness
    lines = [f"  {'-' if score is None else f'{score:.2f}'}  {d.text}", f"        asked: {d.query}"]
    if d.evidence is not None:
        place = f" ({d.evidence.file}, line {d.evidence.line})" if d.evidence.file else ""
        lines.append(f"        evidence: {d.window or d.evidence.text}{place}")
    return "\n".join(lines)


def _mean(scores: "Distribution | None") -> "Mean | None":
    return scores.mean if scores else None


def _histogram(scores: "Distribution | None") -> str:
    from kcard.evaluation.metrics import histogram

    return histogram(scores.scores, 20) if scores else ""


# kcard browse: what every card knows and how far it can be trusted.


def _register_browse(app: typer.Typer) -> None:
    app.command()(browse)


@command_for(exam_verb)
def browse(
    given: dict[str, Any],
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    json_: Json = False,
) -> None:
    """Browse published cards: recall, faithfulness (own corpus) and factuality (independent evidence)."""
    reports = exam_verb(**given)
    if html is not None:
        from kcard.evaluation.charts.chart import write_page

        write_page(reports, html)
        note(f"page written: {html}")
    if json_:
        print_json([_browse_row(report) for report in reports])
    elif given["name"] is not None:
        _print_detail(reports[0])
    elif html is None:
        _print_table(reports)


def _browse_row(report: "CardReport") -> dict[str, Any]:
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

    from kcard.evaluation.metrics import histogram

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
            f"{histogram(r.factuality_scores)} {_number(r.factuality)} {_source(r.factual)}{_coverage(r)}".strip(),
        )
    console().print(rows)


def _marks(r: "CardReport") -> list[str]:
    return ["quarantined"] * r.quarantined + ["unexamined weights"] * r.unexamined


def _coverage(r: "CardReport") -> str:
    """How much of what the card wrote the evidence covers, and whether it is independent of the card."""
    if r.factual is None:
        return ""
    known = "" if r.coverage is None else f", {r.coverage:.0%} covered, n={len(r.factuality_scores)}"
    return known + ("" if r.factual.independent else ", evidence not independent")


def _source(measured: "Measured | None") -> str:
    return measured.source if measured else ""


def _print_detail(r: "CardReport") -> None:
    from rich.markup import escape

    from kcard.evaluation.metrics import counts

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
        origin += _coverage(r) if what == "factuality" else ""
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
    from kcard.evaluation.audit import origin

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


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_audit(app)
    _register_browse(app)
