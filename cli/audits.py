"""kcard audit with several cards: a row for each."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from kcard.bulk.options import RayOptions
from kcard.cli.cluster import finished_kept
from kcard.cli.output import console, interval, late_counter, note, print_json, table

__all__ = ["audit_several"]


def audit_several(
    cards: Sequence[str], given: dict[str, Any], cluster: RayOptions | None, resume: bool, as_json: bool
) -> None:
    """Audit them, and print what came of each; exit code 1 where some failed."""
    from kcard.api.audit_many import audit_many
    from kcard.api.eval_asking import Told

    kept = nullcontext() if given["output"] is None else finished_kept("audits")
    with kept, late_counter("auditing") as report:
        found = audit_many(cards, resume=resume, cluster=cluster, told=Told(progress=report), **given)
    shown = table("card", "queries", "faithfulness", "factuality", right={"queries"})
    for outcome in found:
        if as_json:
            print_json(outcome.result or {"card": outcome.key, "error": outcome.error})
        elif outcome.error:
            note(f"{outcome.key}: {outcome.error}")
        else:
            shown.add_row(*_row(outcome.result))
    if shown.rows:
        console().print(shown)
    failed = sum(bool(outcome.error) for outcome in found)
    note(f"{len(found) - failed} of {len(found)} cards audited")
    if failed:
        sys.exit(1)


def _row(result: dict[str, Any]) -> tuple[str, str, str, str]:
    from rich.markup import escape

    from kcard.evaluation.audit_record import Audit

    taken = Audit.from_json(json.dumps(result))
    means = (scores.mean if scores else None for scores in (taken.faithfulness, taken.factuality))
    faithfulness, factuality = map(interval, means)
    return escape(taken.card), str(taken.asked), faithfulness, factuality
