"""The questions of an exam: a seeded sample about a corpus, as people would ask (natural_questions.py), and some on
things that are not in it (absent.py).

Where the sentences of a corpus give too few such questions, the others have a gap to be filled, in forms that training
never uses. A question is right about every sentence that differs from its own in the answer alone: "What is a moon of
Mars?" has two answers where the corpus tells of two moons. All of them are accepted.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kcard.answer import Source
from kcard.evaluation.metrics import substring
from kcard.sampling import derive_seed

__all__ = ["Question", "about", "digest"]

FEW = 0.1  # of the wanted questions: with fewer natural ones, the others have gaps
ROUNDS = 3  # questions that a passage may give
TRIED = 12  # passages that are tried for each wanted question
FILLING = 80  # characters


@dataclass(frozen=True)
class Question:
    """A question and its accepted answers, one or more, the first being the one that it was made for.

    `file`: where in the corpus the passage stands that it was made of; empty for a question of another origin. `gap`:
    whether it is a sentence with a gap. A question without an answer is one that the corpus does not answer.
    """

    text: str
    answers: tuple[str, ...]
    file: str = ""
    gap: bool = False


@dataclass(frozen=True)
class _Asked:
    """A question about a passage. `around`: what stands before and after the answer in its sentence."""

    text: str
    answer: str
    around: tuple[str, str]
    file: str
    gap: bool = False


def about(
    corpus: Sequence[Source], limit: int, seed: int, accepted: Sequence[Source] | None = None
) -> list[Question]:
    """At most `limit` questions, no two alike, about passages drawn without replacement.

    `accepted`: the passages by which an answer may be right, where they are more than those that are asked about.
    The same passages, in whatever order, and the same seed give the same questions. The corpus is read one passage at a
    time, and may be larger than memory.
    """
    rows = _drawn(corpus, seed)
    tried = rows[: TRIED * limit]
    rounds = ((corpus[row], nth) for nth in range(ROUNDS) for row in tried)
    chosen = _distinct(_natural(rounds, seed), limit)
    if len(chosen) < min(limit, max(1, FEW * min(limit, len(rows)))):
        chosen = _distinct([*chosen, *_gapped((corpus[row] for row in rows), corpus, seed)], limit)
    fillings = _fillings(corpus if accepted is None else accepted, {asked.around for asked in chosen})
    return [
        Question(q.text, tuple(dict.fromkeys([q.answer, *fillings.get(q.around, ())])), q.file, q.gap)
        for q in chosen
    ]


def digest(questions: Iterable[Question]) -> str:
    """sha256 of the questions with their accepted answers, in order."""
    lines = (json.dumps([q.text, *q.answers], ensure_ascii=False) + "\n" for q in questions)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _drawn(corpus: Sequence[Source], seed: int) -> list[int]:
    """Every row, shuffled by what stands in it and not by where it stands."""
    ranks = array("q", (derive_seed(seed, "exam", source.text) for source in corpus))
    return sorted(range(len(ranks)), key=ranks.__getitem__)


def _distinct(asked: Iterable[_Asked], limit: int) -> list[_Asked]:
    found: dict[str, _Asked] = {}
    for question in asked:
        found.setdefault(question.text, question)
        if len(found) == limit:
            break
    return [*found.values()]


def _natural(passages: Iterable[tuple[Source, int]], seed: int) -> Iterator[_Asked]:
    """A question for each passage and round, where one of its sentences gives one that training never asks."""
    from kcard.evaluation.natural_questions import drawn
    from kcard.sentences import split

    for passage, nth in passages:
        rng = Random(derive_seed(seed, "natural", nth, passage.text))
        sentences = split(passage.text)
        rng.shuffle(sentences)
        if asked := drawn(sentences, rng):
            yield _Asked(asked.text, asked.answer, asked.around, passage.file)


def _gapped(passages: Iterable[Source], corpus: Sequence[Source], seed: int) -> Iterator[_Asked]:
    """A gap to be filled in each passage that names something."""
    from kcard.training.lazy import Lazy
    from kcard.training.question_forms import held_out
    from kcard.training.spans import Rarity

    rarity = Rarity(Lazy(len(corpus), lambda row: corpus[row].text))
    for passage in passages:
        asked = held_out(passage.text, seed, rarity)
        # An answer that is only part of a word ("2022" of "2022–23") could not be found again.
        if asked is not None and substring(asked.passage, [asked.answer]):
            yield _Asked(asked.text, asked.answer, asked.around, passage.file, gap=True)


def _fillings(
    corpus: Sequence[Source], wanted: set[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, None]]:
    """What stands between each wanted beginning and end of a sentence, anywhere in the corpus, in its order."""
    from kcard.training.spans import bare

    sought = {key: _between(*key) for key in wanted if any(key)}
    found: dict[tuple[str, str], dict[str, None]] = {key: {} for key in sought}
    for source in corpus:
        text = " ".join(source.text.split())
        for key, pattern in sought.items():
            if key[0] in text and key[1] in text:
                for match in pattern.finditer(text):
                    found[key][bare(match[1])] = None
    return found


def _between(before: str, after: str) -> "re.Pattern[str]":
    begins = rf"(?:^|(?<=[.!?] )){re.escape(before)}" if before else r"(?:^|(?<=[.!?] ))"
    ends = rf"{re.escape(after)}(?=[.!?…]|$)" if after else r"(?=[.!?…](?: |$)|$)"
    return re.compile(rf"{begins}\s*(\S.{{0,{FILLING}}}?)\s*{ends}")
