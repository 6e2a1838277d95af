"""Exams: questions about a card's own corpus, and questions that the corpus does not answer.

The questions are worded as people would ask them, not as the corpus puts it. An exam judges the documents that the card
generates; no LLM takes part.
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from kcard.cards.card import Card
from kcard.errors import CardError, HubError, UsageError
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, QuestionFile, digest, make_questions
from kcard.evaluation.recall import (
    CHANCE,
    BaseAnswers,
    Rows,
    Scorer,
    ask_base,
    ask_card,
    chance_recall,
    judge_answered,
    score_recall,
)
from kcard.evaluation.records import (
    DIGITS,
    Distribution,
    Exam,
    ExamRun,
    Judged,
    Mean,
    mean_of,
    read_exam,
    rounded,
)
from kcard.evaluation.target import Target
from kcard.events import OnEvent, ignore
from kcard.text import is_english
from kcard.training.embedded.pseudo_queries import entities
from kcard.types import Passage, Source, derive_seed
from kcard.version import __version__

# Questions that a corpus does not answer, to test whether the card's documents leave them unanswered: its own questions
# with an invented name, and questions about unrelated subjects.

_TABLES = tomllib.loads(Path(__file__).with_name("absent.toml").read_text(encoding="utf-8"))
INVENTED_NAMES: dict[int, Sequence[str]] = {int(words): names for words, names in _TABLES["invented"].items()}
ELSEWHERE_QUESTIONS: Sequence[str] = _TABLES["elsewhere"]


def make_unanswerable(
    questions: Sequence[ExamQuestion], corpus: Iterable[Source], count: int, seed: int
) -> list[ExamQuestion]:
    """Return `count` unanswerable questions: half are `questions` with an invented name, half about other subjects."""
    rng = Random(derive_seed(seed, "absent"))
    capitalised = set()
    for source in corpus:
        for word in source.text.split():
            if word[:1].isupper():
                capitalised.add(word.strip(".,;:()\"'"))
    renamed: dict[str, None] = {}
    for question in questions:
        text = _replace_name(question.text, capitalised, rng)
        if text is not None:
            renamed[text] = None
    near = list(renamed)[: (count + 1) // 2]
    # Questions that share a name with the corpus are left out, since it may answer them.
    others = []
    for text in ELSEWHERE_QUESTIONS:
        names = [word.strip("?") for word in text.split()[1:] if word[:1].isupper()]
        if capitalised.isdisjoint(names):
            others.append(text)
    far = rng.sample(others, min(len(others), count - len(near)))
    return [ExamQuestion(text, ()) for text in (*near, *far)]


def _replace_name(question: str, capitalised: Collection[str], rng: Random) -> str | None:
    """Replace a name in the question by one that is not in the corpus; None if the question contains no name."""
    first = len(question.split(" ")[0])
    names = [(a, b) for a, b in entities(question) if a > first and question[a].isupper()]
    if not names:
        return None
    start, end = rng.choice(names)
    words = min(3, question[start:end].count(" ") + 1)
    invented = []
    for name in INVENTED_NAMES[words]:
        if not any(part in capitalised for part in name.split()):
            invented.append(name)
    if not invented:
        return None
    before = question[:start].removesuffix("the ").removesuffix("The ")
    return f"{before}{rng.choice(invented)}{question[end:]}"


# Minimum exam results for publishing; a figure that was not measured fails its threshold.


def check_exam(card: Card, least: Mapping[str, float | None]) -> None:
    """Raise HubError unless the card's exam reaches the thresholds `least` of recall and factuality (None: no check).

    The message names the figure, the threshold and the command that measures it. Raises UsageError for a threshold
    outside [0, 1].
    """
    for what, threshold in least.items():
        if threshold is None:
            continue
        if not 0 <= threshold <= 1:
            raise UsageError(f"min-{what} is {threshold}: it must be between 0 and 1")
        exam = read_exam(card.folder)
        # The figures on the card's own corpus; without its text, those on the file of questions.
        run = exam and (exam.own or exam.given)
        figure: float | None = None
        if run and what == "factuality":
            figure = mean_of(run.factuality)
        elif run and run.recall:
            figure = run.recall.mean
        if figure is not None and figure >= threshold:
            continue
        if figure is not None:
            raise HubError(
                f"{card.name} is not published: its {what} is {figure:g}, but --min-{what} requires {threshold:g}; "
                f"train it longer or on more text, or lower --min-{what}"
            )
        missing = f"its exam has no {what}"
        if exam is None:
            missing = "it has no exam"
        elif what == "factuality" and exam.evidence is None:
            missing = "its exam measured no factuality (no independent evidence was given)"
        measure = f"kcard exam {card.folder}"
        if what == "factuality":
            measure += " --evidence PATH"
        raise HubError(
            f"{card.name} is not published: {missing}, but --min-{what} requires {threshold:g}; measure it with "
            f"`{measure}`"
        )


# Which kind of card suits a corpus, by its exam, and what dropping the model or the index would cost.

NEGLIGIBLE_RECALL = 0.02


def advise_on_kind(exam: Exam) -> str | None:
    """Return a sentence on whether a card of kind `both` needs both parts; None for cards of other kinds."""
    own = exam.own
    if own is None or own.model is None or own.index is None or own.recall is None:
        return None
    both, model, index = own.recall.mean, own.model.mean, own.index.mean
    alone = f"its model alone recalls {model:.2f}, its index alone {index:.2f}, both {both:.2f}"
    summary = f"of {own.questions} questions {alone}"
    if both - index <= NEGLIGIBLE_RECALL and index >= model:
        return f"{summary}: an index alone (--kind retrieval) serves this corpus; without it {both - model:.2f} is lost"
    if both - model <= NEGLIGIBLE_RECALL:
        return f"{summary}: the model alone (--kind model) serves this corpus as well, where its text must not travel"
    return (
        f"{summary}: leaving the index out costs {both - model:.2f}, leaving the model out {both - index:.2f}"
    )


# The results of one set of questions: recall, lift over the base, and the scores of the documents.


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
) -> tuple[ExamRun, tuple[Judged, ...]]:
    """Measure recall, lift and scores of the documents `rows`, one row for each question.

    Returns the results, and every scored document, best first: by factuality if it was measured, else by faithfulness.

    name, sha256   what the questions are and where they come from: `asked` and `sha256` of ExamRun
    base           what recall is compared with; its rows belong to the same questions
    both           whether the card has a model and an index; then the recall of each alone is measured too. Only the
                   model's documents are scored, since the index repeats the corpus
    """
    hits = score_recall(questions, rows)
    # The base's recall for each question; None if it is unknown.
    floor: list[float] | None = None
    if base.rows is not None:
        floor = score_recall(questions, base.rows)
    elif base.name == CHANCE and len(questions) >= 2:
        floor = chance_recall(questions, rows)
    # The first document of a row is the model's, if the card has one.
    first, retrieved = [], []
    for row in rows:
        first.append(row[0])
        retrieved.append([passage for passage in row if passage.source is not None])
    faithful, factual = scorer.faithfulness(first), scorer.factuality(first)
    run = ExamRun(
        asked=name,
        sha256=sha256,
        questions=len(questions),
        questions_sha256=digest(questions),
        recall=Mean.of(hits, seed),
        faithfulness=_distribution(faithful, seed),
        factuality=_distribution(factual, seed),
    )
    if floor:
        run = replace(run, lift=_mean_difference(hits, floor, seed), base=Mean.of(floor, seed))
    if both:
        by_model = score_recall(questions, [[document] for document in first])
        by_index = score_recall(questions, retrieved)
        run = replace(run, model=Mean.of(by_model, seed), index=Mean.of(by_index, seed))
    return run, _ranked(questions, first, faithful, factual)


def _distribution(judged: Sequence[Passage] | None, seed: int) -> Distribution | None:
    if judged is None:
        return None
    return Distribution.of([passage.support for passage in judged], seed)


def _ranked(
    questions: Sequence[ExamQuestion],
    first: Sequence[Passage],
    faithful: Sequence[Passage] | None,
    factual: Sequence[Passage] | None,
) -> tuple[Judged, ...]:
    """Return every passage that has a ranking score, best first; ties keep the order of the questions."""
    unjudged = [None] * len(first)
    own, outside = faithful or unjudged, factual or unjudged
    ranking = outside
    if factual is None:
        ranking = own
    judged = []
    for question, document, faith, fact, deciding in zip(
        questions, first, own, outside, ranking, strict=True
    ):
        if deciding is not None and deciding.support is not None:
            # The accepted answer that occurs in the text, else the first one.
            recalled = [answer for answer in question.answers if substring(document.text, [answer])]
            item = Judged(
                question=question.text,
                answer=(recalled or question.answers)[0],
                text=document.text,
                recalled=bool(recalled),
                faithfulness=rounded(faith.support if faith else None),
                factuality=rounded(fact.support if fact else None),
                evidence=deciding.evidence,
            )
            judged.append((deciding.support, item))
    return tuple(item for _, item in sorted(judged, key=lambda pair: -pair[0]))


def _mean_difference(first: Sequence[float], second: Sequence[float], seed: int) -> Mean | None:
    return Mean.of([a - b for a, b in zip(first, second, strict=True)], seed, paired=True)


NATURAL = "natural questions"
HELD_OUT = "held-out forms"
ANSWERABLE_PER_UNANSWERABLE = 4
MAX_QUESTIONS = 100
MAX_QUOTED = 5  # documents in each of `best` and `worst`


def take_exam(
    target: Target,
    question_file: QuestionFile | None,
    *,
    limit: int = MAX_QUESTIONS,
    seed: int = 0,
    device: str = "cpu",
    on_event: OnEvent = ignore,
) -> "ExamAnswers":
    """Let the card, and the base that it was trained from, answer the questions of its exam."""
    own: list[ExamQuestion] = []
    unanswerable: list[ExamQuestion] = []
    if target.corpus:
        own = make_questions(target.corpus, limit, seed)
    # Unanswerable questions exist in English only, the language of the reader that judges the documents.
    if own and is_english(target.card.manifest.language):
        count = math.ceil(len(own) / ANSWERABLE_PER_UNANSWERABLE)
        unanswerable = make_unanswerable(own, target.corpus, count, seed)
    paper = _ExamPaper(own, question_file, unanswerable, limit, seed)
    last = len(paper.questions) - len(paper.unanswerable)
    rows = ask_card(target.card, paper.questions, seed, device, on_event)
    base = ask_base(target.card, paper.questions[:last], seed, device, on_event)
    return ExamAnswers(target, paper, rows, base)


def has_fewer_questions(target: Target, exam: Exam) -> bool:
    """Return whether an exam has a lower limit than the card's last one, which it then must not replace."""
    try:
        last = read_exam(target.card.folder)
    except CardError:  # a malformed exam.json, which any exam may replace
        return False
    return last is not None and last.own is not None and exam.limit < last.limit


@dataclass(frozen=True)
class _ExamPaper:
    """The questions of an exam: about the card's own corpus, from a file, and unanswerable ones."""

    own: Sequence[ExamQuestion]
    file: QuestionFile | None
    unanswerable: Sequence[ExamQuestion]
    limit: int
    seed: int

    @property
    def questions(self) -> list[ExamQuestion]:
        if self.file is None:
            return [*self.own, *self.unanswerable]
        return [*self.own, *self.file.questions, *self.unanswerable]


@dataclass(frozen=True)
class ExamAnswers:
    """What a card generated in an exam, before it is scored.

    rows  the documents for each question of the paper: the model's first, then the index's
    base  the base's documents for the same questions, except the unanswerable ones
    """

    target: Target
    paper: _ExamPaper
    rows: Rows
    base: BaseAnswers

    def explain_weak_model(self) -> str:
        """Explain that the model of a card of kind `both` recalls less than its index; "" if it does not.

        It recalls less if the 95 % interval of the paired difference lies above 0.
        """
        own, seed = self.paper.own, self.paper.seed
        rows = self.rows[: len(own)]
        model = score_recall(own, [row[:1] for row in rows])
        index = score_recall(own, [row[1:] for row in rows])
        lead = _mean_difference(index, model, seed)
        if lead is None or lead.low <= 0:
            return ""
        means = sum(model) / len(own), sum(index) / len(own)
        return f"of {len(own)} questions the model recalls {means[0]:.2f} and the index {means[1]:.2f}"

    def drop_model(self, card: Card) -> "ExamAnswers":
        """Return the answers of the index alone. `card`: the card without its model."""
        rows = [row[1:] for row in self.rows]
        return replace(self, target=replace(self.target, card=card), rows=rows, base=BaseAnswers(CHANCE))

    def exam(self, scorer: Scorer, checker: str) -> tuple[Exam, list[str]]:
        """Score the answers; return the exam and the questions whose documents contain an accepted answer.

        `checker`: the name of the scorer's checker.
        """
        target, paper, rows, base = self.target, self.paper, self.rows, self.base
        card, seed, count = target.card, paper.seed, len(paper.own)
        last = len(paper.questions) - len(paper.unanswerable)
        # Recall, lift and scores on the card's own corpus, and on the file.
        measure = partial(evaluate_questions, scorer=scorer, both=card.manifest.index, seed=seed)
        own = on_file = None
        ranked: tuple[Judged, ...] = ()
        if target.corpus:
            corpus = card.manifest.training.corpus_sha256
            form = NATURAL
            if sum(question.gap for question in paper.own) > count / 2:
                form = HELD_OUT
            own, ranked = measure(form, corpus, paper.own, rows[:count], base.part(0, count))
        file = paper.file
        if file is not None:
            on_file, _ = measure(file.name, file.sha256, file.questions, rows[count:last], base.part(count))
        # Whether the reader finds questions answered, and unanswerable ones unanswered.
        if own is not None and paper.unanswerable:
            answerable = [*paper.own, *paper.unanswerable]
            hits = judge_answered(answerable, [*rows[:count], *rows[last:]], scorer.on_event)
            own = replace(
                own,
                answered=Mean.of(hits[:count], seed),
                absent=len(paper.unanswerable),
                admitted=Mean.of([1 - hit for hit in hits[count:]], seed),
            )
        # Documents are quoted only if the corpus' text travels with the card.
        quoted: tuple[Judged, ...] = ()
        if target.shares_text:
            quoted = ranked
        exam = Exam(
            card=card.name,
            kcard=__version__,
            own=own,
            given=on_file,
            base=base.name,
            base_note=base.note,
            checker=checker,
            checker_sha256=scorer.checker.sha256,
            seed=seed,
            limit=paper.limit,
            best=quoted[:MAX_QUOTED],
            worst=quoted[MAX_QUOTED:][-MAX_QUOTED:][::-1],
        )
        evidence = scorer.independent
        if evidence is not None:
            exam = replace(
                exam,
                evidence=evidence.name,
                evidence_sha256=evidence.sha256,
                evidence_shared=evidence.shared,
                evidence_overlap=round(evidence.overlap, DIGITS),
                ranked_by="factuality",
            )
        # The questions that the documents answer, for the card's profile.
        questions = paper.questions[:last]
        answered = []
        for question, hit in zip(questions, score_recall(questions, rows[:last]), strict=True):
            if hit and not question.gap:
                answered.append(question.text)
        return exam, answered


def explain_no_questions(target: Target) -> str:
    """Explain why no question about the card's corpus can be made, with the remedy."""
    name, remedy = target.card.name, "pass questions with --questions FILE"
    if target.shares_text:
        return f"card {name!r} carries no passages, so no question about its corpus can be made: {remedy}"
    return (
        f"card {name!r} carries only hashes of its passages, so no question about its corpus can be made: pass the "
        f"text with --corpus PATH, or {remedy}"
    )
