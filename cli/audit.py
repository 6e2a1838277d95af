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
from kcard.cli.hub_option import HubOption, named
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
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.option import declared

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
        list[str] | None,
        typer.Argument(
            help="Published cards (name@v2); else a draft's name or a card folder. Several are audited one by one; "
            "pool:NAME and biomedical/ stand for their cards.",
            show_default=False,
            autocompletion=completion.drafts,
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

    from kcard.api.audit import audit_many
    from kcard.evaluation.audit_record import Audit

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
    from kcard.evaluation.histogram import histogram

    return histogram(scores.scores, 20) if scores else ""
