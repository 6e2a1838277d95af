"""Figures of a version: those that came with the card, and those that this hub measured.

A figure that came with the card is self-declared: its publisher may have written anything. It can quarantine a version,
but only a verified figure can release one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

__all__ = ["DECLARED", "VERIFIED", "Declared", "Reason", "Verified", "quarantine_reason", "shown"]

DECLARED, VERIFIED = "self-declared", "verified"


@dataclass(frozen=True)
class Declared:
    """The figures of the exam.json that came with a card.

    recall, factuality  means in [0, 1]; None if not given
    fault               why the exam is not plausible; empty if it is
    """

    recall: float | None = None
    factuality: float | None = None
    fault: str = ""


@dataclass(frozen=True)
class Verified:
    """The figures that this hub measured.

    at            when the latest of them was measured, in UTC
    recall        in [0, 1], by the hub's exam; None if not measured
    faithfulness  in [0, 1], by the latest audit that measured it, else by the hub's exam; None if not measured
    factuality    in [0, 1], by the latest audit that measured it; None if not measured
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
    released: bool = False
    author: str | None = None
    kcard: str | None = None

    @property
    def source(self) -> str:
        """When factuality was measured, and against which evidence."""
        if self.taken is None:
            return f"by this hub on {self.at:%Y-%m-%d}, without independent evidence"
        digest = f" (sha256 {self.evidence_sha256[:12]})" if self.evidence_sha256 else ""
        return f"by this hub on {self.taken:%Y-%m-%d} against {self.evidence or 'unnamed evidence'}{digest}"


@dataclass(frozen=True)
class Reason:
    """Why a version is quarantined: its `factuality` is below the `threshold` of the hub.

    `audit`, `taken` and `evidence` are those of the audit; None if the card's own exam is the reason.
    """

    factuality: float
    threshold: float
    audit: int | None = None
    taken: datetime | None = None
    evidence: str | None = None

    @property
    def word(self) -> str:
        """Whether the figure is verified or self-declared."""
        return DECLARED if self.audit is None else VERIFIED

    def __str__(self) -> str:
        source = "by the card's own exam"
        if self.taken is not None:
            against = f" against {self.evidence}" if self.evidence else ""
            source = f"by audit {self.audit} of {self.taken:%Y-%m-%d}{against}"
        return (
            f"factuality {self.factuality:.2f} ({self.word}, {source}) is below the hub's threshold of "
            f"{self.threshold:g}"
        )


def quarantine_reason(
    declared: Declared | None, verified: Verified | None, threshold: float | None
) -> Reason | None:
    """Why a version with these figures is quarantined; None if it is not.

    A verified factuality decides. Without one, the declared factuality can quarantine the version. An unmeasured
    version is not quarantined.
    """
    if threshold is None:
        return None
    if verified is not None and verified.factuality is not None:
        if verified.factuality >= threshold or verified.released:
            return None
        return Reason(verified.factuality, threshold, verified.audit, verified.taken, verified.evidence)
    if declared is None or declared.factuality is None or declared.factuality >= threshold:
        return None
    return Reason(declared.factuality, threshold)


def shown(declared: Declared | None, verified: Verified | None) -> Iterator[str]:
    """Each known figure as a line of text, with whether it is verified or self-declared."""
    if verified is not None:
        for name in ("recall", "faithfulness", "factuality"):
            if (value := getattr(verified, name)) is not None:
                against = (
                    verified.source if name == "factuality" else f"by this hub on {verified.at:%Y-%m-%d}"
                )
                yield f"{name} {value:.2f} ({VERIFIED} {against})"
    if declared is not None:
        for name in ("recall", "factuality"):
            if (value := getattr(declared, name)) is not None:
                yield f"{name} {value:.2f} ({DECLARED})"
        if declared.fault:
            yield f"its exam.json is not plausible: {declared.fault}"
