"""Reading examples from prose.txt: short texts of our own, each with the questions that a person would ask of it.

A passage is the sentence that answers or the whole text, beside sentences of the same text and of others.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kcard.text import split_sentences
from recipes.reader.synth import Example

WHOLE = 0.35
KEPT_OUT = 12


@dataclass(frozen=True)
class Text:
    """`questions`: (question, answer), the answer a span of `text`."""

    text: str
    sentences: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]


@cache
def texts() -> tuple[Text, ...]:
    """Every block of prose.txt; ValueError names an answer that is not in its text."""
    blocks = Path(__file__).with_name("prose.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return tuple(_text(block) for block in blocks)


def kept_out() -> tuple[Text, ...]:
    """Every twelfth text: never trained on, to measure with."""
    return texts()[::KEPT_OUT]


def _text(block: str) -> Text:
    text, *lines = block.strip().splitlines()
    questions = []
    for line in lines:
        question, _, answer = line.partition(" | ")
        if not answer or answer not in text:
            raise ValueError(f"the text does not hold the answer: {line!r}")
        questions.append((question, answer))
    return Text(text, tuple(split_sentences(text)), tuple(questions))


class Prose:
    """A seeded, endless source of examples; `unanswerable` is the share without a right passage."""

    def __init__(self, seed: int, unanswerable: float = 0.3, source: Sequence[Text] | None = None) -> None:
        """`source`: the texts, by default all but those kept out."""
        self.rng, self.unanswerable = random.Random(seed), unanswerable
        self.texts = [t for t in texts() if t not in kept_out()] if source is None else source

    def example(self) -> Example:
        text = self.rng.choice(self.texts)
        question, answer = self.rng.choice(text.questions)
        gold = [s for s in text.sentences if answer in s] or [text.text]
        missing = self.rng.random() < self.unanswerable
        others = self._others(text, gold, answer, max(int(missing), self.rng.choice((0, 0, 1, 1, 2, 3))))
        if missing:
            return Example(question, tuple(others), (), answer)
        # The first sentence that holds the words may not be the one that answers: then the whole text is shown.
        context = gold[0] if len(gold) == 1 and self.rng.random() >= WHOLE else text.text
        place = self.rng.randint(0, len(others))
        start = context.index(answer)
        return Example(
            question,
            (*others[:place], context, *others[place:]),
            ((place, start, start + len(answer)),),
            answer,
        )

    def _others(self, text: Text, gold: list[str], answer: str, count: int) -> list[str]:
        """Sentences that do not hold the answer, near ones first."""
        near = [s for s in text.sentences if s not in gold]
        far = [self.rng.choice(self.rng.choice(self.texts).sentences) for _ in range(count)]
        chosen = self.rng.sample(near, min(len(near), count)) if self.rng.random() < 0.6 else []
        sentences = [s for s in [*chosen, *far] if answer.lower() not in s.lower()]
        return sentences[:count] or ["Nothing is known about it."]
