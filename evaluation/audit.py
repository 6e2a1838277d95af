"""Audits: score the documents that a card generates for many queries.

A card's author makes its exam, which travels with the card. An audit is made by a user of the card, with queries and
evidence of their choice; the hub stores it beside the version.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.errors import CardError, UsageError
from kcard.evaluation.questions import ExamQuestion, QuestionFile, digest, make_questions
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
)
from kcard.evaluation.target import Target
from kcard.evaluation.tasks.base import read_entries
from kcard.interfaces import Evidence, Pair
from kcard.io import Row, reading
from kcard.manifest import file_digest
from kcard.text import words
from kcard.types import Passage, Sampling, Source
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader
    from kcard.hub.audits import AuditFinding

# The queries of an audit, from a file or about the card's own corpus. A file needs no answers:
#
#     {"question": "Who won the Senate race in Ohio?", "domain": "senate"}
#
# One object per line (.jsonl), a list of objects (.json), a table (.csv), or one question per line (.txt). Scores are
# broken down by the optional `domain` (or `relation`).

OWN = "own corpus"
TEXT = ("question", "query")
DOMAIN = ("domain", "relation")


def read_queries(path: Path | str) -> QuestionFile:
    """Read the queries of a file; of duplicates, the first counts.

    Raises UsageError, which names file and line, if the file is missing, malformed, of an unknown kind or empty.
    """
    path = Path(path).expanduser()
    # Every row, with its place for messages.
    rows: Iterable[tuple[str, Row]]
    if path.suffix.lower() == ".txt":
        with reading(path, "queries"):
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        rows = (
            (f"queries {path}, line {number}", {"question": line})
            for number, line in enumerate(lines, start=1)
            if line.strip()
        )
    else:
        rows = read_entries(path, "queries")
    # The question and domain of each row.
    queries: dict[str, ExamQuestion] = {}
    for where, entry in rows:
        text = next((entry[key] for key in TEXT if key in entry), None)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f'{where}: expected a "question" with a text')
        domain = next((entry[key] for key in DOMAIN if entry.get(key) is not None), "")
        if not isinstance(domain, str):
            raise UsageError(f'{where}: "domain" must be a text, not {type(domain).__name__}')
        queries.setdefault(text.strip(), ExamQuestion(text.strip(), (), domain.strip()))
    if not queries:
        raise UsageError(
            f'queries {path}: no query in it; give at least one with a "question" and, optionally, a "domain"'
        )
    return QuestionFile(path.name, file_digest(path), tuple(queries.values()))


# Independent evidence: texts from outside a card's corpus, and how much of the corpus they repeat.

RUN = 8  # words
SAMPLE = 2000  # passages of a corpus that are compared by runs of words, whose hashes must fit into memory


class CorpusMatcher:
    """Recognises the passages of a card's corpus in other texts, by their hashes and by runs of eight words.

    digests   of its passages or statements (kcard.text.passage_digest)
    passages  their text, if available; of more than SAMPLE passages, that many evenly spread ones are compared by runs

    `repeats` records which passages it has seen, so that `share` is the share of the corpus that the texts so far
    contain.
    """

    def __init__(self, digests: Iterable[str], passages: Sequence[Source] = ()) -> None:
        self._digests = frozenset(digests)
        step = max(1, -(-len(passages) // SAMPLE))
        self._passages = [frozenset(_runs(source.text)) for source in passages[::step]]
        self._runs = frozenset[int]().union(*self._passages)
        self._seen = set[int]()
        self._same = 0

    def repeats(self, text: Source) -> bool:
        """Return whether the text is a passage of the corpus, or more than half of its runs occur in the corpus."""
        from kcard.training.corpus import is_known

        runs = _runs(text.text)
        shared = runs & self._runs
        self._seen |= shared
        same = is_known(text, self._digests)
        self._same += same
        return same or len(shared) * 2 > len(runs)

    @property
    def share(self) -> float:
        """Share of the corpus' passages with more than half of their runs in the texts so far, in [0, 1].

        Without the passages' text, the share of their hashes.
        """
        if not self._passages:
            return min(1.0, self._same / len(self._digests)) if self._digests else 0.0
        seen = sum(2 * len(runs & self._seen) > len(runs) for runs in self._passages)
        return seen / len(self._passages)


@dataclass(frozen=True)
class IndependentEvidence:
    """Evidence that does not consist of the card's own corpus, with the overlap of the two.

    shared   number of its texts that repeat the card's corpus; 0 for remote evidence, whose texts can't be listed
    overlap  the larger of two shares: of its texts that repeat the corpus, and of the corpus that they repeat
    own      recognises the card's corpus in a text
    notes    warnings about the evidence
    """

    name: str
    sha256: str
    evidence: Evidence
    shared: int
    overlap: float
    own: CorpusMatcher
    notes: tuple[str, ...] = ()


def read_independent(
    specs: Sequence[Path | str], digests: Iterable[str], passages: Sequence[Source] = ()
) -> IndependentEvidence | None:
    """Open the evidence that the specs name (files, folders, registered evidence) as one; None for no specs.

    digests   of the card's passages or statements (kcard.text.passage_digest)
    passages  their text, if available

    Raises CorpusError and UsageError as open_evidence does, and UsageError if every text is a passage of the card's own
    corpus, since that would measure faithfulness. Remote evidence is compared only as its texts are retrieved.
    """
    from kcard.selectors.evidence import Union, open_evidence
    from kcard.training.corpus import is_known

    if not specs:
        return None
    parts = [open_evidence(str(spec)) for spec in specs]
    name = ", ".join(part.name for part in parts)
    local = [part for part in parts if isinstance(part, Iterable)]
    texts = {source.text: source for part in local for source in part}
    own_digests = frozenset(digests)
    if texts and len(local) == len(parts) and all(is_known(source, own_digests) for source in texts.values()):
        raise UsageError(
            f"evidence {name}: every text in it is a passage of the card's own corpus, which would measure "
            "faithfulness: give text from another source"
        )
    own = CorpusMatcher(own_digests, passages)
    shared = sum(own.repeats(source) for source in texts.values())
    overlap = max(own.share, shared / len(texts)) if texts else 0.0
    notes = tuple(note for part in parts for note in part.notes)
    whole = parts[0] if len(parts) == 1 else Union(parts)
    # Several parts are identified by the digest of their digests, one per line.
    sha256 = parts[0].digest
    if len(parts) > 1:
        sha256 = hashlib.sha256("\n".join(part.digest for part in parts).encode()).hexdigest()
    return IndependentEvidence(name, sha256, whole, shared, overlap, own, notes)


def _runs(text: str) -> set[int]:
    """Return hashes of every run of eight words; a shorter text is one run."""
    tokens = words(text)
    return {hash(tuple(tokens[at : at + RUN])) for at in range(max(1, len(tokens) - RUN + 1))}


# The documents of an audit with their two scores, which are never combined, and summaries of them.

FAITHFULNESS, FACTUALITY = "faithfulness", "factuality"


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
    texts = [(q, p) for q, row in zip(queries, rows, strict=True) for p in row if p.text.strip()]
    passages = [passage for _, passage in texts]
    unjudged = [None] * len(passages)
    own, outside = scorer.faithfulness(passages) or unjudged, scorer.factuality(passages) or unjudged
    return [
        ScoredDocument(
            query=query.text,
            domain=query.domain,
            text=passage.text,
            faithfulness=faithful.faithfulness if faithful else None,
            factuality=factual.factuality if factual else None,
            evidence=ranking.evidence if (ranking := factual or faithful) else None,
            recited=not (both and passage.source is not None),
        )
        for (query, passage), faithful, factual in zip(texts, own, outside, strict=True)
    ]


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
    rows = [[getattr(d, what) for d in row if d.recited or what == FACTUALITY] for row in by_query]
    judged = [[value for value in row if value is not None] for row in rows]
    scores = tuple(round(value, DIGITS) for row in judged for value in row)
    mean = Mean.of([sum(row) / len(row) for row in judged if row], seed)
    return Distribution(scores, mean, sum(map(len, rows)) - len(scores))


def measure_coverage(by_query: Sequence[Sequence[ScoredDocument]], seed: int) -> Mean | None:
    """Return the share of the documents that have a factuality: the mean of the queries' shares."""
    shares = [sum(d.factuality is not None for d in row) / len(row) for row in by_query if row]
    return Mean.of(shares, seed)


def measure_overlap(scored: Sequence[ScoredDocument], independent: IndependentEvidence) -> float:
    """Return how much the evidence repeats the card's corpus, in [0, 1].

    The larger of its overlap as a whole and the share of the texts that decided a score and repeat the corpus.
    """
    deciding = [item.evidence for item in scored if item.factuality is not None and item.evidence is not None]
    same = sum(map(independent.own.repeats, deciding))
    return round(max(independent.overlap, same / len(deciding) if deciding else 0.0), DIGITS)


def score_domains(scored: Sequence[ScoredDocument], scorer: Scorer, seed: int) -> tuple[Domain, ...]:
    """Return the scores of each domain, sorted by name; empty if there is only one domain."""
    domains = group_by(scored, lambda item: item.domain)
    rows = []
    for name in sorted(domains) if len(domains) > 1 else ():
        by_query = [*group_by(domains[name], lambda item: item.query).values()]
        own = summarise_scores(by_query, FAITHFULNESS, seed).mean if scorer.own else None
        outside = summarise_scores(by_query, FACTUALITY, seed) if scorer.independent else None
        figures = (outside.mean, outside.unknown) if outside else (None, 0)
        rows.append(Domain(name, len(by_query), own, *figures))
    return tuple(rows)


def find_lowest(scored: Sequence[ScoredDocument], scorer: Scorer, count: int) -> tuple[AuditedDocument, ...]:
    """Return the `count` documents with the lowest ranking scores, lowest first, with the windows that decided them."""
    from kcard.selectors.factuality import verdicts

    what = FACTUALITY if scorer.independent else FAITHFULNESS
    judged = [item for item in scored if getattr(item, what) is not None]
    distinct: dict[tuple[str, str], ScoredDocument] = {}
    for item in sorted(judged, key=lambda item: getattr(item, what)):
        distinct.setdefault((item.query, item.text), item)
    chosen = [*distinct.values()][:count]
    # The window of each document's evidence that decided its score.
    evidence = [Pair(item.text, item.evidence.text if item.evidence else "") for item in chosen]
    windows = [verdict.window for verdict in verdicts(scorer.checker, evidence)]
    return tuple(
        AuditedDocument(
            item.query,
            item.domain,
            item.text,
            rounded(item.faithfulness),
            rounded(item.factuality),
            item.evidence,
            window,
        )
        for item, window in zip(chosen, windows, strict=True)
    )


# The default sampling of `kcard ask`.
TEMPERATURE = 0.1
TOKENS = 100


def read_or_make_queries(target: Target, path: Path | str | None, limit: int, seed: int) -> QuestionFile:
    """Return the queries of the file; without a file, those of an exam of the card's own corpus with this seed.

    Raises CardError if none can be made.
    """
    if path is not None:
        return read_queries(path)
    questions = make_questions(target.corpus, limit, seed) if target.corpus else []
    if not questions:
        raise CardError(
            f"card {target.card.name!r} carries no text to make questions from: pass queries with --queries FILE"
        )
    return QuestionFile(OWN, digest(questions), tuple(questions))


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

    independent, sampling = scorer.independent, Sampling(TEMPERATURE, TOKENS, seed=seed)
    texts = [query.text for query in queries.questions]
    generator, what = load_generator(target.card, models), f"asking {target.card.name}"
    rows = generate_documents(generator, texts, documents, sampling, what, scorer.on_event)
    # Score them, and summarise the scores query by query.
    scored = score_documents(queries.questions, rows, scorer, both=target.card.manifest.index)
    by_query = [*group_by(scored, lambda item: item.query).values()]
    return Audit(
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
        evidence=independent.name if independent else None,
        evidence_sha256=independent.sha256 if independent else None,
        evidence_shared=independent.shared if independent else 0,
        evidence_overlap=measure_overlap(scored, independent) if independent else None,
        evidence_notes=independent.notes if independent else (),
        faithfulness=summarise_scores(by_query, FAITHFULNESS, seed) if scorer.own else None,
        factuality=summarise_scores(by_query, FACTUALITY, seed) if independent else None,
        coverage=measure_coverage(by_query, seed) if independent else None,
        domains=score_domains(scored, scorer, seed),
        ranked_by=FACTUALITY if independent else FAITHFULNESS,
        worst=find_lowest(scored, scorer, worst),
    )


def make_finding(audit: Audit) -> "AuditFinding":
    """Return the audit as the hub stores it."""
    from kcard.hub.audits import AuditFinding

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
        coverage=audit.coverage.mean if audit.coverage else None,
        overlap=audit.evidence_overlap,
        judged=len(audit.factuality.scores) if audit.factuality else None,
        record=audit.to_json(),
        kcard=audit.kcard,
    )
