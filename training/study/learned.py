"""What a card learns of study material: each item as a query for the statement of the corpus that it belongs to."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.training.corpus import statements
from kcard.training.progress import Note, Report
from kcard.training.study.item import QUESTIONS, StudyItem
from kcard.training.study.material import StudyMaterial
from kcard.words import passage_digest, words

__all__ = ["Learned", "Queries", "learned", "queries_of"]

NEAR = 0.4  # cosine of the sentence encoder
# Why an item gives no query.
ABSENT, UNANSWERABLE = "about passages that are not in the corpus", "that the passage leaves open"
FAR = "that no statement of their passage answers or comes near to"


@dataclass(frozen=True)
class Learned:
    """`queries`: by the text of the statement that they ask for. `record`: what the card's manifest says of it."""

    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Queries:
    """`by_statement`: the queries for each statement, by its text. `left_out`: items that give none, by reason."""

    by_statement: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int]


def learned(study: StudyMaterial | None, passages: Iterable[Source], report: Report) -> Learned:
    """Of study material; nothing without it. What can't be used of it is reported.

    Raises UsageError where no item is about the corpus.
    """
    if study is None or not study.items:
        return Learned()
    found = queries_of(study.items, passages)
    count = sum(map(len, found.by_statement.values()))
    if found.left_out.get(ABSENT) == len(study.items):
        raise UsageError(
            f"{study.name}: none of its {len(study.items):,} items is about a passage of the corpus: it was made of "
            "another corpus or an earlier state of this one; make it anew with `kcard study`"
        )
    left_out = "".join(f"; left out: {number:,} {why}" for why, number in found.left_out.items())
    report(Note(f"study material: {count:,} queries out of {len(study.items):,} items{left_out}"))
    return Learned(found.by_statement, {**study.record, "study_items": count})


def queries_of(items: Iterable[StudyItem], passages: Iterable[Source]) -> Queries:
    """What to ask for each statement of the corpus: the questions that it answers, and the statements that say nearly
    the same, which is what a question in other words looks like to a sentence encoder.

    Of a passage's statements a question goes with the one that holds its answer and shares most words with it; a
    statement with the nearest, if the cosine is NEAR or more.
    """
    by_passage: defaultdict[str, list[StudyItem]] = defaultdict(list)
    unused = dict[StudyItem, str]()
    for item in items:
        unused[item] = ABSENT
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
                    unused.pop(item, None)
                elif item in unused:
                    unused[item] = UNANSWERABLE if item.kind == "unanswerable" else FAR
    return Queries(dict(found), dict(Counter(unused.values())))


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
