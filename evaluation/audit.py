"""Audits: score the documents that a card generates for many queries.

A card's author makes its exam, which travels with the card. An audit is made by a user of the card, with queries and
evidence of their choice; the hub stores it beside the version.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.errors import CardError
from kcard.evaluation.independent_evidence import IndependentEvidence
from kcard.evaluation.questions import ExamQuestion, QuestionFile, digest, make_questions, read_queries
from kcard.evaluation.recall import Scorer, generate_documents
from kcard.evaluation.records import (
    DIGITS,
    Audit,
    AuditedDocument,
    Distribution,
    Domain,
    Mean,
    mean_of,
    rounded,
    value_of,
)
from kcard.evaluation.target import Target
from kcard.interfaces import Pair
from kcard.types import Passage, Sampling
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader
    from kcard.hub.audits import AuditFinding

OWN_CORPUS = "own corpus"  # as the name of the queries
# A document has two scores, which are never combined.
FAITHFULNESS, FACTUALITY = "faithfulness", "factuality"
# The default sampling of `kcard ask`.
TEMPERATURE = 0.1
MAX_TOKENS = 100


@dataclass(frozen=True)
class ScoredDocument(AuditedDocument):
    """A document with its scores; a score is None if the evidence does not cover the document.

    `recited`: whether its faithfulness counts. It does not for documents from the index of a card of kind `both`: they
    repeat the corpus, which says nothing about the model.
    """

    recited: bool = True


def score_documents(
    queries: Sequence[ExamQuestion], rows: Sequence[Sequence[Passage]], scorer: Scorer, both: bool
) -> list[ScoredDocument]:
    """Score the documents `rows`, one row for each query; empty documents are left out.

    `both`: whether the card has a model and an index. A document's `evidence` is that of the ranking score: factuality
    if the scorer has independent evidence, else faithfulness.
    """
    documents: list[tuple[ExamQuestion, Passage]] = []
    for query, row in zip(queries, rows, strict=True):
        for passage in row:
            if passage.text.strip():
                documents.append((query, passage))
    passages = [passage for _, passage in documents]
    unjudged = [None] * len(passages)
    own = scorer.faithfulness(passages) or unjudged
    outside = scorer.factuality(passages) or unjudged
    scored = []
    for (query, passage), faithful, factual in zip(documents, own, outside, strict=True):
        document = ScoredDocument(
            query=query.text,
            domain=query.domain,
            text=passage.text,
            recited=not (both and passage.source is not None),
        )
        if faithful is not None:
            document = replace(document, faithfulness=faithful.faithfulness, evidence=faithful.evidence)
        if factual is not None:
            document = replace(document, factuality=factual.factuality, evidence=factual.evidence)
        scored.append(document)
    return scored


def group_by(
    scored: Iterable[ScoredDocument], key: Callable[[ScoredDocument], str]
) -> dict[str, list[ScoredDocument]]:
    """Group the documents by `key`, in the order in which each key first occurs."""
    groups: dict[str, list[ScoredDocument]] = {}
    for item in scored:
        groups.setdefault(key(item), []).append(item)
    return groups


def summarise_scores(by_query: Sequence[Sequence[ScoredDocument]], what: str, seed: int) -> Distribution:
    """Return the distribution of factuality, or of faithfulness over the documents whose faithfulness counts.

    Its mean is that of the queries' means, with its interval over queries: documents for one query are similar, so
    counting them separately would understate the uncertainty.
    """
    scores: list[float] = []
    means: list[float] = []
    unknown = 0
    for row in by_query:
        judged = []
        for document in row:
            if what == FAITHFULNESS and not document.recited:
                continue
            score = getattr(document, what)
            if score is None:
                unknown += 1
            else:
                judged.append(score)
        if judged:
            scores += [round(score, DIGITS) for score in judged]
            means.append(sum(judged) / len(judged))
    return Distribution(tuple(scores), Mean.of(means, seed), unknown)


def measure_coverage(by_query: Sequence[Sequence[ScoredDocument]], seed: int) -> Mean | None:
    """Return the share of the documents that have a factuality: the mean of the queries' shares."""
    shares = []
    for row in by_query:
        covered = [document for document in row if document.factuality is not None]
        shares.append(len(covered) / len(row))
    return Mean.of(shares, seed)


def measure_overlap(scored: Sequence[ScoredDocument], independent: IndependentEvidence) -> float:
    """Return how much the evidence repeats the card's corpus, in [0, 1].

    The larger of its overlap as a whole and the share of the texts that decided a score and repeat the corpus.
    """
    deciding = shared = 0
    for document in scored:
        if document.factuality is not None and document.evidence is not None:
            deciding += 1
            shared += independent.own.repeats(document.evidence)
    if not deciding:
        return round(independent.overlap, DIGITS)
    return round(max(independent.overlap, shared / deciding), DIGITS)


def score_domains(scored: Sequence[ScoredDocument], scorer: Scorer, seed: int) -> tuple[Domain, ...]:
    """Return the scores of each domain, sorted by name; empty if there is only one domain."""
    domains = group_by(scored, lambda document: document.domain)
    if len(domains) < 2:
        return ()
    rows = []
    for name, documents in sorted(domains.items()):
        by_query = [*group_by(documents, lambda document: document.query).values()]
        row = Domain(name, len(by_query))
        if scorer.own:
            row = replace(row, faithfulness=summarise_scores(by_query, FAITHFULNESS, seed).mean)
        if scorer.independent:
            outside = summarise_scores(by_query, FACTUALITY, seed)
            row = replace(row, factuality=outside.mean, unknown=outside.unknown)
        rows.append(row)
    return tuple(rows)


def find_lowest(scored: Sequence[ScoredDocument], scorer: Scorer, count: int) -> tuple[AuditedDocument, ...]:
    """Return the `count` documents with the lowest ranking scores, lowest first, with the windows that decided them."""
    from kcard.selectors.factuality import verdicts

    what = FACTUALITY if scorer.independent else FAITHFULNESS
    judged = [document for document in scored if getattr(document, what) is not None]
    distinct: dict[tuple[str, str], ScoredDocument] = {}
    for document in sorted(judged, key=lambda document: getattr(document, what)):
        distinct.setdefault((document.query, document.text), document)
    chosen = [*distinct.values()][:count]
    # The window of each document's evidence that decided its score.
    pairs = []
    for document in chosen:
        evidence = document.evidence.text if document.evidence else ""
        pairs.append(Pair(document.text, evidence))
    lowest = []
    for document, verdict in zip(chosen, verdicts(scorer.checker, pairs), strict=True):
        scores = rounded(document.faithfulness), rounded(document.factuality)
        lowest.append(
            AuditedDocument(
                document.query, document.domain, document.text, *scores, document.evidence, verdict.window
            )
        )
    return tuple(lowest)


def read_or_make_queries(target: Target, path: Path | str | None, limit: int, seed: int) -> QuestionFile:
    """Return the queries of the file; without a file, those of an exam of the card's own corpus with this seed.

    Raises CardError if none can be made.
    """
    if path is not None:
        return read_queries(path)
    questions: list[ExamQuestion] = []
    if target.corpus:
        questions = make_questions(target.corpus, limit, seed)
    if not questions:
        raise CardError(
            f"card {target.card.name!r} carries no text to make questions from: pass queries with --queries FILE"
        )
    return QuestionFile(OWN_CORPUS, digest(questions), tuple(questions))


def run_audit(
    target: Target,
    queries: QuestionFile,
    scorer: Scorer,
    models: "Loader",
    *,
    documents: int,
    limit: int,
    seed: int,
    worst: int,
    checker: str,
) -> Audit:
    """Generate the card's documents for the queries, and score them; the settings are those of kcard.audit.

    `models` loads the card. `checker`: the name of the scorer's checker.
    """
    from kcard.cards.generators.retrieval import load_generator

    sampling = Sampling(TEMPERATURE, MAX_TOKENS, seed=seed)
    texts = [query.text for query in queries.questions]
    generator = load_generator(target.card, models)
    rows = generate_documents(
        generator, texts, documents, sampling, f"asking {target.card.name}", scorer.on_event
    )
    # Score them, and summarise the scores query by query.
    scored = score_documents(queries.questions, rows, scorer, both=target.card.manifest.index)
    by_query = [*group_by(scored, lambda document: document.query).values()]
    audit = Audit(
        card=target.reference or target.card.name,
        kcard=__version__,
        queries=queries.name,
        queries_sha256=queries.sha256,
        asked=len(queries.questions),
        documents=documents,
        empty=sum(map(len, rows)) - len(scored),
        seed=seed,
        limit=limit,
        temperature=sampling.temperature,
        tokens=sampling.tokens,
        checker=checker,
        checker_sha256=scorer.checker.sha256,
        domains=score_domains(scored, scorer, seed),
        ranked_by=FAITHFULNESS,
        worst=find_lowest(scored, scorer, worst),
    )
    if scorer.own:
        audit = replace(audit, faithfulness=summarise_scores(by_query, FAITHFULNESS, seed))
    independent = scorer.independent
    if independent is None:
        return audit
    return replace(
        audit,
        evidence=independent.name,
        evidence_sha256=independent.sha256,
        evidence_shared=independent.shared,
        evidence_overlap=measure_overlap(scored, independent),
        evidence_notes=independent.notes,
        factuality=summarise_scores(by_query, FACTUALITY, seed),
        coverage=measure_coverage(by_query, seed),
        ranked_by=FACTUALITY,
    )


def make_finding(audit: Audit) -> "AuditFinding":
    """Return the audit as the hub stores it."""
    from kcard.hub.audits import AuditFinding

    judged = None
    if audit.factuality is not None:
        judged = len(audit.factuality.scores)
    return AuditFinding(
        checker=audit.checker,
        checker_sha256=audit.checker_sha256,
        evidence=audit.evidence,
        evidence_sha256=audit.evidence_sha256,
        queries=audit.queries,
        queries_sha256=audit.queries_sha256,
        seed=audit.seed,
        faithfulness=mean_of(audit.faithfulness),
        factuality=mean_of(audit.factuality),
        coverage=value_of(audit.coverage),
        overlap=audit.evidence_overlap,
        judged=judged,
        record=audit.to_json(),
        kcard=audit.kcard,
    )
