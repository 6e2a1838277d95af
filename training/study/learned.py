"""What a card learns of study material: each item as a query for the statement of the corpus that it belongs to."""

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

__all__ = ["Learned", "items_of", "learned", "queries_of"]

NEAR = 0.4  # cosine of the sentence encoder
SHOWN = 5  # broken lines that are reported one by one


@dataclass(frozen=True)
class Learned:
    """`queries`: by the text of the statement that they ask for. `record`: what the card's manifest says of it."""

    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def learned(path: Path | None, passages: Iterable[Source], report: Report) -> Learned:
    """Of the study material in a file; nothing without one. What can't be used of it is reported.

    Raises UsageError where the file can't be read or holds no item.
    """
    if path is None:
        return Learned()
    items = items_of(path, report)
    queries = queries_of(items, passages)
    count = sum(map(len, queries.values()))
    report(Note(f"study material: {count:,} of {len(items):,} items are questions that the corpus answers"))
    return Learned(queries, {"study_sha256": file_digest(path), "study_items": count})


def items_of(path: Path, report: Report) -> Sequence[StudyItem]:
    """The items of a file; lines that are none are reported. Raises UsageError where it can't be read or holds none."""
    study = read_study(path)
    for broken in study.broken[:SHOWN]:
        report(Note(f"{path}, {broken}: left out"))
    if len(study.broken) > SHOWN:
        report(Note(f"{path}: {len(study.broken) - SHOWN} more lines left out"))
    return study.items


def queries_of(items: Iterable[StudyItem], passages: Iterable[Source]) -> Mapping[str, Sequence[str]]:
    """What to ask for each statement of the corpus, by its text: the questions that it answers, and the statements that
    say nearly the same, which is what a question in other words looks like to a sentence encoder.

    Of a passage's statements a question goes with the one that holds its answer and shares most words with it; a
    statement with the nearest, if the cosine is NEAR or more. Items about other passages are left out.
    """
    by_passage: defaultdict[str, list[StudyItem]] = defaultdict(list)
    for item in items:
        for digest in item.passages:
            by_passage[digest].append(item)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for passage in passages:
        about = by_passage.get(passage_digest(passage.text))
        if about:
            texts = [statement.text for statement in statements([passage])]
            for text, item in zip(_places(about, texts), about, strict=True):
                if text is not None:
                    found[text].append(item.text)
    return dict(found)


def _places(items: Sequence[StudyItem], texts: Sequence[str]) -> list[str | None]:
    said = [item.text for item in items if item.kind not in QUESTIONS]
    near = iter(_nearest(said, texts))
    return [next(near) if item.kind not in QUESTIONS else _answering(item, texts) for item in items]


def _answering(item: StudyItem, texts: Sequence[str]) -> str | None:
    if not item.answer:
        return None
    answer, asked = f" {' '.join(words(item.answer))} ", set(words(item.text))
    holding = [text for text in texts if answer in f" {' '.join(words(text))} "]
    return max(holding, key=lambda text: len(asked & set(words(text))), default=None)


def _nearest(said: Sequence[str], texts: Sequence[str]) -> list[str | None]:
    if not said:
        return []
    from kcard.encoder import embed

    cosines = embed(said) @ embed(texts).T
    return [texts[row.argmax()] if row.max() >= NEAR else None for row in cosines]
