"""kcard audit and browse."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.exam import audit as audit_card
from kcard.api.exam import browse as browse_cards
from kcard.cli import options
from kcard.cli.options import command_for
from kcard.cli.output import (
    Json,
    as_data,
    console,
    echo,
    interval,
    note,
    print_json,
    progress,
    resumable,
    table,
)
from kcard.cli.publish import HubOption, require_remote_url
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.io import shown_size
from kcard.options import declared

if TYPE_CHECKING:
    from kcard.evaluation.browse import CardReport
    from kcard.evaluation.records import Audit, Distribution


@command_for(audit_card, RayOptions, leave_out={"card"})
def audit(
    values: dict[str, Any],
    cards: Annotated[
        list[str] | None,
        typer.Argument(
            help="Published cards (name@v2); else a draft's name or a card folder. Several are audited one by one; "
            "pool:NAME and biomedical/ stand for their cards.",
            show_default=False,
            autocompletion=options.complete_drafts,
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
    """Audit cards: generate documents for many queries, score each of them, and store the results in the hub."""
    if unverified:
        # Options that --unverified does not take, where their value is not the default.
        defaults = declared(audit_card) | declared(RayOptions)
        rejected = [
            name
            for name, value in values.items()
            if name not in {"evidence", "limit"} and (value or None) != (defaults[name].default or None)
        ]
        if excess := [*(cards or []), *rejected]:
            raise UsageError(
                f"--unverified takes --evidence, --limit, --memory and --minutes only, not {excess[0]}"
            )
        _audit_unverified(require_remote_url(hub), values, memory, minutes, json_)
        return
    if not cards or hub is not None:
        raise UsageError("name the cards to audit; --hub goes with --unverified only")
    cluster = RayOptions.pop_from(values)
    if cluster is not None or resume or len(cards) > 1 or cards[0].startswith("pool:"):
        _audit_several(cards, values, cluster, resume, json_)
        return

    from kcard.evaluation.target import find_published_target
    from kcard.hub.registry import Hub

    local = Hub()
    target = find_published_target(cards[0], local)
    with progress() as on_event:
        result = audit_card(target, **values, hub=local, on_event=on_event)

    # Whether the hub stores the audit, and whether it puts the card in quarantine.
    reference = target.reference
    if reference is None:
        note(
            f"{result.card} is not published, so the hub does not store its audit; save it with --output FILE"
        )
    else:
        note(f"stored in the hub; `kcard browse {result.card.partition('@')[0]}` shows it")
        if (reason := local.quarantine.find_reasons([local.get(reference)]).get(reference)) is not None:
            note(f"{reference} is quarantined, so it is used only if named: {reason}")
    if json_:
        print_json(json.loads(result.to_json()))
    else:
        _print_audit(result)


def _audit_unverified(hub: str, values: dict[str, Any], memory: str, minutes: float, as_json: bool) -> None:
    """Audit all versions of a remote hub that have no verified result; exit code 1 where some failed."""
    from kcard.api.audit_hub import audit_unverified

    done = failed = 0
    limits: dict[str, Any] = {"questions": values["limit"], "memory": memory, "minutes": minutes}
    with progress() as on_event:
        for outcome in audit_unverified(hub, evidence=values["evidence"], on_event=on_event, **limits):
            done, failed = done + 1, failed + (outcome.error is not None)
            if as_json:
                print_json(as_data(outcome))
                continue
            names = ("recall", "faithfulness", "factuality", "coverage")
            scores = [(name, getattr(outcome, name)) for name in names]
            figures = [f"{name} {score:.2f}" for name, score in scores if score is not None]
            if not outcome.independent:
                figures.append("(the evidence is not independent: it repeats the card's corpus)")
            echo("  ".join([outcome.reference, *(figures if outcome.error is None else [outcome.error])]))
    note(f"{done - failed} of {done} versions measured")
    if failed:
        sys.exit(1)


def _audit_several(
    cards: Sequence[str], values: dict[str, Any], cluster: RayOptions | None, resume: bool, as_json: bool
) -> None:
    """Audit several cards and print a row for each; exit code 1 where some failed."""
    from rich.markup import escape

    from kcard.api.exam import audit_many
    from kcard.evaluation.records import Audit

    interruptible = nullcontext() if values["output"] is None else resumable("audits", values["output"])
    with interruptible, progress() as on_event:
        rows = audit_many(cards, resume=resume, cluster=cluster, on_event=on_event, **values)
    summary = table("card", "queries", "faithfulness", "factuality", "covered", right={"queries"})
    for row in rows:
        if as_json:
            print_json(row.get("audit") or {"card": row["card"], "error": row["error"]})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            result = Audit.from_json(json.dumps(row["audit"]))
            means = (_mean_cell(scores) for scores in (result.faithfulness, result.factuality))
            summary.add_row(escape(result.card), str(result.asked), *means, _coverage_cell(result))
            if not result.independent:
                note(f"{result.card}: {_dependence_warning(result)}")
    if summary.rows:
        console().print(summary)
    failed = sum("error" in row for row in rows)
    note(f"{len(rows) - failed} of {len(rows)} cards audited")
    if failed:
        sys.exit(1)


def _print_audit(result: "Audit") -> None:
    """Print the scores, overall and by domain, how they were measured, and the worst documents."""
    from rich.markup import escape

    from kcard.evaluation.metrics import draw_histogram

    rows = table(escape(result.card), overflow="fold")
    for heading in ("queries", "faithfulness", "factuality", "not covered"):
        rows.add_column(heading, justify="right", no_wrap=True)
    not_covered = "-" if result.factuality is None else str(result.factuality.unknown)
    distributions = (result.faithfulness, result.factuality)
    rows.add_row("all", str(result.asked), *map(_mean_cell, distributions), not_covered)
    rows.add_row("", "", *(draw_histogram(d.scores, 20) if d else "" for d in distributions), "")
    for domain in result.domains:
        not_covered = "-" if result.factuality is None else str(domain.unknown)
        cells = (interval(domain.faithfulness), interval(domain.factuality), not_covered)
        rows.add_row(escape(domain.name or "(none)"), str(domain.queries), *cells)
    out = console()
    out.print(rows)

    # The queries, the evidence and the checker, in a sentence or two.
    digest = f", sha256 {result.checker_sha256[:12]}" if result.checker_sha256 else ""
    evidence = "no independent evidence was given, so factuality was not measured"
    if result.evidence is not None and result.evidence_sha256 is not None:
        evidence = f"factuality against {result.evidence}, sha256 {result.evidence_sha256[:12]}"
    if result.factuality is not None and result.coverage is not None:
        n, covered = len(result.factuality.scores), _coverage_cell(result)
        evidence += f", which covers {covered} of the card's documents: factuality is over these {n}"
    if not result.independent:
        evidence += f"; {_dependence_warning(result)}"
    empty = f", {result.empty} of them empty" if result.empty else ""
    plural = "" if result.documents == 1 else "s"
    remark = (
        f"{result.documents} document{plural} per query{empty}; queries: {result.queries}, sha256 "
        f"{result.queries_sha256[:12]}; {evidence}; checked by {result.checker}{digest}; seed {result.seed}"
        + "".join(f". {note}" for note in result.evidence_notes)
    )
    out.print(remark, markup=False, style="dim")

    if result.worst:
        out.print(f"\nworst documents, by {result.ranked_by}")
    for d in result.worst:
        score = d.factuality if result.ranked_by == "factuality" else d.faithfulness
        lines = [f"  {_number(score)}  {d.text}", f"        asked: {d.query}"]
        if d.evidence is not None:
            place = f" ({d.evidence.file}, line {d.evidence.line})" if d.evidence.file else ""
            lines.append(f"        evidence: {d.window or d.evidence.text}{place}")
        out.print("\n".join(lines), markup=False, soft_wrap=True)


def _coverage_cell(result: "Audit") -> str:
    return "-" if result.coverage is None else f"{result.coverage.mean:.0%}"


def _dependence_warning(result: "Audit") -> str:
    return (
        f"the evidence is not independent: {result.evidence_overlap:.0%} of it is in the card's corpus too, so this "
        "factuality is neither ranked nor used for quarantine"
    )


def _mean_cell(scores: "Distribution | None") -> str:
    return interval(scores.mean if scores else None)


# kcard browse: what every card knows and how far it can be trusted.


@command_for(browse_cards)
def browse(
    values: dict[str, Any],
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    json_: Json = False,
) -> None:
    """Browse published cards: recall, faithfulness (own corpus) and factuality (independent evidence)."""
    reports = browse_cards(**values)
    if html is not None:
        from kcard.evaluation.charts.chart import write_page

        write_page(reports, html)
        note(f"page written: {html}")
    if json_:
        print_json([_browse_row(report) for report in reports])
    elif values["name"] is not None:
        _print_detail(reports[0])
    elif html is None:
        _print_table(reports)


def _browse_row(report: "CardReport") -> dict[str, Any]:
    """Return a card as a row of --json: its figures, where they come from, and the history of its audits."""
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
    audit_keys = (
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
    # The audits of all versions, with their means and how they were measured.
    audits = []
    for past in report.audits:
        a = past.audit
        means = {
            key: None if scores is None or scores.mean is None else asdict(scores.mean)
            for key, scores in (("faithfulness", a.faithfulness), ("factuality", a.factuality))
        }
        means["coverage"] = None if a.coverage is None else asdict(a.coverage)
        provenance = {key: getattr(a, key) for key in audit_keys}
        audits.append({"version": past.version, "taken": past.taken.isoformat()} | means | provenance)
    # What limits the trust in the card, and the figures that it declares or that the hub verified.
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


def _print_table(reports: "list[CardReport]") -> None:
    """Print a row for each card, with its scores as small histograms."""
    if not reports:
        note("no card matches; publish one with `kcard publish`")
        return
    from rich.markup import escape

    from kcard.evaluation.metrics import draw_histogram

    # The column "given" is there only if an exam has given questions.
    rows = table("card", "domain", "base", overflow="fold")
    has_given = any(report.given is not None for report in reports)
    for heading in (
        "size",
        "recall",
        "lift",
        *(["given"] if has_given else []),
        "faithfulness",
        "factuality",
    ):
        rows.add_column(heading, justify="right", no_wrap=True)
    # A row per card; each figure comes with its source.
    for r in reports:
        marks = ["quarantined"] * r.quarantined + ["unexamined weights"] * r.unexamined
        faithful_source = r.faithful.source if r.faithful else ""
        factual_source = r.factual.source if r.factual else ""
        rows.add_row(
            escape(r.reference) + "".join(f" ({mark})" for mark in marks),
            escape(r.domain),
            escape(r.base),
            shown_size(r.size),
            f"{_number(r.recall)} {r.recall_source}".strip(),
            f"{_number(r.lift, '+')} {r.recall_source if r.lift is not None else ''}".strip(),
            *([_number(r.given)] if has_given else []),
            f"{draw_histogram(r.faithfulness_scores)} {_number(r.faithfulness)} {faithful_source}".strip(),
            f"{draw_histogram(r.factuality_scores)} {_number(r.factuality)} {factual_source}{_coverage(r)}".strip(),
        )
    console().print(rows)


def _coverage(r: "CardReport") -> str:
    """State the share of the card's passages that the evidence covers, and whether it is independent of the card."""
    if r.factual is None:
        return ""
    share = "" if r.coverage is None else f", {r.coverage:.0%} covered, n={len(r.factuality_scores)}"
    return share + ("" if r.factual.independent else ", evidence not independent")


def _print_detail(r: "CardReport") -> None:
    """Print all that is known of one card: exams, distributions of scores, audits, best and worst passages."""
    from rich.markup import escape

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
    exams = [] if r.hub_exam is None else [(r.hub_exam.exam, describe_origin(r.hub_exam.taken))]
    exams += [] if r.exam is None else [(r.exam, describe_origin(None))]
    for exam, source in exams:
        for run in (exam.own, exam.given):
            if run is not None:
                line = (
                    f"recall {run.recall or '-'}, lift {run.lift or '-'} over {exam.base}, {run.questions} questions "
                    f"({run.asked}), {source}"
                )
                out.print(escape(line))
    if r.note:
        out.print(escape(r.note))
    for what, scores, mean, by in (
        ("faithfulness", r.faithfulness_scores, r.faithfulness, r.faithful),
        ("factuality", r.factuality_scores, r.factuality, r.factual),
    ):
        against = "own corpus" if what == "faithfulness" else by.against if by else "independent evidence"
        details = f", {by.origin}" if by else ""
        details += _coverage(r) if what == "factuality" else ""
        out.print(f"\n{what} ({escape(against)}) {_number(mean)}{details}")
        bins = count_by_range(scores) if scores else []
        for i, count in enumerate(bins):
            out.print(f"  {i / 10:.1f} {'█' * round(40 * count / max(bins))} {count}")

    _print_audits(r)
    for what, passages in (("best", r.best), ("worst", r.worst)):
        if passages:
            out.print(f"\n{what} passages of the card's own exam")
        for passage in passages:
            score = passage.faithfulness if passage.factuality is None else passage.factuality
            line = f"  {_number(score)}  {escape(passage.text)}\n        asked: {escape(passage.question)}"
            out.print(line, soft_wrap=True)


def _print_audits(r: "CardReport") -> None:
    """Print the audits of all versions, oldest first, and the worst documents of this version's latest."""
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
        means = map(_mean_cell, (a.faithfulness, a.factuality))
        evidence = f"{a.evidence or '-'}{'' if a.independent else ' (not independent)'}"
        cells = (_coverage_cell(a), evidence, a.queries, a.checker)
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


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(audit)
    app.command()(browse)
