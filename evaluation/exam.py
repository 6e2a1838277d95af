"""The exam of a card: what it recalls of its own corpus and of a given file, and how far it can be trusted.

It asks about the corpus as people would, in other words than the corpus' own, and about things that are not in it. It
judges passages, not an LLM's answers: no LLM takes part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import kcard
from kcard.errors import CardError
from kcard.evaluation.absent import absent
from kcard.evaluation.abstention import answered
from kcard.evaluation.asking import ask, ask_base
from kcard.evaluation.eval_run import evaluated
from kcard.evaluation.progress import Report, silent
from kcard.evaluation.question_file import QuestionFile
from kcard.evaluation.questions import Question, about, digest
from kcard.evaluation.recall import recalled
from kcard.evaluation.record import Exam, Mean, read_exam
from kcard.evaluation.scorer import Scorer
from kcard.evaluation.target import Target, find
from kcard.words import is_english

__all__ = ["examine", "is_smaller", "nothing_to_ask", "questions_of", "recall"]

NATURAL = "natural questions"
HELD_OUT = "held-out forms"
ABSENT = 4  # questions on what is in the corpus for each on what is not
LIMIT = 200
SHOWN = 5


def examine(
    found: Target,
    given: QuestionFile | None,
    scorer: Scorer,
    checker: str,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    device: str = "cpu",
) -> tuple[Exam, list[str]]:
    """Ask the card about its corpus, and what a file holds, and judge what it writes. `checker`: the scorer's name.

    Returns the exam and the questions that were answered right: what the card wrote holds an accepted answer.
    """
    return _taken(found, _paper(found, given, limit, seed), scorer, checker, device)


def is_smaller(found: Target, made: Exam) -> bool:
    """Whether an exam has fewer questions than the one that the card has, so that it does not replace it."""
    try:
        last = read_exam(found.card.folder)
    except CardError:  # half of one, of an exam that was killed
        return False
    return last is not None and last.own is not None and made.limit < last.limit


def recall(
    card: Path | str,
    questions: Sequence[Question],
    *,
    seed: int = 0,
    device: str = "cpu",
    report: Report | None = None,
) -> Mean | None:
    """What a card recalls of questions that were made for another one, such as `questions_of` its last version.

    Nothing is written. None for no questions. Raises what finding and loading the card raise.
    """
    rows = ask(find(card).card, questions, seed, device, report or silent)
    return Mean.of(recalled(questions, [[passage.text for passage in row] for row in rows]), seed)


def questions_of(card: Path | str, corpus: Path | str | None = None) -> list[Question]:
    """The questions that the card was asked about its own corpus, or would be where it has no exam yet.

    They are made again from its passages (or from `corpus`, where only hashes travel with it), so that another
    card can be asked the same. Raises CardError where they are not what the exam asked.
    """
    found = find(card, corpus)
    if not found.corpus:
        raise CardError(nothing_to_ask(found))
    taken = read_exam(found.card.folder)
    if taken is None or taken.own is None:
        return about(found.corpus, LIMIT, 0)
    made = about(found.corpus, taken.limit, taken.seed)
    if digest(made) != taken.own.questions_sha256:
        raise CardError(
            f"the exam of {found.card.name} was taken with kcard {taken.kcard}, whose questions differ: examine the "
            "card again (kcard exam)"
        )
    return made


@dataclass(frozen=True)
class _Paper:
    """What is asked: questions about the card's own corpus, those of a file, and some on what is not in the corpus."""

    own: Sequence[Question]
    given: QuestionFile | None
    absent: Sequence[Question]
    limit: int
    seed: int

    @property
    def questions(self) -> list[Question]:
        return [*self.own, *(self.given.questions if self.given else ()), *self.absent]


def _paper(found: Target, given: QuestionFile | None, limit: int, seed: int) -> _Paper:
    """What is not in the corpus is asked in English alone, which the reader knows that judges the answers."""
    own = about(found.corpus, limit, seed) if found.corpus else []
    english = is_english(found.card.manifest.language)
    count = -(-len(own) // ABSENT) if english else 0
    return _Paper(own, given, absent(own, found.corpus, count, seed) if count else [], limit, seed)


def _taken(found: Target, paper: _Paper, scorer: Scorer, checker: str, device: str) -> tuple[Exam, list[str]]:
    """Ask, measure and put down."""
    card, seed, count = found.card, paper.seed, len(paper.own)
    last = len(paper.questions) - len(paper.absent)
    rows = ask(card, paper.questions, seed, device, scorer.report)
    base = ask_base(card, paper.questions[:last], seed, device, scorer.report)
    measure = partial(evaluated, scorer=scorer, both=card.manifest.index, seed=seed)
    own = given = None
    if found.corpus:
        corpus = card.manifest.training.corpus_sha256
        form = HELD_OUT if sum(q.gap for q in paper.own) > count / 2 else NATURAL
        own = measure(form, corpus, paper.own, rows[:count], base.part(0, count))
    if (file := paper.given) is not None:
        given = measure(file.name, file.sha256, file.questions, rows[count:last], base.part(count))
    if own is not None and paper.absent:
        hits = answered([*paper.own, *paper.absent], [*rows[:count], *rows[last:]], scorer.report)
        own = replace(
            own,
            run=replace(
                own.run,
                answered=Mean.of(hits[:count], seed),
                absent=len(paper.absent),
                admitted=Mean.of([1 - hit for hit in hits[count:]], seed),
            ),
        )
    quoted = own.ranked if own and found.shares_text else ()
    evidence = scorer.independent
    exam = Exam(
        card=card.name,
        kcard=kcard.__version__,
        own=own.run if own else None,
        given=given.run if given else None,
        base=base.name,
        base_note=base.note,
        checker=checker,
        checker_sha256=getattr(scorer.checker, "sha256", None),
        evidence=evidence.name if evidence else None,
        evidence_sha256=evidence.sha256 if evidence else None,
        evidence_shared=evidence.shared if evidence else 0,
        seed=seed,
        limit=paper.limit,
        ranked_by="faithfulness" if evidence is None else "factuality",
        best=quoted[:SHOWN],
        worst=quoted[SHOWN:][-SHOWN:][::-1],
    )
    asked = paper.questions[:last]
    right = recalled(asked, [[passage.text for passage in row] for row in rows[:last]])
    return exam, [q.text for q, hit in zip(asked, right, strict=True) if hit and not q.gap]


def nothing_to_ask(found: Target) -> str:
    name, remedy = found.card.name, "give questions of your own with --questions FILE"
    if found.shares_text:
        return f"card {name!r} carries no passages, so no question about its corpus can be made: {remedy}"
    return (
        f"card {name!r} carries only hashes of its passages, so no question about its corpus can be made: give the "
        f"text again with --corpus PATH, or {remedy}"
    )
