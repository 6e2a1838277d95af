"""The documents of an audit with their two scores, which are never mixed, and what is made of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kcard.answer import Passage, Source
from kcard.evaluation.audit_record import AuditedDocument, Domain
from kcard.evaluation.independent import Independent
from kcard.evaluation.queries import AuditQuery
from kcard.evaluation.record import DIGITS, Distribution, Mean
from kcard.evaluation.scorer import Scorer
from kcard.protocols import Pair

__all__ = [
    "FACTUALITY",
    "FAITHFULNESS",
    "Scored",
    "by_domain",
    "coverage",
    "factuality",
    "faithfulness",
    "grouped",
    "lowest",
    "overlap",
    "score",
]

FAITHFULNESS, FACTUALITY = "faithfulness", "factuality"


@dataclass(frozen=True)
class Scored:
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
) -> list[Scored]:
    """Judge what was written, a row for each query; empty documents are left out.

    `both`: whether the card has a model and an index. `evidence` is that of the ranking score: factuality where
    the scorer has independent evidence, else faithfulness.
    """
    written = [
        (query, passage)
        for query, row in zip(queries, rows, strict=True)
        for passage in row
        if passage.text.strip()
    ]
    passages = [passage for _, passage in written]
    unjudged = [None] * len(passages)
    own, outside = scorer.faithfulness(passages), scorer.factuality(passages)
    return [
        Scored(
            query=query,
            text=passage.text,
            recited=not (both and passage.source is not None),
            faithfulness=faithful.faithfulness if faithful else None,
            factuality=factual.factuality if factual else None,
            evidence=ranking.evidence if (ranking := factual or faithful) else None,
        )
        for (query, passage), faithful, factual in zip(
            written, own or unjudged, outside or unjudged, strict=True
        )
    ]


def grouped(scored: Iterable[Scored], key: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    """The documents by `key`, in the order in which each key first comes."""
    found: dict[str, list[Scored]] = {}
    for item in scored:
        found.setdefault(key(item), []).append(item)
    return found


def faithfulness(by_query: Sequence[Sequence[Scored]], seed: int) -> Distribution:
    """The faithfulness of what the card recited."""
    return _distribution([[d.faithfulness for d in row if d.recited] for row in by_query], seed)


def factuality(by_query: Sequence[Sequence[Scored]], seed: int) -> Distribution:
    """The factuality of all that the card wrote."""
    return _distribution([[d.factuality for d in row] for row in by_query], seed)


def _distribution(rows: Sequence[Sequence[float | None]], seed: int) -> Distribution:
    """The mean is that of the queries' means, and is resampled query by query.

    Documents written for one query are much alike, and say less than as many of different ones.
    """
    known = [[value for value in row if value is not None] for row in rows]
    scores = tuple(round(value, DIGITS) for row in known for value in row)
    mean = Mean.of([sum(row) / len(row) for row in known if row], seed)
    return Distribution(scores, mean, sum(map(len, rows)) - len(scores))


def coverage(by_query: Sequence[Sequence[Scored]], seed: int) -> Mean | None:
    """The share of the documents that have a factuality; a mean over queries, as in `factuality`."""
    shares = [sum(d.factuality is not None for d in row) / len(row) for row in by_query if row]
    return Mean.of(shares, seed)


def overlap(scored: Sequence[Scored], independent: Independent) -> float:
    """How far the evidence repeats the card's corpus, in [0, 1]: as a whole, or in the texts that decided."""
    decided = [item.evidence for item in scored if item.factuality is not None and item.evidence is not None]
    same = sum(map(independent.own.repeats, decided))
    return round(max(independent.overlap, same / len(decided) if decided else 0.0), DIGITS)


def by_domain(scored: Sequence[Scored], scorer: Scorer, seed: int) -> tuple[Domain, ...]:
    """The scores of each domain, by name; none where there is only one, which is the whole."""
    domains = grouped(scored, lambda item: item.query.domain)
    if len(domains) < 2:
        return ()
    found = []
    for name in sorted(domains):
        by_query = [*grouped(domains[name], lambda item: item.query.text).values()]
        own = faithfulness(by_query, seed) if scorer.own else None
        outside = factuality(by_query, seed) if scorer.independent else None
        found.append(
            Domain(
                name,
                len(by_query),
                own.mean if own else None,
                outside.mean if outside else None,
                outside.unknown if outside else 0,
            )
        )
    return tuple(found)


def lowest(scored: Sequence[Scored], scorer: Scorer, count: int) -> tuple[AuditedDocument, ...]:
    """The documents with the lowest ranking score, lowest first, each once, with the window that decided it."""
    ranked = sorted(
        ((value, item) for item in scored if (value := _ranking(item, scorer)) is not None),
        key=lambda pair: pair[0],
    )
    each: dict[tuple[str, str], Scored] = {}
    for _, item in ranked:
        each.setdefault((item.query.text, item.text), item)
    chosen = [*each.values()][:count]
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
        for item, window in zip(chosen, _windows(chosen, scorer), strict=True)
    )


def _ranking(item: Scored, scorer: Scorer) -> float | None:
    return item.factuality if scorer.independent else item.faithfulness


def _windows(chosen: Sequence[Scored], scorer: Scorer) -> list[str]:
    """The part of each document's evidence that decided."""
    from kcard.selectors.verdicts import verdicts

    pairs = [Pair(item.text, item.evidence.text if item.evidence else "") for item in chosen]
    return [verdict.window for verdict in verdicts(scorer.checker, pairs)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
