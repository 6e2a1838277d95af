"""kcard audit."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.exam import audit as audit_card
from kcard.cli import options
from kcard.cli.options import LongCommand, command_for
from kcard.cli.output import (
    Json,
    as_data,
    cell,
    console,
    echo,
    interval,
    mean_cell,
    note,
    print_json,
    progress,
    resumable,
    table,
)
from kcard.cli.publish import HubOption, require_remote_url
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.io import counted
from kcard.options import declared

if TYPE_CHECKING:
    from kcard.evaluation.records import Audit


@command_for(audit_card, RayOptions, leave_out={"card"})
def audit(
    values: dict[str, Any],
    cards: Annotated[
        list[str] | None,
        typer.Argument(
            help="Published cards (name@v2, namespace/name); else a draft's name or a card folder. Several are "
            "audited one by one; pool:NAME and biomedical/ stand for their cards.",
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
    """Audit cards against independent evidence.

    They generate documents for many queries; each is scored, and the hub stores the results.
    """
    if unverified:
        # Options that --unverified does not take, where their value is not the default.
        defaults = declared(audit_card) | declared(RayOptions)
        excess = list(cards or ())
        for name, value in values.items():
            if name not in {"evidence", "limit"} and (value or None) != (defaults[name].default or None):
                excess.append(name)
        if excess:
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
        reason = local.get(reference).quarantine
        if reason is not None:
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
            if outcome.error is not None:
                echo(f"{outcome.reference}  {outcome.error}")
                continue
            cells = [outcome.reference]
            for name in ("recall", "faithfulness", "factuality", "coverage"):
                score = getattr(outcome, name)
                if score is not None:
                    cells.append(f"{name} {score:.2f}")
            if not outcome.independent:
                cells.append("(the evidence is not independent: it repeats the card's corpus)")
            echo("  ".join(cells))
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

    with ExitStack() as stack:
        if values["output"] is not None:
            stack.enter_context(resumable("audits", values["output"]))
        on_event = stack.enter_context(progress())
        rows = audit_many(cards, resume=resume, cluster=cluster, on_event=on_event, **values)
    summary = table("card", "queries", "faithfulness", "factuality", "covered", right={"queries"})
    failed = 0
    for row in rows:
        failed += "error" in row
        if as_json:
            print_json(row.get("audit") or {"card": row["card"], "error": row["error"]})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            result = Audit.from_json(json.dumps(row["audit"]))
            summary.add_row(
                escape(result.card),
                str(result.asked),
                mean_cell(result.faithfulness),
                mean_cell(result.factuality),
                _coverage_cell(result),
            )
            if not result.independent:
                note(f"{result.card}: {_dependence_warning(result)}")
    if summary.rows:
        console().print(summary)
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
    not_covered = cell(result.factuality and result.factuality.unknown)
    means, histograms = [], []
    for distribution in (result.faithfulness, result.factuality):
        means.append(mean_cell(distribution))
        histograms.append(draw_histogram(distribution.scores, 20) if distribution else "")
    rows.add_row("all", str(result.asked), *means, not_covered)
    rows.add_row("", "", *histograms, "")
    for domain in result.domains:
        not_covered = "-" if result.factuality is None else str(domain.unknown)
        cells = (interval(domain.faithfulness), interval(domain.factuality), not_covered)
        rows.add_row(escape(domain.name or "(none)"), str(domain.queries), *cells)
    out = console()
    out.print(rows)

    # The queries, the evidence and the checker, in a sentence or two.
    checker = result.checker
    if result.checker_sha256:
        checker += f", sha256 {result.checker_sha256[:12]}"
    evidence = "no independent evidence was given, so factuality was not measured"
    if result.evidence is not None and result.evidence_sha256 is not None:
        evidence = f"factuality against {result.evidence}, sha256 {result.evidence_sha256[:12]}"
    if result.factuality is not None and result.coverage is not None:
        n, covered = len(result.factuality.scores), _coverage_cell(result)
        evidence += f", which covers {covered} of the card's documents: factuality is over these {n}"
    if not result.independent:
        evidence += f"; {_dependence_warning(result)}"
    documents = f"{counted(result.documents, 'document')} per query"
    if result.empty:
        documents += f", {result.empty} of them empty"
    queries = f"queries: {result.queries}, sha256 {result.queries_sha256[:12]}"
    remark = f"{documents}; {queries}; {evidence}; checked by {checker}; seed {result.seed}"
    out.print(". ".join([remark, *result.evidence_notes]), markup=False, style="dim")

    if result.worst:
        out.print(f"\nworst documents, by {result.ranked_by}")
    for document in result.worst:
        score = document.faithfulness
        if result.ranked_by == "factuality":
            score = document.factuality
        lines = [f"  {cell(score, '.2f')}  {document.text}", f"        asked: {document.query}"]
        source = document.evidence
        if source is not None:
            line = f"        evidence: {document.window or source.text}"
            if source.file:
                line += f" ({source.file}, line {source.line})"
            lines.append(line)
        out.print("\n".join(lines), markup=False, soft_wrap=True)


def _coverage_cell(result: "Audit") -> str:
    return cell(result.coverage and result.coverage.mean, ".0%")


def _dependence_warning(result: "Audit") -> str:
    return (
        f"the evidence is not independent: {result.evidence_overlap:.0%} of it is in the card's corpus too, so this "
        "factuality is neither ranked nor used for quarantine"
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(cls=LongCommand)(audit)
