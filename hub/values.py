"""Values that are no rows of the database: figures of versions, files of commits.

A figure that came with the card is self-declared: its publisher may have written anything. It can quarantine a version,
but only a verified figure can release one.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

DECLARED, VERIFIED = "self-declared", "verified"
# Evidence with this overlap with a card's corpus, or more, is not independent of the card.
OVERLAP = 0.1
# Share of a card's documents that evidence must cover to quarantine it, unless a hub says otherwise.
FLOOR = 0.5


def is_independent(overlap: float | None) -> bool:
    """Return whether evidence with this overlap with a card's corpus is independent; with unknown overlap it is."""
    return overlap is None or overlap < OVERLAP


def covers_enough(coverage: float | None, floor: float) -> bool:
    """Return whether evidence with this coverage is enough to decide; unknown coverage is."""
    return coverage is None or coverage >= floor


# A score from GOOD on is shown as good, one below POOR as poor, whoever measured it.
GOOD, POOR = 0.7, 0.5
Tone: TypeAlias = Literal["good", "fair", "poor"]


def format_score(value: float, sign: Literal["", "+"] = "") -> str:
    """Format a score or a difference of scores with two digits and no zero before the point, such as .81 or +.31."""
    return f"{value:{sign}.2f}".replace("0.", ".", 1)


@dataclass(frozen=True)
class ScoreEstimate:
    """A mean score with its sample.

    value      in [0, 1]; differences of scores in [-1, 1]
    count      the number of documents or questions that it is the mean of; None: unknown
    low, high  its 95 % interval; None: unknown
    """

    value: float
    count: int | None = None
    low: float | None = None
    high: float | None = None

    @property
    def tone(self) -> Tone:
        """How good the value is, whatever its sample."""
        if self.value >= GOOD:
            return "good"
        return "fair" if self.value >= POOR else "poor"

    @property
    def sample(self) -> str:
        """The number and the interval, such as "n 40, .66–.90"; "n unknown" without the number."""
        count = "n unknown" if self.count is None else f"n {self.count}"
        if self.low is None or self.high is None:
            return count
        return f"{count}, {format_score(self.low)}–{format_score(self.high)}"

    def __str__(self) -> str:
        return f"{format_score(self.value)} ({self.sample})"


@dataclass(frozen=True)
class DeclaredFigures:
    """The figures of the exam.json that came with a card.

    recall, factuality  means in [0, 1]; None if not given
    coverage            the share of the documents that have a factuality, in [0, 1]; None if not given
    fault               why the exam is not plausible; empty if it is
    """

    recall: float | None = None
    factuality: float | None = None
    fault: str = ""
    coverage: float | None = None


@dataclass(frozen=True)
class VerifiedFigures:
    """The figures that this hub measured.

    at            when the latest of them was measured, in UTC
    recall        in [0, 1], by the hub's exam; None if not measured
    faithfulness  in [0, 1], by the latest audit that measured it, else by the hub's exam; None if not measured
    factuality    in [0, 1], by the latest audit whose evidence is independent and covers enough for a quarantine, or
                  without one by the latest; None if not measured
    coverage      the share of the documents that its evidence covers, in [0, 1], and `judged`, how many these are; None
                  in audits of earlier versions
    overlap       how far its evidence and the card's corpus are the same, in [0, 1]; None likewise
    audit         the number of the audit that measured factuality; None without one
    taken         when that was, in UTC
    evidence      the evidence of that audit by name and digest, and `checker`, who judged
    released      whether an administrator released the version from the quarantine that this audit caused
    author        who measured last, with this version of `kcard`; None: unknown, or the hub's own command line
    """

    at: datetime
    recall: float | None = None
    faithfulness: float | None = None
    factuality: float | None = None
    audit: int | None = None
    taken: datetime | None = None
    evidence: str | None = None
    evidence_sha256: str | None = None
    checker: str | None = None
    coverage: float | None = None
    judged: int | None = None
    overlap: float | None = None
    released: bool = False
    author: str | None = None
    kcard: str | None = None

    @property
    def independent(self) -> bool:
        """Whether the evidence is independent of the card's corpus, as far as the hub knows."""
        return is_independent(self.overlap)


@dataclass(frozen=True)
class QuarantineReason:
    """Why a version is quarantined: its `factuality` is below the `threshold` of the hub.

    `audit`, `taken` and `evidence` are those of the audit; None if the card's own exam is the reason. `coverage` is the
    share of the documents that the evidence covers; None if unknown.
    """

    factuality: float
    threshold: float
    audit: int | None = None
    taken: datetime | None = None
    evidence: str | None = None
    coverage: float | None = None

    @property
    def word(self) -> str:
        """Whether the figure is verified or self-declared."""
        return DECLARED if self.audit is None else VERIFIED

    def __str__(self) -> str:
        source = "by the card's own exam"
        if self.taken is not None:
            against = f" against {self.evidence}" if self.evidence else ""
            source = f"by audit {self.audit} of {self.taken:%Y-%m-%d}{against}"
        if self.coverage is not None:
            source += f", {self.coverage:.0%} of the documents covered"
        return (
            f"factuality {self.factuality:.2f} ({self.word}, {source}) is below the hub's threshold of "
            f"{self.threshold:g}"
        )


def quarantine_reason(
    declared: DeclaredFigures | None,
    verified: VerifiedFigures | None,
    threshold: float | None,
    floor: float = FLOOR,
) -> QuarantineReason | None:
    """Return why a version with these figures is quarantined; None if it is not.

    A verified factuality decides. Without one, the declared factuality can quarantine the version. An unmeasured
    version is not quarantined, and a factuality whose evidence covers less than `floor` of the documents, or is not
    independent of the card, counts as unmeasured; one of unknown coverage counts.
    """
    if threshold is None:
        return None
    measured = verified is not None and verified.independent and covers_enough(verified.coverage, floor)
    if verified is not None and measured and verified.factuality is not None:
        if verified.factuality >= threshold or verified.released:
            return None
        return QuarantineReason(
            verified.factuality,
            threshold,
            verified.audit,
            verified.taken,
            verified.evidence,
            verified.coverage,
        )
    if declared is None or declared.factuality is None or declared.factuality >= threshold:
        return None
    if not covers_enough(declared.coverage, floor):
        return None
    return QuarantineReason(declared.factuality, threshold, coverage=declared.coverage)


# Files of commits, and operations on them.

BRANCH, TAG = "branch", "tag"
MAIN = "main"


@dataclass(frozen=True)
class Entry:
    """A file of a commit.

    oid     git's: the sha1 of its blob, or of its LFS pointer for a large file
    sha256  of its bytes: the name of its blob in the store
    size    bytes
    """

    path: str
    oid: str
    sha256: str
    size: int
    lfs: bool


@dataclass(frozen=True)
class Add:
    """Add or replace a file."""

    entry: Entry


@dataclass(frozen=True)
class Delete:
    """Delete a file."""

    path: str


@dataclass(frozen=True)
class DeleteFolder:
    """Delete every file under a path."""

    path: str


Operation: TypeAlias = Add | Delete | DeleteFolder
