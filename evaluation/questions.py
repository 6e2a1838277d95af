"""The questions of an exam: a seeded sample about a corpus, in forms that training never uses.

A question is right about every passage that differs from its own in the gap alone: "____ is a moon of Mars" has
two answers where the corpus tells of two moons. All of them are accepted.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.answer import Source
from kcard.evaluation.metrics import substring
from kcard.sampling import derive_seed

if TYPE_CHECKING:
    from kcard.training.question_forms import Question as Asked

__all__ = ["Question", "about", "digest"]


@dataclass(frozen=True)
class Question:
    """A question and its accepted answers, one or more, the first being the one that it was made for.

    `file`: where in the corpus the passage stands that it was made of; empty for a question of another origin.
    """

    text: str
    answers: tuple[str, ...]
    file: str = ""


def about(
    corpus: Sequence[Source], limit: int, seed: int, accepted: Sequence[Source] | None = None
) -> list[Question]:
    """At most `limit` questions, no two alike, about passages drawn without replacement.

    `accepted`: the passages by which an answer may be right, where they are more than those that are asked about.
    The same passages, in whatever order, and the same seed give the same questions. The corpus is read three
    times, one passage at a time, and may be larger than memory.
    """
    from kcard.training.lazy import Lazy
    from kcard.training.question_forms import held_out
    from kcard.training.spans import Rarity

    rarity = Rarity(Lazy(len(corpus), lambda row: corpus[row].text))
    chosen: dict[str, tuple[Asked, str]] = {}
    for row in _drawn(corpus, seed):
        if len(chosen) == limit:
            break
        asked = held_out(corpus[row].text, seed, rarity)
        # An answer that is only part of a word ("2022" of "2022–23") could not be found again.
        if asked is not None and substring(asked.passage, [asked.answer]):
            chosen.setdefault(asked.text, (asked, corpus[row].file))
    fillings = _fillings(
        corpus if accepted is None else accepted, {asked.around for asked, _ in chosen.values()}
    )
    return [
        Question(q.text, tuple(dict.fromkeys([q.answer, *fillings[q.around]])), file)
        for q, file in chosen.values()
    ]


def digest(questions: Iterable[Question]) -> str:
    """sha256 of the questions with their accepted answers, in order."""
    lines = (json.dumps([q.text, *q.answers], ensure_ascii=False) + "\n" for q in questions)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _drawn(corpus: Sequence[Source], seed: int) -> list[int]:
    """Every row, shuffled by what stands in it and not by where it stands."""
    ranks = array("q", (derive_seed(seed, "exam", source.text) for source in corpus))
    return sorted(range(len(ranks)), key=ranks.__getitem__)


def _fillings(
    corpus: Sequence[Source], wanted: set[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, None]]:
    """What fills the gap between each wanted beginning and end, anywhere in the corpus, in its order."""
    from kcard.training.question_forms import around, gaps
    from kcard.training.spans import bare

    found: dict[tuple[str, str], dict[str, None]] = {key: {} for key in wanted}
    for source in corpus:
        for start, end in gaps(source.text):
            if (key := around(source.text, start, end)) in found:
                found[key][bare(source.text[start:end])] = None
    return found
