"""The exam of a card as pages show it, and example questions for a card.

The files may contain anything; what can't be read is omitted.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Any

from kcard.errors import KcardError
from kcard.hub.figures import EXAM_FILE, MeasuredFigure, read_figure
from kcard.hub.storage import Blobs
from kcard.hub.values import ScoreEstimate

MAX_EXAM_BYTES = 2_000_000
MAX_TEXT_CHARACTERS = 1200  # of a shown text
MAX_SHOWN = 10  # of the best documents, and of the worst
MAX_QUESTIONS = 5


@dataclass(frozen=True)
class ExamQuestionView:
    """A question of an exam: an accepted answer, what the card generated, and whether that contains the answer."""

    question: str
    answer: str
    text: str
    right: bool
    score: float | None


@dataclass(frozen=True)
class ExamView:
    """An exam about the card's own corpus.

    recall, lift  with their samples; None: not in the exam
    factuality  with its sample; None likewise
    scored      which figure has scores for single documents: factuality, else faithfulness
    figure      that figure
    shown       the best and the worst documents, which travel with the card
    """

    recall: ScoreEstimate | None
    lift: ScoreEstimate | None
    factuality: ScoreEstimate | None
    scored: str
    figure: MeasuredFigure | None
    questions: int
    base: str
    checker: str
    evidence: str
    shown: tuple[ExamQuestionView, ...]


def load_exam(blobs: Blobs, sha256: str | None) -> ExamView | None:
    """Return the exam in a blob; None if there is none, or nothing about the card's own corpus that can be read."""
    if sha256 is None:
        return None
    try:
        return _read_exam(blobs, sha256)
    except (KcardError, ValueError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _read_exam(blobs: Blobs, sha256: str) -> ExamView | None:
    with blobs.open(sha256) as stream:
        text = stream.read(MAX_EXAM_BYTES + 1)
    record = json.loads(text) if len(text) <= MAX_EXAM_BYTES else {}
    own = record.get("own")
    if not isinstance(own, dict):
        return None
    scored = "factuality"
    figure = read_figure(record, scored)
    if figure is None or not figure.scores:
        scored = "faithfulness"
        figure = read_figure(record, scored)
    shown = [*_read_shown(record.get("best"), scored), *_read_shown(record.get("worst"), scored)]
    questions = own.get("questions")
    return ExamView(
        recall=_estimate(record, "recall"),
        lift=_estimate(record, "lift"),
        factuality=_estimate(record, "factuality"),
        scored=scored,
        figure=figure,
        questions=questions if isinstance(questions, int) else 0,
        base=_read_text(record.get("base")),
        checker=_read_text(record.get("checker")),
        evidence=_read_text(record.get("evidence")),
        shown=tuple(dict.fromkeys(shown)),
    )


def _estimate(record: Mapping[str, Any], name: str) -> ScoreEstimate | None:
    figure = read_figure(record, name)
    return None if figure is None else figure.estimate


def _read_shown(documents: object, scored: str) -> list[ExamQuestionView]:
    shown = []
    for item in documents[:MAX_SHOWN] if isinstance(documents, list) else []:
        if not isinstance(item, dict) or not _read_text(item.get("question")):
            continue
        score = item.get(scored)
        if not isinstance(score, int | float) or not 0 <= score <= 1:
            score = None
        question = ExamQuestionView(
            question=_read_text(item["question"]),
            answer=_read_text(item.get("answer")),
            text=_read_text(item.get("text")),
            right=item.get("recalled") is True,
            score=score,
        )
        shown.append(question)
    return shown


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= MAX_TEXT_CHARACTERS else value[:MAX_TEXT_CHARACTERS] + "…"


# Example questions come from the exam; else from the headings of the passages, or from what their first sentences speak
# of.
PASSAGES = "passages.jsonl"
MAX_PASSAGE_BYTES = 400_000  # that are read: enough for some hundred passages
SUBJECT = re.compile(r"((?:The |An? )?(?:[^\W\d_][\w'’.-]* ?){1,5}?) (?:is|was|are|were|has|have) ")
# Headings that every other document has, that are code, or that no question can take up.
COMMON_HEADINGS = re.compile(
    r"(?:introduction|overview|contents|summary|notes?|see also|references?|licen[sc]e|name|synopsis|options"
    r"|description|examples?|usage|history|index|bugs|authors?|copyright)"
    r"|(?:in|on|with|from|to|for|by|at|as|if|when|where|after|before) .*(?<!\?)|.*[{}<>=$\\|`/_].*|[\W\d_]*",
    re.IGNORECASE,
)
PRONOUNS = re.compile(
    r"(?:it|he|she|they|this|that|these|those|there|here|what|which|who|you|we|i|one)\b", re.IGNORECASE
)


def example_questions(blobs: Blobs, files: Mapping[str, str], language: str = "en") -> tuple[str, ...]:
    """Return questions that a card answered in its exam, else such about its passages; at most MAX_QUESTIONS.

    files  the sha256 of the card's files, by name
    """
    exam = load_exam(blobs, files.get(EXAM_FILE))
    if exam is not None:
        answered = [question.question for question in exam.shown if question.right]
        if answered:
            return tuple(answered[:MAX_QUESTIONS])
    if PASSAGES not in files:
        return ()
    return suggest_questions(blobs, files[PASSAGES], language)


@lru_cache(maxsize=512)
def suggest_questions(blobs: Blobs, sha256: str, language: str = "en") -> tuple[str, ...]:
    """Return example questions about the passages in a blob, at most MAX_QUESTIONS, from different files."""
    try:
        with blobs.open(sha256) as stream:
            lines = stream.read(MAX_PASSAGE_BYTES).decode(errors="replace").split("\n")
    except KcardError:
        return ()
    # The topics of each file, headings first.
    topics: dict[str, dict[str, bool]] = {}
    for line in lines:
        try:
            passage = json.loads(line)
            heading = passage.get("section", "").rpartition(" > ")[2].strip(" #:.")
            text = passage.get("text", "")
            subject = SUBJECT.match(text) if isinstance(text, str) else None
        except (ValueError, AttributeError, RecursionError):  # the last line is cut
            continue
        of_file = topics.setdefault(str(passage.get("file", "")), {})
        if 3 <= len(heading) <= 60 and not COMMON_HEADINGS.fullmatch(heading):
            of_file.setdefault(heading, True)
        elif subject is not None and not PRONOUNS.match(subject[1].removeprefix("The ")):
            of_file.setdefault(subject[1].strip(), False)
    ranked = [sorted(of_file, key=lambda topic: not of_file[topic]) for of_file in topics.values()]
    rounds = chain.from_iterable(zip_longest(*ranked))
    chosen = islice(dict.fromkeys(topic for topic in rounds if topic), MAX_QUESTIONS)
    return tuple(_ask_about(topic, language) for topic in chosen)


def _ask_about(topic: str, language: str) -> str:
    if topic.endswith("?"):
        return topic
    if not language.startswith("en"):
        return f"{topic}?"
    lowered = topic.lower()
    if lowered.startswith("how to "):
        return f"How do I {topic[7:]}?"
    if lowered.startswith(("how ", "why ", "what ", "who ", "which ")):
        return f"{topic}?"
    first = topic.partition(" ")[0]
    if first in ("The", "A", "An") or first.endswith("ing"):  # "Serving cards" begins with no name
        topic = lowered[0] + topic[1:]
    return f"What is known about {topic}?"
