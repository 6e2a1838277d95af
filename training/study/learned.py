"""What a card learns of study material: each question, with the statement of the corpus that answers it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.answer import Source
from kcard.manifest import file_digest
from kcard.training.corpus import statements
from kcard.training.progress import Note, Report
from kcard.training.study.item import QUESTIONS, StudyItem, read_study
from kcard.words import passage_digest, words

__all__ = ["Learned", "learned", "questions_of"]

SHOWN = 5  # broken lines that are reported one by one


@dataclass(frozen=True)
class Learned:
    """`questions`: by the text of the statement that they ask for. `record`: what the card's manifest says of it."""

    questions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def learned(path: Path | None, passages: Iterable[Source], report: Report) -> Learned:
    """Of the study material in a file; nothing without one. What can't be used of it is reported.

    Raises UsageError where the file can't be read or holds no item.
    """
    if path is None:
        return Learned()
    study = read_study(path)
    for broken in study.broken[:SHOWN]:
        report(Note(f"{path}, {broken}: left out"))
    if len(study.broken) > SHOWN:
        report(Note(f"{path}: {len(study.broken) - SHOWN} more lines left out"))
    questions = questions_of(study.items, passages)
    count = sum(map(len, questions.values()))
    report(
        Note(f"study material: {count:,} of {len(study.items):,} items are questions that the corpus answers")
    )
    return Learned(questions, {"study_sha256": file_digest(path), "study_questions": count})


def questions_of(items: Iterable[StudyItem], passages: Iterable[Source]) -> Mapping[str, Sequence[str]]:
    """Questions by the text of the statement that answers them: of the passage's statements that hold the answer, the
    one that shares most words with the question. Questions about other passages or without an answer are left out."""
    by_passage: defaultdict[str, list[StudyItem]] = defaultdict(list)
    for item in items:
        if item.kind in QUESTIONS and item.answer:
            for digest in item.passages:
                by_passage[digest].append(item)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for passage in passages:
        asked = by_passage.get(passage_digest(passage.text))
        if asked:
            texts = [statement.text for statement in statements([passage])]
            for item in asked:
                if (answering := _answering(item, texts)) is not None:
                    found[answering].append(item.text)
    return dict(found)


def _answering(item: StudyItem, texts: Sequence[str]) -> str | None:
    answer, asked = f" {' '.join(words(item.answer))} ", set(words(item.text))
    holding = [text for text in texts if answer in f" {' '.join(words(text))} "]
    return max(holding, key=lambda text: len(asked & set(words(text))), default=None)
