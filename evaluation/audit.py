"""The audit of a card: whether what it writes holds, by the evidence of others (Knowledge Card, figure 9).

An exam asks what a card knows and travels with it; whoever makes a card makes its exam. An audit is the hub's own: it
is taken by whoever is about to use the card, against evidence of their choice, and kept beside the version.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kcard
from kcard.answer import Passage
from kcard.cards.folder import write_atomically
from kcard.errors import CardError, UsageError
from kcard.evaluation.asking import check_device, written
from kcard.evaluation.audit_record import Audit
from kcard.evaluation.examinee import Examinee, find_published
from kcard.evaluation.independent import read_independent
from kcard.evaluation.judgement import Jury
from kcard.evaluation.progress import Progress, Report, silent
from kcard.evaluation.queries import Queries, of_corpus, read_queries
from kcard.evaluation.record import mean_of
from kcard.evaluation.scored import (
    FACTUALITY,
    FAITHFULNESS,
    by_domain,
    factuality,
    faithfulness,
    grouped,
    lowest,
    score,
)
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.hub.audits import AuditFinding
    from kcard.hub.registry import Hub
    from kcard.protocols import Checker

__all__ = ["audit"]

CHECKER = "minilm"
LIMIT = 200
DOCUMENTS = 3
# As cards write for `kcard ask`, unless told otherwise.
TEMPERATURE = 0.1
TOKENS = 100
WORST = 5


def audit(
    card: Path | str | Examinee,
    *,
    queries: Path | str | None = None,
    evidence: Path | str | Sequence[Path | str] = (),
    documents: int = DOCUMENTS,
    limit: int = LIMIT,
    seed: int = 0,
    checker: "Checker | str" = CHECKER,
    worst: int = WORST,
    device: str = "cpu",
    trust_remote_code: bool = False,
    output: Path | str | None = None,
    hub: "Hub | None" = None,
    report: Report | None = None,
) -> Audit:
    """Have a card write documents for queries and judge each; of a published card the audit is kept in the hub.

    card       a published card (name, name@v2), a draft's name or a folder; of these two nothing is kept
    queries    a file of queries (kcard.evaluation.queries); None: questions about its own corpus, as in an exam
    evidence   what factuality is measured against, independent of the card's corpus: files, folders, or a name
               such as wikipedia; without any, only faithfulness to its own corpus is measured
    documents  how many the card writes for each query
    limit      at most so many questions about its own corpus; of a file all are asked
    seed       of these questions, of what the card writes, and of the intervals
    checker    a registered checker or one of your own
    worst      so many of the documents with the lowest score are told, with their evidence
    device     where the card writes and the checker reads: cpu, cuda or cuda:N
    trust_remote_code  whether the checker's model may run the code that lies in its repository
    output     write the audit to this file too, as JSON
    report     called with Progress while it runs

    The same card, arguments and checker give the same audit. Raises UsageError for a wrong argument or file,
    CorpusError for evidence that can't be read, CardError where nothing can be asked, and what finding and loading
    the card raise. Nothing is stored then, nor after Ctrl-C.
    """
    from kcard.hub.registry import Hub

    _check({"documents": documents, "limit": limit}, worst, output)
    check_device(device)
    hub = Hub() if hub is None else hub
    found = card if isinstance(card, Examinee) else find_published(card, hub)
    asked = _queries(found, queries, limit, seed)
    jury, name = _jury(found, evidence, checker, device, trust_remote_code, report or silent)
    settings = _Settings(documents, limit, seed, worst, Sampling(TEMPERATURE, TOKENS, seed=seed), name)
    rows = written(
        found.card, [q.text for q in asked.queries], documents, settings.sampling, device, jury.report
    )
    made = _audited(found, asked, rows, jury, settings)
    if found.reference is not None:
        hub.audits.add(hub.get(found.reference), _finding(made))
    if output is not None:
        write_atomically(Path(output).expanduser(), made.to_json())
    return made


@dataclass(frozen=True)
class _Settings:
    documents: int
    limit: int
    seed: int
    worst: int
    sampling: Sampling
    checker: str


def _check(counts: Mapping[str, int], worst: int, output: Path | str | None) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be 1 or more, not {count}")
    if worst < 0:
        raise UsageError(f"worst must be 0 or more, not {worst}")
    if output is not None and not (folder := Path(output).expanduser().absolute().parent).is_dir():
        raise UsageError(f"output {output}: there is no folder {folder}")


def _queries(found: Examinee, path: Path | str | None, limit: int, seed: int) -> Queries:
    if path is not None:
        return read_queries(path)
    asked = of_corpus(found.corpus, limit, seed) if found.corpus else None
    if asked is None or not asked.queries:
        raise CardError(
            f"no question can be made of what travels with card {found.card.name!r}: give some with --queries FILE"
        )
    return asked


def _jury(
    found: Examinee,
    evidence: Path | str | Sequence[Path | str],
    checker: "Checker | str",
    device: str,
    trusted: bool,
    report: Report,
) -> tuple[Jury, str]:
    """Who judges, against what, and the checker's name."""
    from kcard.selectors import registry

    specs = [evidence] if isinstance(evidence, Path | str) else [*evidence]
    independent = read_independent(specs, found.digests)
    if isinstance(checker, str):
        loading = registry.Loading(device, trusted, report=lambda text: report(Progress(text, 0, 1)))
        judge, name = registry.checker(checker, loading), checker
    else:
        judge, name = checker, f"{type(checker).__module__}.{type(checker).__qualname__}"
    return Jury(judge, found.own_evidence if found.corpus else None, independent, report), name


def _audited(
    found: Examinee, asked: Queries, rows: Sequence[Sequence[Passage]], jury: Jury, settings: _Settings
) -> Audit:
    """Judge what was written and put it down."""
    seed, independent = settings.seed, jury.independent
    scored = score(asked.queries, rows, jury, both=found.card.manifest.index)
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
        temperature=settings.sampling.temperature,
        tokens=settings.sampling.tokens,
        checker=settings.checker,
        checker_sha256=getattr(jury.checker, "sha256", None),
        evidence=independent.name if independent else None,
        evidence_sha256=independent.sha256 if independent else None,
        evidence_shared=independent.shared if independent else 0,
        evidence_notes=independent.notes if independent else (),
        faithfulness=faithfulness(by_query, seed) if jury.own else None,
        factuality=factuality(by_query, seed) if independent else None,
        domains=by_domain(scored, jury, seed),
        ranked_by=FACTUALITY if independent else FAITHFULNESS,
        worst=lowest(scored, jury, settings.worst),
    )


def _finding(made: Audit) -> "AuditFinding":
    """The audit as the hub keeps it."""
    from kcard.hub.audits import AuditFinding

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
        record=made.to_json(),
    )
