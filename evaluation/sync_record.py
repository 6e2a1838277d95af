"""sync.json: what a sync changed in a card, how, and what the card remembers; no text, and nothing of the folder."""

import json
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import CardError
from kcard.evaluation.remembering import Remembered
from kcard.files import write_text
from kcard.json_values import build, canonical
from kcard.training.onward import Way

__all__ = ["SYNC", "SyncRecord", "read_sync"]

SYNC = "sync.json"


@dataclass(frozen=True)
class SyncRecord:
    """date      of the sync, ISO in UTC
    updates   sha256 of the version before
    way       how the card was made
    why       it was trained from scratch, where that was not asked for
    added, changed, removed, moved  numbers of passages
    seconds   wall time, without the exam
    recall    None for a card without a model
    first     recall of what stayed when the card was last trained from scratch: what drift is measured against
    """

    date: str
    updates: str
    way: Way
    why: str
    added: int
    changed: int
    removed: int
    moved: int
    seconds: float
    recall: Remembered | None = None
    first: float = 0.0
    format: int = 1

    def write(self, folder: Path) -> None:
        write_text(folder / SYNC, canonical(self))


def read_sync(folder: Path) -> SyncRecord | None:
    """What sync.json in a card's folder says; None where there is none. Raises CardError for a malformed one."""
    path = folder / SYNC
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if "best" in found:  # instead of `first`, as the first ones have it
            found["first"] = found.pop("best")
        return build(SyncRecord, found)
    except (OSError, ValueError, TypeError) as error:
        raise CardError(
            f"{path} can't be read: {error}: delete it, and sync the card with --retrain"
        ) from error
