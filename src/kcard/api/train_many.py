"""train_many: a card of each of many corpora, in child processes or on a Ray cluster."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcard.api.corpus_list import CorpusEntry, read_corpora
from kcard.api.eval_asking import SILENT, Told
from kcard.api.train_piece import train_piece
from kcard.bulk.journal import opened_journal
from kcard.bulk.mapping import device_there, mapped, workers
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Outcome, Piece, digest
from kcard.config import settings
from kcard.errors import UsageError
from kcard.manifest import MANIFEST, file_digest
from kcard.option import declared
from kcard.training.options import TrainOptions
from kcard.training.output import CHECKPOINT

__all__ = ["NOT_SHARED", "train_many"]

JOURNAL = ".train-many.jsonl"
NOT_SHARED = {
    "name",
    "description",
    "study",
    "update",
    "output",
    "resume",
}  # what no two cards have in common


def train_many(
    corpora: Path | str,
    *,
    output: Path | str | None = None,
    resume: bool = False,
    cluster: RayOptions | None = None,
    told: Told = SILENT,
    **options: Any,
) -> tuple[Outcome, ...]:
    """Train and examine a card of each corpus; `kcard train-many` does the same.

    corpora  a folder with a sub-folder for each, or a table; see kcard.api.corpus_list
    output   folder for the cards' folders, which all workers must share; None: the drafts under the kcard home
    resume   go on with a run that was interrupted, or in which cards failed: train only what is not finished
    cluster  where to train, one card a worker; None: one card after the other, each in a child process
    told     `progress` is called with cards
    options  those of kcard.train and TrainOptions that the cards have in common; a table's take their place

    Returns an outcome for each card, in the order of the corpora, with its name as `key`. The result holds `folder`,
    `manifest` (the sha256 of its file) and `recall` on its own corpus, or None. A card that fails costs only itself.
    Raises UsageError for wrong options or corpora, and ClusterError; cards that are finished stay.
    """
    known = {*declared(TrainOptions), "exam", "exam_evidence"} - NOT_SHARED
    if strange := sorted(set(options) - known):
        raise UsageError(
            f"{strange[0]} is not an option of many cards: choose among {', '.join(sorted(known))}"
        )
    shared = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    if shared.get("device"):
        shared["device"] = device_there(cluster, shared["device"])
    entries = read_corpora(Path(corpora))
    folder = (settings().drafts if output is None else Path(output)).expanduser().absolute()
    if not resume:
        for entry in entries:
            shutil.rmtree(folder / entry.name / CHECKPOINT, ignore_errors=True)
    pieces = [_piece(entry, folder, shared) for entry in entries]
    digests = {piece.key: digest(piece.arguments) for piece in pieces}
    with (
        workers(cluster, options.get("device") or "cpu") as mapper,
        opened_journal(folder / JOURNAL, digests, resume) as journal,
    ):
        found = _collected(mapped(pieces, mapper, journal, _arrived), len(pieces), told)
    if not any(outcome.error for outcome in found.values()):
        journal.path.unlink()
    return tuple(found[piece.key] for piece in pieces)


def _piece(entry: CorpusEntry, folder: Path, shared: dict[str, Any]) -> Piece:
    own = {"corpus": str(entry.corpus), "name": entry.name, "output": str(folder / entry.name)}
    return train_piece(entry.name, {**shared, **entry.options, **own})


def _collected(outcomes: Iterator[Outcome], total: int, told: Told) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        found[outcome.key] = outcome
        told.progress(len(found), total)
    return found


def _arrived(outcome: Outcome) -> Outcome:
    """The outcome, or an error where the worker wrote the card to a disk that is not this machine's."""
    if outcome.error:
        return outcome
    manifest = Path(outcome.result["folder"]) / MANIFEST
    if manifest.is_file() and file_digest(manifest) == outcome.result["manifest"]:
        return outcome
    return replace(
        outcome,
        result=None,
        error=f"its worker wrote the card to {manifest.parent}, which is not shared with this machine: name a folder "
        "on a shared file system with --output",
    )
