"""Exams: questions about a card's own corpus and about what is not in it.

An exam asks about the corpus as people would, in other words than the corpus' own, and about things that are not in it.
It judges passages, not an LLM's answers: no LLM takes part.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import kcard
from kcard.cards.card import Card
from kcard.errors import CardError, HubError, UsageError
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, QuestionFile, digest, make_questions
from kcard.evaluation.recall import (
    CHANCE,
    BaseAnswers,
    Report,
    Rows,
    Scorer,
    ask,
    ask_base,
    chance_recall,
    judge_answered,
    score_recall,
    silent,
)
from kcard.evaluation.records import DIGITS, Distribution, EvalRun, Exam, Judged, Mean, read_exam
from kcard.evaluation.target import Target, find
from kcard.offline.pseudo_queries import entities
from kcard.text import is_english
from kcard.types import Passage, Source, derive_seed

__all__ = [
    "LIMIT",
    "JudgedRun",
    "Sitting",
    "advice",
    "check_exam",
    "evaluate_questions",
    "examine",
    "is_smaller",
    "make_unanswerable",
    "nothing_to_ask",
    "questions_of",
    "recall",
    "take_exam",
]


# Questions that a corpus does not answer, to see whether that is admitted: its own questions about somebody or
# something that is not in it, and questions on quite other subjects.

_TABLES = tomllib.loads(Path(__file__).with_name("absent.toml").read_text(encoding="utf-8"))
INVENTED: dict[int, Sequence[str]] = {int(words): names for words, names in _TABLES["invented"].items()}
ELSEWHERE: Sequence[str] = _TABLES["elsewhere"]


def make_unanswerable(
    questions: Sequence[ExamQuestion], corpus: Iterable[Source], count: int, seed: int
) -> list[ExamQuestion]:
    """Return `count` questions without an answer: half like `questions` with another name, half on other subjects."""
    rng = Random(derive_seed(seed, "absent"))
    capitalised = {
        word.strip(".,;:()\"'") for source in corpus for word in source.text.split() if word[:1].isupper()
    }
    strange = [renamed for question in questions if (renamed := _renamed(question.text, capitalised, rng))]
    near = [ExamQuestion(text, ()) for text in list(dict.fromkeys(strange))[: (count + 1) // 2]]
    # The corpus may hold the answer to a question that shares a name with it.
    others = [
        text
        for text in ELSEWHERE
        if not any(word.strip("?") in capitalised for word in text.split()[1:] if word[:1].isupper())
    ]
    far = [ExamQuestion(text, ()) for text in rng.sample(others, min(len(others), count - len(near)))]
    return [*near, *far]


def _renamed(question: str, capitalised: Collection[str], rng: Random) -> str | None:
    """Return the question about somebody or something that is not in the corpus; None where it names nothing."""
    first = len(question.split(" ")[0])
    names = [(a, b) for a, b in entities(question) if a > first and question[a].isupper()]
    if not names:
        return None
    start, end = rng.choice(names)
    words = min(3, question[start:end].count(" ") + 1)
    invented = [name for name in INVENTED[words] if not any(part in capitalised for part in name.split())]
    before = question[:start].removesuffix("the ").removesuffix("The ")
    return f"{before}{rng.choice(invented)}{question[end:]}" if invented else None


# What a card must have reached in its exam: a number that is missing reaches nothing.


def check_exam(card: Card, least: Mapping[str, float | None]) -> None:
    """Raise HubError unless the card's exam found at least what `least` asks of recall and factuality.

    None asks nothing. The message says what was found, what is needed and how to measure. Raises UsageError
    for a threshold outside [0, 1].
    """
    for what, threshold in least.items():
        if threshold is None:
            continue
        if not 0 <= threshold <= 1:
            raise UsageError(f"min-{what} is {threshold}: it must be between 0 and 1")
        exam = read_exam(card.folder)
        # On the card's own corpus; on the given file where the corpus' text is not at hand.
        run = exam and (exam.own or exam.given)
        mean = None
        if run:
            factuality = run.factuality.mean if run.factuality else None
            mean = factuality if what == "factuality" else run.recall
        if mean is None:
            if exam is None:
                missing = "it has no exam"
            elif what == "factuality" and exam.evidence is None:
                missing = "its exam measured no factuality (no independent evidence was given)"
            else:
                missing = f"its exam found no {what}"
            measure = f"kcard exam {card.folder}" + (" --evidence PATH" if what == "factuality" else "")
            raise HubError(
                f"{card.name} is not published: {missing}, and {threshold:g} is needed; measure it "
                f"with `{measure}`"
            )
        if mean.mean < threshold:
            raise HubError(
                f"{card.name} is not published: its {what} is {mean.mean:g}, and {threshold:g} is needed; train it "
                f"longer or on more text, or ask for less with --min-{what}"
            )


# Which kind of card serves a corpus best, by its exam, and what leaving a part out would cost.

LITTLE = 0.02  # of recall


def advice(exam: Exam) -> str | None:
    """Advise, in a sentence, which parts a card of a model and an index needs; None for any other card."""
    own = exam.own
    if own is None or own.model is None or own.index is None or own.recall is None:
        return None
    both, model, index = own.recall.mean, own.model.mean, own.index.mean
    alone = f"its model alone recalls {model:.2f}, its index alone {index:.2f}, both {both:.2f}"
    summary = f"of {own.questions} questions {alone}"
    if both - index <= LITTLE and index >= model:
        return f"{summary}: an index alone (--kind retrieval) serves this corpus; without it {both - model:.2f} is lost"
    if both - model <= LITTLE:
        return f"{summary}: the model alone (--kind model) serves this corpus as well, where its text must not travel"
    return (
        f"{summary}: leaving the index out costs {both - model:.2f}, leaving the model out {both - index:.2f}"
    )


# One set of questions, asked: what was recalled, by what, above what, and how the documents were judged.


@dataclass(frozen=True)
class JudgedRun:
    """A run and every document that has a score, the best first: by factuality, or faithfulness without it."""

    run: EvalRun
    ranked: tuple[Judged, ...]


def evaluate_questions(
    name: str,
    sha256: str,
    questions: Sequence[ExamQuestion],
    rows: Rows,
    base: BaseAnswers,
    scorer: Scorer,
    *,
    both: bool,
    seed: int,
) -> JudgedRun:
    """Measure what was written (`rows`, one a question) in answer to these questions.

    asked, sha256  what they are and where they come from, as in EvalRun
    base           what recall is compared with; its rows are those of these questions
    both           whether the card has a model and an index: then each is measured alone too. Judged is what
                   the model wrote, since what the index wrote are the corpus' own words
    """
    hits = _hits(questions, rows)
    # What the base recalls, question by question; None where it could not be asked.
    floor: list[float] | None = None
    if base.rows is not None:
        floor = _hits(questions, base.rows)
    elif base.name == CHANCE and len(questions) >= 2:
        floor = chance_recall(questions, [[passage.text for passage in row] for row in rows])
    first = [row[0] for row in rows]
    retrieved = [[passage for passage in row if passage.source is not None] for row in rows]
    faithful, factual = scorer.faithfulness(first), scorer.factuality(first)
    run = EvalRun(
        asked=name,
        sha256=sha256,
        questions=len(questions),
        questions_sha256=digest(questions),
        recall=Mean.of(hits, seed),
        lift=None
        if floor is None
        else Mean.of([a - b for a, b in zip(hits, floor, strict=True)], seed, paired=True),
        base=None if floor is None else Mean.of(floor, seed),
        model=Mean.of(_hits(questions, [row[:1] for row in rows]), seed) if both else None,
        index=Mean.of(_hits(questions, retrieved), seed) if both else None,
        faithfulness=_distribution(faithful, seed),
        factuality=_distribution(factual, seed),
    )
    return JudgedRun(run, _ranked(questions, first, faithful, factual))


def _hits(questions: Sequence[ExamQuestion], rows: Rows) -> list[float]:
    return score_recall(questions, [[passage.text for passage in row] for row in rows])


def _distribution(judged: Sequence[Passage] | None, seed: int) -> Distribution | None:
    return None if judged is None else Distribution.of([passage.support for passage in judged], seed)


def _ranked(
    questions: Sequence[ExamQuestion],
    written: Sequence[Passage],
    faithful: Sequence[Passage] | None,
    factual: Sequence[Passage] | None,
) -> tuple[Judged, ...]:
    """Return every passage with a known ranking score, the best first; equal ones in the order asked."""
    ranking = faithful if factual is None else factual
    if ranking is None:
        return ()
    scored = [(passage.support, i) for i, passage in enumerate(ranking) if passage.support is not None]
    return tuple(
        Judged(
            question=questions[i].text,
            # The accepted answer that the text holds, else the first.
            answer=next(
                (a for a in questions[i].answers if substring(written[i].text, [a])), questions[i].answers[0]
            ),
            text=written[i].text,
            recalled=substring(written[i].text, questions[i].answers),
            faithfulness=_score(faithful, i),
            factuality=_score(factual, i),
            evidence=ranking[i].evidence,
        )
        for _, i in sorted(scored, key=lambda pair: (-pair[0], pair[1]))
    )


def _score(judged: Sequence[Passage] | None, at: int) -> float | None:
    score = None if judged is None else judged[at].support
    return None if score is None else round(score, DIGITS)


NATURAL = "natural questions"
HELD_OUT = "held-out forms"
ABSENT = 4  # questions on what is in the corpus for each on what is not
LIMIT = 100
SHOWN = 5


def examine(
    target: Target,
    question_file: QuestionFile | None,
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
    return take_exam(target, question_file, limit=limit, seed=seed, device=device, report=scorer.report).exam(
        scorer, checker
    )


def take_exam(
    target: Target,
    question_file: QuestionFile | None,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    device: str = "cpu",
    report: Report | None = None,
) -> "Sitting":
    """Ask the card, and the base that it was made from, the questions of its exam."""
    own = make_questions(target.corpus, limit, seed) if target.corpus else []
    # What is not in the corpus is asked in English alone, which the reader knows that judges the answers.
    count = -(-len(own) // ABSENT) if is_english(target.card.manifest.language) else 0
    strange = make_unanswerable(own, target.corpus, count, seed) if count else []
    paper = _Paper(own, question_file, strange, limit, seed)
    last = len(paper.questions) - len(paper.unanswerable)
    rows = ask(target.card, paper.questions, seed, device, report or silent)
    base = ask_base(target.card, paper.questions[:last], seed, device, report or silent)
    return Sitting(target, paper, rows, base)


def is_smaller(target: Target, exam: Exam) -> bool:
    """Return whether an exam has fewer questions than the one that the card has, so that it does not replace it."""
    try:
        last = read_exam(target.card.folder)
    except CardError:  # half of one, of an exam that was killed
        return False
    return last is not None and last.own is not None and exam.limit < last.limit


def recall(
    card: Path | str,
    questions: Sequence[ExamQuestion],
    *,
    seed: int = 0,
    device: str = "cpu",
    report: Report | None = None,
) -> Mean | None:
    """Measure a card's recall on questions that were made for another one, such as `questions_of` its last version.

    Nothing is written. None for no questions. Raises what finding and loading the card raise.
    """
    rows = ask(find(card).card, questions, seed, device, report or silent)
    return Mean.of(score_recall(questions, [[passage.text for passage in row] for row in rows]), seed)


def questions_of(card: Path | str, corpus: Path | str | None = None) -> list[ExamQuestion]:
    """Return the questions that the card was asked about its own corpus, or would be where it has no exam yet.

    They are made again from its passages (or from `corpus`, where only hashes travel with it), so that another
    card can be asked the same. Raises CardError where they are not what the exam asked.
    """
    target = find(card, corpus)
    if not target.corpus:
        raise CardError(nothing_to_ask(target))
    taken = read_exam(target.card.folder)
    if taken is None or taken.own is None:
        return make_questions(target.corpus, LIMIT, 0)
    questions = make_questions(target.corpus, taken.limit, taken.seed)
    if digest(questions) != taken.own.questions_sha256:
        raise CardError(
            f"the exam of {target.card.name} was taken with kcard {taken.kcard}, whose questions differ: examine the "
            "card again (kcard exam)"
        )
    return questions


@dataclass(frozen=True)
class _Paper:
    """What is asked: questions about the card's own corpus, those of a file, and some on what is not in the corpus."""

    own: Sequence[ExamQuestion]
    file: QuestionFile | None
    unanswerable: Sequence[ExamQuestion]
    limit: int
    seed: int

    @property
    def questions(self) -> list[ExamQuestion]:
        return [*self.own, *(self.file.questions if self.file else ()), *self.unanswerable]


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
        """Explain why a card of both is better off without its model; empty where the model recalls about as much as
        the index.

        It is worse where the 95 % interval of the difference, question by question, lies above 0.
        """
        own, seed = self.paper.own, self.paper.seed
        texts = [[passage.text for passage in row] for row in self.rows[: len(own)]]
        model, index = (
            score_recall(own, [row[:1] for row in texts]),
            score_recall(own, [row[1:] for row in texts]),
        )
        lead = Mean.of([a - b for a, b in zip(index, model, strict=True)], seed, paired=True)
        if lead is None or lead.low <= 0:
            return ""
        means = sum(model) / len(own), sum(index) / len(own)
        return f"of {len(own)} questions the model recalls {means[0]:.2f} and the index {means[1]:.2f}"

    def of_index(self, card: Card) -> "Sitting":
        """Return the answers of the index alone, which is what is left in `card`."""
        rows = [row[1:] for row in self.rows]
        return replace(self, target=replace(self.target, card=card), rows=rows, base=BaseAnswers(CHANCE))

    def exam(self, scorer: Scorer, checker: str) -> tuple[Exam, list[str]]:
        """Judge the answers. Returns the exam and the questions that were answered right: see `examine`."""
        target, paper, rows, base = self.target, self.paper, self.rows, self.base
        card, seed, count = target.card, paper.seed, len(paper.own)
        last = len(paper.questions) - len(paper.unanswerable)
        measure = partial(evaluate_questions, scorer=scorer, both=card.manifest.index, seed=seed)
        own = on_file = None
        if target.corpus:
            corpus = card.manifest.training.corpus_sha256
            form = HELD_OUT if sum(q.gap for q in paper.own) > count / 2 else NATURAL
            own = measure(form, corpus, paper.own, rows[:count], base.part(0, count))
        if (file := paper.file) is not None:
            on_file = measure(file.name, file.sha256, file.questions, rows[count:last], base.part(count))
        if own is not None and paper.unanswerable:
            hits = judge_answered(
                [*paper.own, *paper.unanswerable], [*rows[:count], *rows[last:]], scorer.report
            )
            own = replace(
                own,
                run=replace(
                    own.run,
                    answered=Mean.of(hits[:count], seed),
                    absent=len(paper.unanswerable),
                    admitted=Mean.of([1 - hit for hit in hits[count:]], seed),
                ),
            )
        quoted = own.ranked if own and target.shares_text else ()
        evidence = scorer.independent
        exam = Exam(
            card=card.name,
            kcard=kcard.__version__,
            own=own.run if own else None,
            given=on_file.run if on_file else None,
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
        questions = paper.questions[:last]
        right = score_recall(questions, [[passage.text for passage in row] for row in rows[:last]])
        return exam, [q.text for q, hit in zip(questions, right, strict=True) if hit and not q.gap]


def nothing_to_ask(target: Target) -> str:
    """Explain why no question about the card's corpus can be made, with the remedy."""
    name, remedy = target.card.name, "give questions of your own with --questions FILE"
    if target.shares_text:
        return f"card {name!r} carries no passages, so no question about its corpus can be made: {remedy}"
    return (
        f"card {name!r} carries only hashes of its passages, so no question about its corpus can be made: give the "
        f"text again with --corpus PATH, or {remedy}"
    )
