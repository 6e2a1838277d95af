"""kcard audit: whether what a card writes holds, by evidence that is not its own."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.audit import audit as verb
from kcard.cli import completion
from kcard.cli.command import command_for
from kcard.cli.output import (
    Json,
    console,
    interval,
    late_counter,
    note,
    print_json,
    progress,
    resumable,
    table,
)
from kcard.cluster import RayOptions

if TYPE_CHECKING:
    from kcard.evaluation.audit_record import Audit, AuditedDocument
    from kcard.evaluation.record import Distribution, Mean
    from kcard.hub.registry import Hub

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(audit)


@command_for(verb, RayOptions, leave_out={"card"})
def audit(
    given: dict[str, Any],
    cards: Annotated[
        list[str],
        typer.Argument(
            help="Published cards (name@v2); else a draft's name or a card folder. Several are audited one by one; "
            "pool:NAME and biomedical/ stand for their cards.",
            show_default=False,
            autocompletion=completion.drafts,
        ),
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: audit cards that are missing in --output or failed.")
    ] = False,
    json_: Json = False,
) -> None:
    """Audit cards: let them write for many queries, judge each document, and store the results in the hub."""
    cluster = RayOptions.taken_from(given)
    if cluster is not None or resume or len(cards) > 1 or cards[0].startswith("pool:"):
        _audit_several(cards, given, cluster, resume, json_)
    else:
        _audit_one(cards[0], given, json_)


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

    from kcard.api.audit import audit_many
    from kcard.evaluation.audit_record import Audit

    kept = nullcontext() if given["output"] is None else resumable("audits", given["output"])
    with kept, late_counter("auditing") as report:
        found = audit_many(cards, resume=resume, cluster=cluster, progress=report, **given)
    shown = table("card", "queries", "faithfulness", "factuality", right={"queries"})
    for row in found:
        if as_json:
            print_json(row.get("audit") or {"card": row["card"], "error": row["error"]})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            taken = Audit.from_json(json.dumps(row["audit"]))
            means = (interval(_mean(scores)) for scores in (taken.faithfulness, taken.factuality))
            shown.add_row(escape(taken.card), str(taken.asked), *means)
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
    for heading in ("queries", "faithfulness", "factuality", "no evidence"):
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
    empty = f", {taken.empty} of them empty" if taken.empty else ""
    plural = "" if taken.documents == 1 else "s"
    return (
        f"{taken.documents} document{plural} per query{empty}; queries: {taken.queries}, sha256 "
        f"{taken.queries_sha256[:12]}; {evidence}; checked by {taken.checker}{digest}; seed {taken.seed}"
        + "".join(f". {note}" for note in taken.evidence_notes)
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
    from kcard.evaluation.histogram import histogram

    return histogram(scores.scores, 20) if scores else ""
