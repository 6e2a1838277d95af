"""The study material that a card is trained on: that of a file, or what rules make of the corpus meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.manifest import file_digest
from kcard.training.progress import Note, Report, StudyProgress
from kcard.training.study.item import StudyItem, read_study

__all__ = ["AUTO", "StudyMaterial", "study_material"]

AUTO = "auto"
SHOWN = 5  # broken lines that are reported one by one
MOST = 2000  # passages, spread over the corpus, that the rules write about


@dataclass(frozen=True)
class StudyMaterial:
    """`name`: as messages call it. `record`: what the card's manifest says of it."""

    name: str
    items: Sequence[StudyItem]
    record: Mapping[str, Any] = field(default_factory=dict)


def study_material(study: Path | str, passages: Sequence[Source], report: Report) -> StudyMaterial:
    """That of a file, or with AUTO what the rules make of the passages; what can't be used is reported.

    Raises UsageError where a file can't be read or holds no item.
    """
    if str(study) == AUTO:
        return _automatic(passages, report)
    path = Path(study)
    found = read_study(path)
    for broken in found.broken[:SHOWN]:
        report(Note(f"{path}, {broken}: left out"))
    if len(found.broken) > SHOWN:
        report(Note(f"{path}: {len(found.broken) - SHOWN} more lines left out"))
    return StudyMaterial(f"study material {path}", found.items, {"study_sha256": file_digest(path)})


def _automatic(passages: Sequence[Source], report: Report) -> StudyMaterial:
    """None of a corpus that the rules make nothing of, which is reported."""
    from kcard.language import detect
    from kcard.llms.reader import SpanReader
    from kcard.selectors.cached import cached
    from kcard.selectors.registry import Loading, checker
    from kcard.training.study.rules.writing import BY, written
    from kcard.training.study.tasks import KINDS, assignments

    chosen = passages[:: -(-len(passages) // MOST)]
    if len(chosen) < len(passages):
        report(Note(f"study material: about {len(chosen):,} passages, spread over the corpus"))
    try:
        made = written(
            passages,
            [*assignments(chosen, [*KINDS])],
            cached(checker("minilm", Loading())),
            SpanReader(quotes=True),
            detect([passage.text for passage in chosen]),
            lambda done, count: report(StudyProgress(done, count)),
        )
    except UsageError as error:
        report(Note(f"no study material: {error}"))
        return StudyMaterial(f"study material by {BY}", ())
    return StudyMaterial(f"study material by {BY}", made.items, {"study_by": BY})
