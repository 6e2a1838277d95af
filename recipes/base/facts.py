"""Training data of the embedded base: worlds of invented facts, as questions and the statements that answer them.

Relations, wordings and prose are the reader's (recipes/reader/frames.txt: no elections, Nobel prizes or moons). Names
come from lists of names, syllables and English words, so that the base sees all of its tokens.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kcard.embedded import minilm
from kcard.training.embedded.pseudo_queries import PseudoQueries
from recipes.reader.prose import texts
from recipes.reader.synth import Frame, Synthesis, fill, frames
from recipes.reader.words import Words

ORDINALS, YEARS = 60, range(1900, 2031)
RELATIONS, FACTS = 12, 500
# Of the questions: pseudo-queries, questions in the frame's words; beside the facts, as many sentences of prose.
WORN, QUESTIONED, STATED = 0.75, 0.18, 0.1
# Of the facts those that share a value with another, so that one word of a question does not tell which is meant.
SHARED, NEAR = 0.7, 60
LISTED_NAMES, ENGLISH_NAMES = 0.6, 0.7
NAMES = frozenset({"first", "last", "regions", "cities"})

Fact = tuple[Frame, dict[str, str]]
Pair = tuple[str, str]


@dataclass(frozen=True)
class World:
    """Facts in some of their wordings; `ask` makes pseudo-queries of its statements."""

    statements: Sequence[tuple[Fact, str]]
    ask: PseudoQueries


def english() -> list[str]:
    """English words, the most frequent first, by the order of the sentence encoder's vocabulary."""
    vocabulary = minilm.words().vocabulary()
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    return [word for word in ordered if re.fullmatch(r"[a-z]{2,14}", word)]


def numbers() -> list[str]:
    """Numbers and years, which are to be single tokens, and ordinals, of which the ending is one."""
    return [*map(str, range(100)), *map(Words.nth, range(1, ORDINALS + 1)), *map(str, YEARS)]


class Names(Words):
    """The reader's words, with fewer names from its lists and more that are English words."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.english = english()

    def pick(self, lists: str, real: float = 1.0) -> str:
        return super().pick(lists, real * (LISTED_NAMES if NAMES & set(lists.split()) else 1.0))

    def invented(self, least: int = 2, most: int = 3) -> str:
        if self.rng.random() < ENGLISH_NAMES:
            # Frequent words more often, each at times.
            return self.english[int(len(self.english) ** self.rng.uniform(0.45, 1)) - 1].capitalize()
        return super().invented(least, most)


class Facts:
    """A seeded source of worlds."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.synthesis = Synthesis(seed)
        self.synthesis.words = Names(self.synthesis.rng)

    def world(self, facts: int = FACTS, relations: int = RELATIONS) -> World:
        """Some relations, some of them with many facts, each told in one to four wordings."""
        chosen = self.rng.sample(frames(), relations)
        weights = [self.rng.random() ** 2 for _ in chosen]
        all_facts: list[Fact] = []
        for _ in range(facts):
            all_facts.append(self._fact(self.rng.choices(chosen, weights)[0], all_facts[-NEAR:]))
        statements = [
            (fact, fill(statement, fact[1]))
            for fact in all_facts
            for statement in self.rng.sample(
                fact[0].statements, min(len(fact[0].statements), self.rng.randint(1, 4))
            )
        ]
        return World(statements, PseudoQueries([statement for _, statement in statements]))

    def pairs(self, world: World) -> Iterator[Pair]:
        """Every statement under a new question, some under none, and some prose."""
        for fact, statement in world.statements:
            yield self._question(world, fact, statement), statement
        for _ in range(round(STATED * len(world.statements))):
            yield self._prose(world)

    def _fact(self, frame: Frame, near: Sequence[Fact]) -> Fact:
        values = self.synthesis.values(frame)
        alike = [other for relation, other in near if relation is frame]
        if alike and self.rng.random() < SHARED:
            letter = self.rng.choice(sorted(values))
            values[letter] = self.rng.choice(alike)[letter]
        return frame, values

    def _question(self, world: World, fact: Fact, statement: str) -> str:
        """In the frame's words for a value that the statement tells, a pseudo-query, or none."""
        frame, values = fact
        style = self.rng.random()
        fitting = [question for asked, question in frame.questions if values[asked] in statement]
        if style >= WORN + QUESTIONED:
            return ""
        if style >= WORN and fitting:
            return fill(self.rng.choice(fitting), values)
        return world.ask(statement, self.rng)

    def _prose(self, world: World) -> Pair:
        """A sentence of the prose: under a question that somebody asked, a pseudo-query, or none."""
        text = self.rng.choice(texts())
        question, answer = self.rng.choice(text.questions)
        answering = [sentence for sentence in text.sentences if answer in sentence]
        if answering and self.rng.random() < 0.5:
            return question, answering[0]
        sentence = self.rng.choice(text.sentences)
        return (world.ask(sentence, self.rng) if self.rng.random() < 0.5 else ""), sentence
