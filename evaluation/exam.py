"""The exam of a card: what it recalls of its own corpus and of a given file, and how far it can be trusted.

It asks about the corpus as people would, in other words than the corpus' own, and about things that are not in it. It
judges passages, not an LLM's answers: no LLM takes part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import kcard
from kcard.cards.format.folder import Card
from kcard.errors import CardError
from kcard.evaluation.absent import absent
from kcard.evaluation.abstention import answered
from kcard.evaluation.asking import BaseAnswers, Rows, ask, ask_base
from kcard.evaluation.eval_run import evaluated
from kcard.evaluation.progress import Report, silent
from kcard.evaluation.question_file import QuestionFile
from kcard.evaluation.questions import Question, about, digest
from kcard.evaluation.recall import CHANCE, recalled
from kcard.evaluation.record import DIGITS, Exam, Mean, read_exam
from kcard.evaluation.scorer import Scorer
from kcard.evaluation.target import Target, find
from kcard.words import is_english

__all__ = ["LIMIT", "Sitting", "examine", "is_smaller", "nothing_to_ask", "questions_of", "recall", "sit"]

NATURAL = "natural questions"
HELD_OUT = "held-out forms"
ABSENT = 4  # questions on what is in the corpus for each on what is not
LIMIT = 100
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
    return sit(found, given, limit=limit, seed=seed, device=device, report=scorer.report).exam(
        scorer, checker
    )


def sit(
    found: Target,
    given: QuestionFile | None,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    device: str = "cpu",
    report: Report | None = None,
) -> "Sitting":
    """Ask the card, and the base that it was made from, the questions of its exam."""
    paper = _paper(found, given, limit, seed)
    last = len(paper.questions) - len(paper.absent)
    rows = ask(found.card, paper.questions, seed, device, report or silent)
    base = ask_base(found.card, paper.questions[:last], seed, device, report or silent)
    return Sitting(found, paper, rows, base)


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


@dataclass(frozen=True)
class Sitting:
    """What a card answered in an exam, before it is judged.

    rows  a document for each question of the paper; of a card of both its model's and then its index's
    base  what the base wrote for the same questions, without those on what is not in the corpus
    """

    target: Target
    paper: _Paper
    rows: Rows
    base: BaseAnswers

    def fault(self) -> str:
        """Why a card of both is better off without its model; empty where the model recalls about as much as the index.

        It is worse where the 95 % interval of the difference, question by question, lies above 0.
        """
        own, seed = self.paper.own, self.paper.seed
        texts = [[passage.text for passage in row] for row in self.rows[: len(own)]]
        model, index = recalled(own, [row[:1] for row in texts]), recalled(own, [row[1:] for row in texts])
        lead = Mean.of([a - b for a, b in zip(index, model, strict=True)], seed, paired=True)
        if lead is None or lead.low <= 0:
            return ""
        means = sum(model) / len(own), sum(index) / len(own)
        return f"of {len(own)} questions the model recalls {means[0]:.2f} and the index {means[1]:.2f}"

    def of_index(self, card: Card) -> "Sitting":
        """The answers of the index alone, which is what is left in `card`."""
        rows = [row[1:] for row in self.rows]
        return replace(self, target=replace(self.target, card=card), rows=rows, base=BaseAnswers(CHANCE))

    def exam(self, scorer: Scorer, checker: str) -> tuple[Exam, list[str]]:
        """The exam, and the questions that were answered right: see `examine`."""
        found, paper, rows, base = self.target, self.paper, self.rows, self.base
        card, seed, count = found.card, paper.seed, len(paper.own)
        last = len(paper.questions) - len(paper.absent)
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
            evidence_overlap=round(evidence.overlap, DIGITS) if evidence else 0.0,
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
