"""What an audit found, as values, and its JSON, which the hub keeps beside the version."""

from dataclasses import dataclass

from kcard.answer import Source
from kcard.evaluation.record import Distribution, Mean, read_record
from kcard.hub.repositories.figures import is_independent
from kcard.json_values import canonical

__all__ = ["Audit", "AuditedDocument", "Domain"]

FORMAT = 1


@dataclass(frozen=True)
class AuditedDocument:
    """A document that the card wrote. `evidence`: the text that supports it most; `window`: the part that decided.

    Where the checker doesn't show it the window is the whole text.
    """

    query: str
    domain: str
    text: str
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None
    window: str = ""


@dataclass(frozen=True)
class Domain:
    """The scores of one domain; `unknown` of its documents are not covered by the evidence."""

    name: str
    queries: int
    faithfulness: Mean | None = None
    factuality: Mean | None = None
    unknown: int = 0


@dataclass(frozen=True)
class Audit:
    """How far what a card writes holds: against its own corpus, and, never mixed with it, against evidence.

    card            its reference, or its name where it is not published
    kcard           the version of kcard that asked
    queries         what was asked, by name and digest; `asked` is how many
    documents       written for each query, by each of the card's writers; `empty` of all had no text
    seed, limit     which questions were drawn of its own corpus, and at most how many
    temperature, tokens  how the card sampled
    checker         who judged, and the sha256 of its weights, where it names one
    evidence        the independent evidence by name and digest; `evidence_shared` of its texts repeat the card's
                    corpus, and `evidence_notes` are what should be known of it
    evidence_overlap  how far evidence and corpus are the same, in [0, 1]; None where that was not measured
    faithfulness    scores of the documents against the card's own corpus; None where its text is not at hand
    factuality      scores of the documents that the independent evidence covers; None without any evidence
    coverage        the share of the documents that it covers; None where that was not measured
    domains         by the queries' domain, where they have several
    ranked_by       the score by which `worst` was chosen
    """

    card: str
    kcard: str
    queries: str
    queries_sha256: str
    asked: int
    documents: int
    empty: int
    seed: int
    limit: int
    temperature: float
    tokens: int
    checker: str
    checker_sha256: str | None = None
    evidence: str | None = None
    evidence_sha256: str | None = None
    evidence_shared: int = 0
    evidence_overlap: float | None = None
    evidence_notes: tuple[str, ...] = ()
    faithfulness: Distribution | None = None
    factuality: Distribution | None = None
    coverage: Mean | None = None
    domains: tuple[Domain, ...] = ()
    ranked_by: str = "faithfulness"
    worst: tuple[AuditedDocument, ...] = ()
    format: int = FORMAT

    @property
    def independent(self) -> bool:
        """Whether the evidence is independent of the card's corpus, as far as is known."""
        return is_independent(self.evidence_overlap)

    def to_json(self) -> str:
        return canonical(self)

    @classmethod
    def from_json(cls, text: str, where: str = "audit") -> "Audit":
        """Raises CardError for anything that is not an audit of this format."""
        return read_record(
            cls, text, f"{where} is not an audit", FORMAT, "audit the card again (kcard audit)"
        )
