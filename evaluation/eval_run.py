"""One set of questions, asked: what was recalled, by what, above what, and how the documents were judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.evaluation.asking import BaseAnswers, Rows
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import Question, digest
from kcard.evaluation.recall import CHANCE, chance, recalled
from kcard.evaluation.record import DIGITS, Distribution, EvalRun, Judged, Mean
from kcard.evaluation.scorer import Scorer

__all__ = ["Evaluated", "evaluated"]


@dataclass(frozen=True)
class Evaluated:
    """A run and every document that has a score, the best first: by factuality, or faithfulness without it."""

    run: EvalRun
    ranked: tuple[Judged, ...]


def evaluated(
    asked: str,
    sha256: str,
    questions: Sequence[Question],
    rows: Rows,
    base: BaseAnswers,
    scorer: Scorer,
    *,
    both: bool,
    seed: int,
) -> Evaluated:
    """Measure what was written (`rows`, one a question) in answer to these questions.

    asked, sha256  what they are and where they come from, as in EvalRun
    base           what recall is compared with; its rows are those of these questions
    both           whether the card has a model and an index: then each is measured alone too. Judged is what
                   the model wrote, since what the index wrote are the corpus' own words
    """
    hits = _hits(questions, rows)
    floor = _floor(questions, rows, base)
    first = [row[0] for row in rows]
    faithful, factual = scorer.faithfulness(first), scorer.factuality(first)
    run = EvalRun(
        asked=asked,
        sha256=sha256,
        questions=len(questions),
        questions_sha256=digest(questions),
        recall=Mean.of(hits, seed),
        lift=None
        if floor is None
        else Mean.of([a - b for a, b in zip(hits, floor, strict=True)], seed, paired=True),
        base=None if floor is None else Mean.of(floor, seed),
        model=Mean.of(_hits(questions, [row[:1] for row in rows]), seed) if both else None,
        index=Mean.of(_hits(questions, [_looked_up(row) for row in rows]), seed) if both else None,
        faithfulness=_distribution(faithful, seed),
        factuality=_distribution(factual, seed),
    )
    return Evaluated(run, _ranked(questions, first, faithful, factual))


def _hits(questions: Sequence[Question], rows: Rows) -> list[float]:
    return recalled(questions, [[passage.text for passage in row] for row in rows])


def _floor(questions: Sequence[Question], rows: Rows, base: BaseAnswers) -> list[float] | None:
    """What the base recalls, question by question; None where it could not be asked."""
    if base.rows is not None:
        return _hits(questions, base.rows)
    if base.name != CHANCE or len(questions) < 2:
        return None
    return chance(questions, [[passage.text for passage in row] for row in rows])


def _looked_up(row: Sequence[Passage]) -> list[Passage]:
    return [passage for passage in row if passage.source is not None]


def _distribution(judged: Sequence[Passage] | None, seed: int) -> Distribution | None:
    return None if judged is None else Distribution.of([passage.support for passage in judged], seed)


def _ranked(
    questions: Sequence[Question],
    written: Sequence[Passage],
    faithful: Sequence[Passage] | None,
    factual: Sequence[Passage] | None,
) -> tuple[Judged, ...]:
    """Every passage with a known ranking score, the best first; equal ones in the order asked."""
    ranking = faithful if factual is None else factual
    if ranking is None:
        return ()
    known = [(passage.support, i) for i, passage in enumerate(ranking) if passage.support is not None]
    return tuple(
        Judged(
            question=questions[i].text,
            answer=_answer(questions[i], written[i].text),
            text=written[i].text,
            recalled=substring(written[i].text, questions[i].answers),
            faithfulness=_score(faithful, i),
            factuality=_score(factual, i),
            evidence=ranking[i].evidence,
        )
        for _, i in sorted(known, key=lambda pair: (-pair[0], pair[1]))
    )


def _answer(question: Question, text: str) -> str:
    """The accepted answer that the text holds, else the first."""
    return next((a for a in question.answers if substring(text, [a])), question.answers[0])


def _score(judged: Sequence[Passage] | None, at: int) -> float | None:
    score = None if judged is None else judged[at].support
    return None if score is None else round(score, DIGITS)
