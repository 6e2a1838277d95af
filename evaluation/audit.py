"""Audits: cards write for many queries, and each document is judged.

An exam asks what a card knows and travels with it; whoever makes a card makes its exam. An audit is the hub's own: it
is taken by whoever is about to use the card, against evidence of their choice, and kept beside the version.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import kcard
from kcard.errors import CardError, UsageError
from kcard.evaluation.questions import digest, make_questions
from kcard.evaluation.recall import Scorer, generate_documents
from kcard.evaluation.records import DIGITS, Audit, AuditedDocument, Distribution, Domain, Exam, Mean, mean_of
from kcard.evaluation.target import Target
from kcard.evaluation.tasks.base import read_entries
from kcard.hub.values import FLOOR, covers_enough, is_independent
from kcard.interfaces import Evidence, Pair
from kcard.io import Row, reading
from kcard.manifest import file_digest
from kcard.text import words
from kcard.types import Passage, Sampling, Source

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader
    from kcard.hub.audits import AuditFinding, StoredAudit

__all__ = [
    "FACTUALITY",
    "FAITHFULNESS",
    "AuditQueries",
    "AuditQuery",
    "AuditSettings",
    "IndependentEvidence",
    "OwnText",
    "PastAudit",
    "PastExam",
    "ScoredDocument",
    "SourcedScores",
    "by_domain",
    "coverage",
    "factuality",
    "faithfulness",
    "find_lowest",
    "find_scores",
    "group_by",
    "latest_exam",
    "make_finding",
    "make_queries",
    "origin",
    "overlap",
    "queries_for",
    "read_audits",
    "read_independent",
    "read_queries",
    "run_audit",
    "score",
]


# What an audit asks: the queries of a file, or questions about the card's own corpus, each with its domain.
#
# A file of queries is one of questions whose answers nobody needs to know:
#
#     {"question": "Who won the Senate race in Ohio?", "domain": "senate"}
#
# One such object a line (.jsonl), a list of them (.json), a table (.csv), or a question a line (.txt). The domain, or
# `relation`, is what scores are broken down by; it may be left out.

OWN = "own corpus"
TEXT = ("question", "query")
DOMAIN = ("domain", "relation")


@dataclass(frozen=True)
class AuditQuery:
    """`domain`: the file's `domain` or `relation`; of a question about the corpus the file that it was made of."""

    text: str
    domain: str = ""


@dataclass(frozen=True)
class AuditQueries:
    """Queries, none twice, and the digest that names them."""

    name: str
    sha256: str
    queries: tuple[AuditQuery, ...]

    @property
    def own(self) -> bool:
        """Whether they were made of the card's own corpus."""
        return self.name == OWN


def make_queries(corpus: Sequence[Source], limit: int, seed: int) -> AuditQueries:
    """Make at most `limit` questions about the corpus, the same as an exam with this seed."""
    questions = make_questions(corpus, limit, seed)
    return AuditQueries(OWN, digest(questions), tuple(AuditQuery(q.text, q.file) for q in questions))


def read_queries(path: Path | str) -> AuditQueries:
    """Read the queries of a file; a query that occurs twice is asked once, in its first domain.

    Raises UsageError, naming file and line, for what is missing, of another kind or malformed, and for no query.
    """
    path = Path(path).expanduser()
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
    queries: dict[str, AuditQuery] = {}
    for where, entry in rows:
        text = next((entry[key] for key in TEXT if key in entry), None)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f'{where}: expected a "question" that is a text')
        domain = next((entry[key] for key in DOMAIN if entry.get(key) is not None), "")
        if not isinstance(domain, str):
            raise UsageError(f'{where}: "domain" must be a text, not {type(domain).__name__}')
        query = AuditQuery(text.strip(), domain.strip())
        queries.setdefault(query.text, query)
    if not queries:
        raise UsageError(
            f'queries {path}: none in it; expected a "question", and a "domain" where it has one'
        )
    return AuditQueries(path.name, file_digest(path), tuple(queries.values()))


# Independent evidence: texts from outside a card's corpus, by name and content, and how far they repeat it.

RUN = 8  # words
SAMPLE = 2000  # passages of a corpus whose words are compared: a run is a number in memory


class OwnText:
    """The corpus of a card, recognised in other texts: by the hashes of its passages, and by runs of eight words.

    digests   of its passages or statements (kcard.text.passage_digest)
    passages  their text, as far as it is at hand; of more than 2000 as many that are evenly spread

    `repeats` remembers what it saw, so that `share` says how much of the corpus stood in the texts so far.
    """

    def __init__(self, digests: Iterable[str], passages: Sequence[Source] = ()) -> None:
        self._digests = frozenset(digests)
        step = max(1, -(-len(passages) // SAMPLE))
        self._passages = [frozenset(_runs(source.text)) for source in passages[::step]]
        self._runs = frozenset[int]().union(*self._passages)
        self._seen = set[int]()
        self._same = 0

    def repeats(self, text: Source) -> bool:
        """Return whether it is a passage of the corpus, or shares half of its runs with the corpus."""
        from kcard.training.corpus import is_known

        runs = _runs(text.text)
        shared = runs & self._runs
        self._seen |= shared
        same = is_known(text, self._digests)
        self._same += same
        return same or len(shared) * 2 > len(runs)

    @property
    def share(self) -> float:
        """The share of the corpus' passages that stood in the texts so far, at least half of their runs; in [0, 1]."""
        if not self._passages:
            return min(1.0, self._same / len(self._digests)) if self._digests else 0.0
        there = sum(2 * len(runs & self._seen) > len(runs) for runs in self._passages)
        return there / len(self._passages)


@dataclass(frozen=True)
class IndependentEvidence:
    """Evidence that a card was not made of, as far as can be seen.

    shared   how many of its texts repeat the card's corpus; 0 where they lie elsewhere
    overlap  the share of its texts that do, or of the corpus that they repeat, whichever is more; in [0, 1]
    own      recognises the card's corpus in a text
    notes    what the user should know of it
    """

    name: str
    sha256: str
    evidence: Evidence
    shared: int
    overlap: float
    own: OwnText
    notes: tuple[str, ...] = ()


def read_independent(
    specs: Sequence[Path | str], digests: Iterable[str], passages: Sequence[Source] = ()
) -> IndependentEvidence | None:
    """Return all that the specs name (files, folders, registered evidence) as one evidence; None for no specs.

    digests   those of the card's corpus (kcard.text.passage_digest), of its passages or of its statements
    passages  its text, where that is at hand

    Raises CorpusError and UsageError as open_evidence does, and UsageError where every text is the card's own: that
    would be faithfulness. Texts that don't lie here can't be compared before they are found.
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
            f"evidence {name}: every text in it is a passage of the card's own corpus, which faithfulness is "
            "measured on: give text from elsewhere"
        )
    own = OwnText(own_digests, passages)
    shared = sum(own.repeats(source) for source in texts.values())
    overlap = max(own.share, shared / len(texts)) if texts else 0.0
    notes = tuple(note for part in parts for note in getattr(part, "notes", ()))
    whole = parts[0] if len(parts) == 1 else Union(parts)
    # The digest of one evidence is its own; of several it is that of theirs, one a line.
    named = [part.digest for part in parts]
    sha256 = named[0] if len(named) == 1 else hashlib.sha256("\n".join(named).encode()).hexdigest()
    return IndependentEvidence(name, sha256, whole, shared, overlap, own, notes)


def _runs(text: str) -> set[int]:
    """Return hashes of every run of eight words; a shorter text is one run."""
    tokens = words(text)
    return {hash(tuple(tokens[at : at + RUN])) for at in range(max(1, len(tokens) - RUN + 1))}


# The documents of an audit with their two scores, which are never mixed, and what is made of them.

FAITHFULNESS, FACTUALITY = "faithfulness", "factuality"


@dataclass(frozen=True)
class ScoredDocument:
    """One document. `recited`: the card's model wrote it, or the card only looks up.

    What the index of a card of both wrote are the corpus' own words: faithful, which says nothing of its model. So
    its faithfulness does not count; its factuality does. A score is None where no evidence covers the document.
    """

    query: AuditQuery
    text: str
    recited: bool
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None


def score(
    queries: Sequence[AuditQuery], rows: Sequence[Sequence[Passage]], scorer: Scorer, both: bool
) -> list[ScoredDocument]:
    """Judge what was written, a row for each query; empty documents are left out.

    `both`: whether the card has a model and an index. `evidence` is that of the ranking score: factuality where
    the scorer has independent evidence, else faithfulness.
    """
    documents = [
        (query, passage)
        for query, row in zip(queries, rows, strict=True)
        for passage in row
        if passage.text.strip()
    ]
    passages = [passage for _, passage in documents]
    unjudged = [None] * len(passages)
    own, outside = scorer.faithfulness(passages), scorer.factuality(passages)
    return [
        ScoredDocument(
            query=query,
            text=passage.text,
            recited=not (both and passage.source is not None),
            faithfulness=faithful.faithfulness if faithful else None,
            factuality=factual.factuality if factual else None,
            evidence=ranking.evidence if (ranking := factual or faithful) else None,
        )
        for (query, passage), faithful, factual in zip(
            documents, own or unjudged, outside or unjudged, strict=True
        )
    ]


def group_by(
    scored: Iterable[ScoredDocument], key: Callable[[ScoredDocument], str]
) -> dict[str, list[ScoredDocument]]:
    """Group the documents by `key`, in the order in which each key first occurs."""
    groups: dict[str, list[ScoredDocument]] = {}
    for item in scored:
        groups.setdefault(key(item), []).append(item)
    return groups


def faithfulness(by_query: Sequence[Sequence[ScoredDocument]], seed: int) -> Distribution:
    """Return the faithfulness of what the card recited."""
    return _distribution([[d.faithfulness for d in row if d.recited] for row in by_query], seed)


def factuality(by_query: Sequence[Sequence[ScoredDocument]], seed: int) -> Distribution:
    """Return the factuality of all that the card wrote."""
    return _distribution([[d.factuality for d in row] for row in by_query], seed)


def _distribution(rows: Sequence[Sequence[float | None]], seed: int) -> Distribution:
    """Return the scores and their mean, which is the mean of the queries' means and is resampled query by query.

    Documents written for one query are much alike, and say less than as many of different ones.
    """
    judged = [[value for value in row if value is not None] for row in rows]
    scores = tuple(round(value, DIGITS) for row in judged for value in row)
    mean = Mean.of([sum(row) / len(row) for row in judged if row], seed)
    return Distribution(scores, mean, sum(map(len, rows)) - len(scores))


def coverage(by_query: Sequence[Sequence[ScoredDocument]], seed: int) -> Mean | None:
    """Return the share of the documents that have a factuality; a mean over queries, as in `factuality`."""
    shares = [sum(d.factuality is not None for d in row) / len(row) for row in by_query if row]
    return Mean.of(shares, seed)


def overlap(scored: Sequence[ScoredDocument], independent: IndependentEvidence) -> float:
    """Return how far the evidence repeats the card's corpus, in [0, 1]: as a whole, or in the texts that decided
    scores."""
    decided = [item.evidence for item in scored if item.factuality is not None and item.evidence is not None]
    same = sum(map(independent.own.repeats, decided))
    return round(max(independent.overlap, same / len(decided) if decided else 0.0), DIGITS)


def by_domain(scored: Sequence[ScoredDocument], scorer: Scorer, seed: int) -> tuple[Domain, ...]:
    """Return the scores of each domain, by name; none where there is only one, which is the whole."""
    domains = group_by(scored, lambda item: item.query.domain)
    if len(domains) < 2:
        return ()
    rows = []
    for name in sorted(domains):
        by_query = [*group_by(domains[name], lambda item: item.query.text).values()]
        own = faithfulness(by_query, seed) if scorer.own else None
        outside = factuality(by_query, seed) if scorer.independent else None
        rows.append(
            Domain(
                name,
                len(by_query),
                own.mean if own else None,
                outside.mean if outside else None,
                outside.unknown if outside else 0,
            )
        )
    return tuple(rows)


def find_lowest(scored: Sequence[ScoredDocument], scorer: Scorer, count: int) -> tuple[AuditedDocument, ...]:
    """Return the documents with the lowest ranking score, lowest first, each once, with the window that decided it."""
    from kcard.selectors.factuality import verdicts

    ranking = ((item.factuality if scorer.independent else item.faithfulness, item) for item in scored)
    ranked = sorted(((value, item) for value, item in ranking if value is not None), key=lambda pair: pair[0])
    each: dict[tuple[str, str], ScoredDocument] = {}
    for _, item in ranked:
        each.setdefault((item.query.text, item.text), item)
    chosen = [*each.values()][:count]
    # The part of each document's evidence that decided.
    evidence = [Pair(item.text, item.evidence.text if item.evidence else "") for item in chosen]
    windows = [verdict.window for verdict in verdicts(scorer.checker, evidence)]
    return tuple(
        AuditedDocument(
            item.query.text,
            item.query.domain,
            item.text,
            _rounded(item.faithfulness),
            _rounded(item.factuality),
            item.evidence,
            window,
        )
        for item, window in zip(chosen, windows, strict=True)
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


# The audits that a hub keeps of a card, read back, and which number of which source is shown.


@dataclass(frozen=True)
class PastAudit:
    """An audit, the number of the version that it is about, and when it was taken, in UTC."""

    version: int
    taken: datetime
    audit: Audit

    def comparable(self, other: "PastAudit") -> bool:
        """Return whether their scores may be compared: the same checker, evidence and queries."""
        mine, its = self.audit, other.audit
        return (mine.checker, mine.checker_sha256, mine.evidence_sha256, mine.queries_sha256) == (
            its.checker,
            its.checker_sha256,
            its.evidence_sha256,
            its.queries_sha256,
        )


@dataclass(frozen=True)
class PastExam:
    """An exam that the hub took, the number of the version that it is about, and when it was taken, in UTC."""

    version: int
    taken: datetime
    exam: Exam


@dataclass(frozen=True)
class SourcedScores:
    """Scores and where they come from: `against` names the evidence; `taken`: when this hub measured them, in UTC.

    `taken` is None for what the card's own exam says. `coverage`: the share of the documents that have a score, in
    [0, 1]; None where it was not measured. `independent`: whether the evidence is not the card's own corpus.
    """

    scores: Distribution
    against: str
    taken: datetime | None = None
    coverage: float | None = None
    independent: bool = True

    @property
    def source(self) -> Literal["verified", "self-declared"]:
        return "self-declared" if self.taken is None else "verified"

    @property
    def origin(self) -> str:
        """The source with its day."""
        return origin(self.taken)


def origin(taken: datetime | None) -> str:
    """Describe where a figure comes from: measured by the hub at that time, or declared in the card's own exam."""
    return (
        "self-declared, in the card's exam" if taken is None else f"verified by this hub on {taken:%Y-%m-%d}"
    )


def read_audits(stored: Sequence["StoredAudit"]) -> tuple[tuple[PastAudit, ...], str]:
    """Return the audits in the order in which they were stored, and why some can't be read; empty where all can.

    Second audits after an appeal are left out: an administrator judges them.
    """
    audits, problem = [], ""
    for row in stored:
        if row.finding.kind != "audit":
            continue
        try:
            audit = Audit.from_json(row.finding.record, _where("audit", row))
        except CardError as error:
            problem = str(error)  # one foreign record must not hide the others
        else:
            audits.append(PastAudit(row.version, row.taken, audit))
    return tuple(audits), problem


def latest_exam(stored: Sequence["StoredAudit"], version: int) -> PastExam | None:
    """Return the latest exam that the hub took of a version; None without one that can be read."""
    for row in reversed(stored):
        if row.finding.kind == "exam" and row.version == version:
            try:
                return PastExam(version, row.taken, Exam.from_json(row.finding.record, _where("exam", row)))
            except CardError:
                continue
    return None


def find_scores(
    what: Literal["faithfulness", "factuality"],
    audits: Sequence[PastAudit],
    taken: PastExam | None,
    declared: Exam | None,
    floor: float = FLOOR,
) -> SourcedScores | None:
    """Return the scores of one version: those of its latest audit that has them, else of the hub's exam, else of its
    own.

    For factuality the latest audit counts whose evidence is independent and covers at least `floor` of the documents;
    without one the latest with independent evidence, else the latest.

    The hub decides by the same number whether the card is quarantined (kcard.hub.values).
    """
    ordered = audits
    if what == "factuality":

        def weight(past: PastAudit) -> tuple[bool, bool]:
            coverage = past.audit.coverage.mean if past.audit.coverage else None
            return past.audit.independent, covers_enough(coverage, floor)

        ordered = sorted(audits, key=weight)
    for past in reversed(ordered):
        scores: Distribution | None = getattr(past.audit, what)
        if scores is not None and scores.mean is not None:
            sourced = SourcedScores(scores, _against(what, past.audit.evidence), past.taken)
            if what == "faithfulness":
                return sourced
            covered = past.audit.coverage.mean if past.audit.coverage else None
            return replace(sourced, coverage=covered, independent=past.audit.independent)
    for exam, at in ((taken.exam, taken.taken) if taken else (None, None), (declared, None)):
        scores = getattr(exam, what) if exam else None
        if exam is not None and scores is not None:
            sourced = SourcedScores(scores, _against(what, exam.evidence), at)
            if what == "faithfulness":
                return sourced
            independent = is_independent(exam.evidence_overlap)
            return replace(sourced, coverage=scores.coverage, independent=independent)
    return None


def _where(what: str, row: "StoredAudit") -> str:
    return f"the {what} of {row.reference} at {row.taken:%Y-%m-%d}"


def _against(what: str, evidence: str | None) -> str:
    return "own corpus" if what == "faithfulness" else evidence or ""


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


def queries_for(target: Target, path: Path | str | None, limit: int, seed: int) -> AuditQueries:
    """Return the queries of the file, or questions about the card's own corpus. Raises CardError where there are
    none."""
    if path is not None:
        return read_queries(path)
    queries = make_queries(target.corpus, limit, seed) if target.corpus else None
    if queries is None or not queries.queries:
        raise CardError(
            f"no question can be made of what travels with card {target.card.name!r}: give some with --queries FILE"
        )
    return queries


def run_audit(target: Target, queries: AuditQueries, scorer: Scorer, settings: AuditSettings) -> Audit:
    """Have the card write, and judge each document."""
    seed, independent = settings.seed, scorer.independent
    sampling = Sampling(TEMPERATURE, TOKENS, seed=seed)
    texts = [query.text for query in queries.queries]
    rows = generate_documents(
        target.card, texts, settings.documents, sampling, settings.models, scorer.report
    )
    scored = score(queries.queries, rows, scorer, both=target.card.manifest.index)
    by_query = [*group_by(scored, lambda item: item.query.text).values()]
    return Audit(
        card=target.reference or target.card.name,
        kcard=kcard.__version__,
        queries=queries.name,
        queries_sha256=queries.sha256,
        asked=len(queries.queries),
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
        worst=find_lowest(scored, scorer, settings.worst),
    )


def make_finding(audit: Audit) -> "AuditFinding":
    """Return the audit in the form in which the hub keeps it."""
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
