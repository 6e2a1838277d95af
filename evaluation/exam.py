"""The exam of a card: what it recalls of its own corpus, and how far what it writes can be trusted.

It asks in question forms that training never uses, so recall is not the recitation of a prompt. It judges
passages, not an LLM's answers: no LLM takes part.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kcard import plugins
from kcard.answer import Passage, Source
from kcard.cards.folder import PASSAGES, Card, passages, write_atomically
from kcard.cards.pool import Pool
from kcard.errors import CardError, UsageError
from kcard.evaluation.metrics import substring
from kcard.evaluation.record import DIGITS, EXAM, Distribution, Exam, Judged, Mean
from kcard.manifest import Manifest, check_files, seal
from kcard.sampling import Sampling, derive_seed

if TYPE_CHECKING:
    from kcard.protocols import Checker
    from kcard.training.question_forms import Question

__all__ = ["exam"]

SHOWN = 5
TEXTS = 3
CHECKER = "minilm"
Report = Callable[[str], None]


@dataclass(frozen=True)
class _Independent:
    """Evidence from outside the card's corpus, by name and content."""

    name: str
    sha256: str
    sources: Sequence[Source]


def exam(
    folder: Path | str,
    *,
    evidence: Path | str | None = None,
    questions: "Sequence[Question] | None" = None,
    limit: int = 200,
    seed: int = 0,
    checker: "Checker | None" = None,
    device: str = "cpu",
    report: Report | None = None,
) -> Exam:
    """Examine the card in `folder`, write exam.json there and seal the folder again.

    evidence   a text file or folder, independent of the card's corpus, to measure factuality against
    questions  asked instead of a seeded sample of at most `limit` questions about the card's passages
    checker    by default the registered `minilm`
    device     where the card runs: cpu or cuda
    report     told in a sentence what comes next

    The same card, arguments and checker give the same numbers. Raises CardError where the folder is no card
    or holds no passages, CorpusError for evidence that can't be read.
    """
    if limit < 1:
        raise UsageError(f"limit must be 1 or more, not {limit}")
    say = report or _silent
    card = _open(Path(folder))
    if not (own := passages(card.folder)):
        raise CardError(f"card {card.name!r} has no {PASSAGES} to be examined on")
    independent = None if evidence is None else _independent(Path(evidence))
    asked = _sample(own, limit, seed) if questions is None else list(questions)
    say(f"asking {card.name} {len(asked)} questions")
    written = _write(card, [question.text for question in asked], seed, device)
    checker = checker or plugins.load("kcard.checkers", CHECKER)()
    say("checking what it wrote")
    faithful = _judge(written, own, card.name, checker)
    factual = None if independent is None else _judge(written, independent.sources, independent.name, checker)
    recalled = [substring(p.text, [q.answer]) for p, q in zip(written, asked, strict=True)]
    judged = _ranked(asked, recalled, faithful, factual)
    found = Exam(
        card=card.name,
        questions=len(asked),
        recall=Mean.of([float(hit) for hit in recalled], seed),
        faithfulness=Distribution.of([p.factuality for p in faithful], seed),
        factuality=None if factual is None else Distribution.of([p.factuality for p in factual], seed),
        checker=f"{type(checker).__module__}.{type(checker).__qualname__}",
        asked="forms held out of training" if questions is None else "given",
        seed=seed,
        evidence=None if independent is None else independent.name,
        evidence_sha256=None if independent is None else independent.sha256,
        corpus_sha256=card.manifest.training.corpus_sha256,
        ranked_by="faithfulness" if factual is None else "factuality",
        best=judged[:SHOWN],
        worst=judged[SHOWN:][-SHOWN:][::-1],
    )
    write_atomically(card.folder / EXAM, found.to_json())
    seal(card.folder, card.manifest)
    return found


def _open(folder: Path) -> Card:
    """The card, verified but for an earlier exam: one that was interrupted is simply written anew."""
    manifest = Manifest.read(folder)
    check_files(folder, replace(manifest, files={k: v for k, v in manifest.files.items() if k != EXAM}))
    return Card(folder, manifest)


def _sample(own: Sequence[Source], limit: int, seed: int) -> "list[Question]":
    """At most `limit` questions, no two alike, about passages drawn without replacement."""
    from kcard.training.question_forms import held_out
    from kcard.training.spans import Rarity

    order = sorted({source.text for source in own})
    Random(derive_seed(seed, "exam")).shuffle(order)
    rarity = Rarity(order)
    found: dict[str, Question] = {}
    for text in order:
        if len(found) == limit:
            break
        question = held_out(text, seed, rarity)
        if question is not None:
            found.setdefault(question.text, question)
    return [*found.values()]


def _independent(path: Path) -> _Independent:
    from kcard.selectors.sources import read_sources

    sources = read_sources(path)
    digest = hashlib.sha256("\n".join(source.text for source in sources).encode()).hexdigest()
    return _Independent(path.name, digest, sources)


def _write(card: Card, questions: Sequence[str], seed: int, device: str) -> list[Passage]:
    sampling = Sampling(temperature=0, seed=seed)
    return [row[0] for row in Pool([card], device).write(questions, [card.name], 1, sampling)]


def _judge(
    written: Sequence[Passage], sources: Sequence[Source], name: str, checker: "Checker"
) -> list[Passage]:
    """The passages with their factuality against `sources`. Nothing is pruned here, so s = s_fact."""
    from kcard.selectors.evidence import Corpus
    from kcard.selectors.factuality import judge

    evidence = Corpus(sources, name=name)
    return judge(
        written, {passage.card: evidence for passage in written}, checker, k=TEXTS, with_summary=False
    )


def _ranked(
    asked: "Sequence[Question]",
    recalled: Sequence[bool],
    faithful: Sequence[Passage],
    factual: Sequence[Passage] | None,
) -> tuple[Judged, ...]:
    """Every passage with a known ranking score, the best first; equal ones in the order asked."""
    ranking = faithful if factual is None else factual
    known = [(passage.factuality, i) for i, passage in enumerate(ranking) if passage.factuality is not None]
    return tuple(
        Judged(
            question=asked[i].text,
            answer=asked[i].answer,
            text=ranking[i].text,
            recalled=recalled[i],
            faithfulness=_rounded(faithful[i].factuality),
            factuality=None if factual is None else _rounded(factual[i].factuality),
            evidence=ranking[i].evidence,
        )
        for _, i in sorted(known, key=lambda pair: (-pair[0], pair[1]))
    )


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, DIGITS)


def _silent(text: str) -> None:
    """A report that goes nowhere."""
