"""audit_many: an audit of each of many cards, in child processes or on a Ray cluster."""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.api.audit import audit
from kcard.api.audit_piece import audit_piece
from kcard.api.eval_asking import SILENT, Told
from kcard.bulk.journal import opened_journal
from kcard.bulk.mapping import device_there, mapped, workers
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Outcome, digest
from kcard.config import settings
from kcard.errors import UnknownCard, UsageError
from kcard.option import check_values, declared

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["audit_many"]

POOL = "pool:"


def audit_many(
    cards: Sequence[str | Path],
    *,
    output: Path | str | None = None,
    resume: bool = False,
    cluster: RayOptions | None = None,
    hub: "Hub | None" = None,
    told: Told = SILENT,
    **options: Any,
) -> tuple[Outcome, ...]:
    """Audit cards; of published ones the audits are kept in the hub. `kcard audit` with several cards does the same.

    cards    published cards, drafts, folders, pools (pool:NAME) and domain subtrees (biomedical/)
    output   a file for the audits, a JSON line each, in the order of the cards when all are there
    resume   go on with `output`: audit only the cards that are missing there, or failed
    cluster  where to audit, one card a worker; None: one card after the other, each in a child process
    told     `progress` is called with cards
    options  those of kcard.audit

    Returns an outcome for each card, whose `key` is the card's reference or folder, and whose result is the audit as
    kcard.evaluation.audit_record.Audit has it. A card that fails costs only itself. Raises UsageError, HubError for
    a card that is not found, and ClusterError; audits that are finished are kept.
    """
    if strange := sorted(set(options) - set(declared(audit))):
        raise UsageError(f"{strange[0]} is not an option of an audit")
    check_values(audit, options)
    if resume and output is None:
        raise UsageError("resume needs output: the file that the earlier run wrote")
    if hub is None:
        from kcard.hub.registry import Hub

        hub = Hub()
    named = list(dict.fromkeys(name for card in cards for name in _named(card, hub)))
    given = {key: _json_ready(key, value) for key, value in options.items() if value is not None}
    device = str(given.get("device", "cpu"))
    given |= {"device": device_there(cluster, device)}
    pieces = [audit_piece(name, given) for name in named]
    digests = {piece.key: digest(piece.arguments) for piece in pieces}
    path = None if output is None else Path(output).expanduser()
    with (
        workers(cluster, device, reuse=True) as mapper,
        nullcontext() if path is None else opened_journal(path, digests, resume) as journal,
    ):
        kept = set() if journal is None else {*journal.done}
        found = {}
        for outcome in mapped(pieces, mapper, journal):
            _keep(outcome, hub, again=outcome.key in kept)
            found[outcome.key] = outcome
            told.progress(len(found), len(pieces))
        if journal is not None:
            journal.arrange()
    return tuple(found[name] for name in named)


def _named(card: str | Path, hub: "Hub") -> Iterator[str]:
    """The references, or the folder, that a name means."""
    name = str(card)
    if isinstance(card, str) and (name.startswith(POOL) or (name.endswith("/") and not Path(name).is_dir())):
        yield from (version.reference for version in hub.select([name]).versions)
        return
    if isinstance(card, str) and Path(name).name == name:
        try:
            yield hub.get(name).reference
            return
        except UnknownCard:
            pass  # then a draft, or a folder here
    from kcard.hub.drafts import draft

    yield str(draft(settings().drafts, card).expanduser().absolute())


def _keep(outcome: Outcome, hub: "Hub", *, again: bool) -> None:
    """Have the hub keep the audit of a published card. `again`: an earlier run may have done so."""
    if outcome.error or Path(outcome.key).is_absolute():
        return
    from kcard.evaluation.audit import finding
    from kcard.evaluation.audit_record import Audit

    version = hub.get(outcome.key)
    made = finding(Audit.from_json(json.dumps(outcome.result)))
    if again and any(stored.finding == made for stored in hub.audits.list(version.name)):
        return
    hub.audits.add(version, made)


def _json_ready(key: str, value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.expanduser())
    if isinstance(value, list | tuple):
        return [_json_ready(key, each) for each in value]
    if not isinstance(value, str | int | float | bool):
        raise UsageError(f"workers can't be given a {key} that is an object: name it")
    return value
