"""What the embedded base is trained on: questions and the statements that answer them, all about invented facts.

Relations and wordings are the reader's (recipes/reader/frames.txt: no elections, Nobel prizes or moons), and so is the
prose written for kcard. Names are made of syllables and of English words, so that the base meets every token that it
has.
"""

import re
from collections.abc import Iterator
from random import Random

from kcard import encoder
from kcard.training.pseudo_queries import PseudoQueries
from recipes.reader.prose import texts
from recipes.reader.synth import Frame, Synthesis, fill, frames
from recipes.reader.words import Words

__all__ = ["Facts", "english", "numbers"]

ORDINALS, YEARS = 60, range(1900, 2031)
# Of the examples: facts that come again and again, pseudo-queries, questions in the frame's words; prose.
KNOWN, WORN, ASKED, TOLD = 0.6, 0.55, 0.35, 0.07
ENGLISH_NAMES = 0.5

Fact = tuple[Frame, dict[str, str]]


def english() -> list[str]:
    """English words, the most frequent first, by the order of the sentence encoder's vocabulary."""
    vocabulary = encoder.tokenizer().get_vocab()
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    return [word for word in ordered if re.fullmatch(r"[a-z]{2,14}", word)]


def numbers() -> list[str]:
    """Numbers and years, which are to be single tokens, and ordinals, of which the ending is one."""
    return [*map(str, range(100)), *map(Words.nth, range(1, ORDINALS + 1)), *map(str, YEARS)]


class Names(Words):
    """The reader's words, whose invented names are English words as often as syllables."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.english = english()

    def invented(self, least: int = 2, most: int = 3) -> str:
        if self.rng.random() < ENGLISH_NAMES:
            # Frequent words more often, each at times.
            return self.english[int(len(self.english) ** self.rng.uniform(0.4, 1)) - 1].capitalize()
        return super().invented(least, most)


class Facts:
    """A seeded source of (question, statement); a statement without a question is plain text.

    known  how many facts come again and again; the others are new every time
    """

    def __init__(self, seed: int, known: int) -> None:
        self.rng = Random(seed)
        self.synthesis = Synthesis(seed)
        self.synthesis.words = Names(self.synthesis.rng)
        self.known = [self._fact() for _ in range(known)]
        self.ask = PseudoQueries([self._statement(self._fact()) for _ in range(6000)])

    def pairs(self, count: int) -> Iterator[tuple[str, str]]:
        for _ in range(count):
            yield self._told() if self.rng.random() < TOLD else self._pair()

    def _told(self) -> tuple[str, str]:
        """A sentence of the prose: under a question that somebody asked, a pseudo-query, or none."""
        text = self.rng.choice(texts())
        question, answer = self.rng.choice(text.asked)
        answering = [sentence for sentence in text.sentences if answer in sentence]
        if answering and self.rng.random() < 0.5:
            return question, answering[0]
        sentence = self.rng.choice(text.sentences)
        return (self.ask(sentence, self.rng) if self.rng.random() < 0.5 else ""), sentence

    def _pair(self) -> tuple[str, str]:
        fact = self.rng.choice(self.known) if self.rng.random() < KNOWN else self._fact()
        statement, style = self._statement(fact), self.rng.random()
        if style < WORN:
            return self.ask(statement, self.rng), statement
        if style < WORN + ASKED:
            return self._question(fact, statement), statement
        return "", statement

    def _fact(self) -> Fact:
        frame = self.rng.choice(frames())
        return frame, self.synthesis.values(frame)

    def _statement(self, fact: Fact) -> str:
        frame, values = fact
        return fill(self.rng.choice(frame.statements), values)

    def _question(self, fact: Fact, statement: str) -> str:
        """In the frame's words, for a value that the statement tells; a pseudo-query where there is none."""
        frame, values = fact
        fitting = [question for asked, question in frame.questions if values[asked] in statement]
        return fill(self.rng.choice(fitting), values) if fitting else self.ask(statement, self.rng)
