"""The study material that a card is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.manifest import file_digest
from kcard.training.progress import Note, Report
from kcard.training.study.item import StudyItem, read_study

__all__ = ["StudyMaterial", "study_material"]

SHOWN = 5  # broken lines that are reported one by one


@dataclass(frozen=True)
class StudyMaterial:
    """`name`: as messages call it. `record`: what the card's manifest says of it."""

    name: str
    items: Sequence[StudyItem]
    record: Mapping[str, Any] = field(default_factory=dict)


def study_material(path: Path, report: Report) -> StudyMaterial:
    """Read the study material of a file; lines that can't be used are reported.

    Raises UsageError where the file can't be read or holds no item.
    """
    found = read_study(path)
    for broken in found.broken[:SHOWN]:
        report(Note(f"{path}, {broken}: left out"))
    if len(found.broken) > SHOWN:
        report(Note(f"{path}: {len(found.broken) - SHOWN} more lines left out"))
    return StudyMaterial(f"study material {path}", found.items, {"study_sha256": file_digest(path)})
