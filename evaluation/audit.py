"""The audit of a card: whether what it writes holds, by the evidence of others (Knowledge Card, figure 9).

An exam asks what a card knows and travels with it; whoever makes a card makes its exam. An audit is the hub's own: it
is taken by whoever is about to use the card, against evidence of their choice, and kept beside the version.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kcard
from kcard.errors import CardError
from kcard.evaluation.asking import written
from kcard.evaluation.audit_record import Audit
from kcard.evaluation.queries import Queries, of_corpus, read_queries
from kcard.evaluation.record import mean_of
from kcard.evaluation.scored import (
    FACTUALITY,
    FAITHFULNESS,
    by_domain,
    coverage,
    factuality,
    faithfulness,
    grouped,
    lowest,
    overlap,
    score,
)
from kcard.evaluation.scorer import Scorer
from kcard.evaluation.target import Target
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.lm.loader import Loader
    from kcard.hub.repositories.audits import AuditFinding

__all__ = ["AuditSettings", "audited", "finding", "queries_for"]

# How cards write for `kcard ask` by default.
TEMPERATURE = 0.1
TOKENS = 100


@dataclass(frozen=True)
class AuditSettings:
    """How an audit is taken. `checker`: its name; `models`: what loads the card; the others as kcard.audit has them."""

    documents: int
    limit: int
    seed: int
    worst: int
    checker: str
    models: "Loader"


def queries_for(found: Target, path: Path | str | None, limit: int, seed: int) -> Queries:
    """Those of the file, or questions about the card's own corpus. CardError where there are none."""
    if path is not None:
        return read_queries(path)
    asked = of_corpus(found.corpus, limit, seed) if found.corpus else None
    if asked is None or not asked.queries:
        raise CardError(
            f"no question can be made of what travels with card {found.card.name!r}: give some with --queries FILE"
        )
    return asked


def audited(found: Target, asked: Queries, scorer: Scorer, settings: AuditSettings) -> Audit:
    """Have the card write, and judge each document."""
    seed, independent = settings.seed, scorer.independent
    sampling = Sampling(TEMPERATURE, TOKENS, seed=seed)
    texts = [query.text for query in asked.queries]
    rows = written(found.card, texts, settings.documents, sampling, settings.models, scorer.report)
    scored = score(asked.queries, rows, scorer, both=found.card.manifest.index)
    by_query = [*grouped(scored, lambda item: item.query.text).values()]
    return Audit(
        card=found.reference or found.card.name,
        kcard=kcard.__version__,
        queries=asked.name,
        queries_sha256=asked.sha256,
        asked=len(asked.queries),
        documents=settings.documents,
        empty=sum(map(len, rows)) - len(scored),
        seed=seed,
        limit=settings.limit,
        temperature=sampling.temperature,
        tokens=sampling.tokens,
        checker=settings.checker,
        checker_sha256=getattr(scorer.checker, "sha256", None),
        evidence=independent.name if independent else None,
        evidence_sha256=independent.sha256 if independent else None,
        evidence_shared=independent.shared if independent else 0,
        evidence_overlap=overlap(scored, independent) if independent else None,
        evidence_notes=independent.notes if independent else (),
        faithfulness=faithfulness(by_query, seed) if scorer.own else None,
        factuality=factuality(by_query, seed) if independent else None,
        coverage=coverage(by_query, seed) if independent else None,
        domains=by_domain(scored, scorer, seed),
        ranked_by=FACTUALITY if independent else FAITHFULNESS,
        worst=lowest(scored, scorer, settings.worst),
    )


def finding(made: Audit) -> "AuditFinding":
    """The audit as the hub keeps it."""
    from kcard.hub.repositories.audits import AuditFinding

    return AuditFinding(
        checker=made.checker,
        checker_sha256=made.checker_sha256,
        evidence=made.evidence,
        evidence_sha256=made.evidence_sha256,
        queries=made.queries,
        queries_sha256=made.queries_sha256,
        seed=made.seed,
        faithfulness=mean_of(made.faithfulness),
        factuality=mean_of(made.factuality),
        coverage=made.coverage.mean if made.coverage else None,
        overlap=made.evidence_overlap,
        judged=len(made.factuality.scores) if made.factuality else None,
        record=made.to_json(),
        kcard=made.kcard,
    )
