"""Browsing a hub: every card with what its exam found, to be compared, filtered and sorted."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import CardError, UsageError
from kcard.evaluation.record import EXAM, Distribution, Exam, Judged

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.hub.versions import Version

__all__ = ["SORTS", "CardReport", "Sort", "browse"]

Sort = Literal["name", "domain", "base", "size", "recall", "lift", "faithfulness", "factuality"]


@dataclass(frozen=True)
class CardReport:
    """One published card and its exam. `size` in bytes; `note`: why it has no exam, where it has none."""

    reference: str
    name: str
    description: str
    domain: str
    base: str
    kind: str
    size: int
    published: datetime
    exam: Exam | None = None
    note: str = ""

    @property
    def recall(self) -> float | None:
        """Share of held-out questions answered, in [0, 1]; None without an exam."""
        return self.exam.recall.mean if self.exam and self.exam.recall else None

    @property
    def lift(self) -> float | None:
        """Recall less that of the card's base, or less chance, in [-1, 1]; None where it is not known."""
        return self.exam.lift.mean if self.exam and self.exam.lift else None

    @property
    def given(self) -> float | None:
        """Recall on the exam file, in [0, 1]; None where none was given."""
        recall = self.exam.given.recall if self.exam and self.exam.given else None
        return recall.mean if recall else None

    @property
    def faithfulness(self) -> float | None:
        """Mean score against the card's own corpus, in [0, 1]."""
        return _mean(self.exam.faithfulness) if self.exam else None

    @property
    def factuality(self) -> float | None:
        """Mean score against independent evidence, in [0, 1]; None where there was none."""
        return _mean(self.exam.factuality) if self.exam else None

    @property
    def faithfulness_scores(self) -> tuple[float, ...]:
        return self.exam.faithfulness.scores if self.exam and self.exam.faithfulness else ()

    @property
    def factuality_scores(self) -> tuple[float, ...]:
        return self.exam.factuality.scores if self.exam and self.exam.factuality else ()

    @property
    def best(self) -> tuple[Judged, ...]:
        return self.exam.best if self.exam else ()

    @property
    def worst(self) -> tuple[Judged, ...]:
        return self.exam.worst if self.exam else ()


# What is better or bigger comes first; what is unknown comes last.
SORTS: dict[str, Callable[[CardReport], Any]] = {
    "name": lambda r: r.name,
    "domain": lambda r: (r.domain, r.name),
    "base": lambda r: (r.base, r.name),
    "size": lambda r: -r.size,
    "recall": lambda r: _descending(r.recall),
    "lift": lambda r: _descending(r.lift),
    "faithfulness": lambda r: _descending(r.faithfulness),
    "factuality": lambda r: _descending(r.factuality),
}


def browse(
    *,
    hub: "Hub | None" = None,
    name: str | None = None,
    text: str | None = None,
    domain: str | None = None,
    base: str | None = None,
    sort: str = "name",
) -> list[CardReport]:
    """The newest version of every card in the hub, or the one that `name` refers to (card, card@v2, ...).

    text, domain, base  as in Hub.list: words, a domain subtree, a base model
    sort                name, domain, base, size, recall, lift, faithfulness or factuality

    Raises UnknownCard, UsageError for an unknown sort. An exam that can't be read is a note.
    """
    if sort not in SORTS:
        raise UsageError(f"sort {sort!r} is unknown: choose one of {', '.join(SORTS)}")
    if hub is None:
        from kcard.hub.registry import Hub

        hub = Hub()
    chosen = [hub.get(name)] if name is not None else hub.list(text=text, domain=domain, base=base)
    return sorted((_report(hub, version) for version in chosen), key=SORTS[sort])


def _report(hub: "Hub", version: "Version") -> CardReport:
    manifest = version.manifest
    found, note = None, "not examined"
    try:
        if EXAM in version.files:
            with hub.open(version.reference, EXAM) as stream:
                found, note = Exam.from_json(stream.read().decode()), ""
    except (CardError, UnicodeDecodeError) as error:
        # One card's foreign exam must not hide the others.
        note = str(error)
    return CardReport(
        reference=version.reference,
        name=version.name,
        description=manifest.description,
        domain=manifest.domain,
        base=manifest.base.name or ("no model" if manifest.kind == "retrieval" else "from scratch"),
        kind=manifest.kind,
        size=version.size,
        published=version.published,
        exam=found,
        note=note,
    )


def _mean(distribution: Distribution | None) -> float | None:
    return distribution.mean.mean if distribution and distribution.mean else None


def _descending(value: float | None) -> float:
    return math.inf if value is None else -value
