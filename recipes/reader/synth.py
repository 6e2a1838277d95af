"""Makes reading examples: a question, passages, and where (or that nowhere) the answer stands.

Statements and questions come from frames.txt, values from words.py. Wrong passages are close on purpose: the
same relation with one part of the subject changed, or the same subject in another relation.
"""

import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recipes.reader.words import KINDS, Words

SLOT = re.compile(r"\{(\w)\}")
OPENINGS = (
    "According to the archive, ", "As the local paper wrote, ", "It is on record that ", "Historians agree that ",
    "Reports say that ", "In fact, ", "Later, ", "It turned out that ", "Notably, ", "To nobody's surprise, ",
)  # fmt: skip
CLOSINGS = (
    " The news spread quickly.", " Little else is known.", " It was widely discussed.", " Some doubted it at first.",
    " The papers covered it at length.", " A plaque recalls it.", " Nobody had expected that.",
    " The result was close.", " Ceremonies followed.",
)  # fmt: skip
WRONG = (0, 0, 0, 1, 1, 1, 2, 2, 3, 4)
QUESTION_OPENINGS = ("Question: ", "Q: ", "Tell me: ", "Please answer: ", "I would like to know: ")


@dataclass(frozen=True)
class Frame:
    """One relation: slot letters with their kinds, statements, and (asked slot, question) pairs."""

    slots: tuple[tuple[str, str], ...]
    statements: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Example:
    """`spans`: (passage, first character, end) of every right answer; none where no passage answers."""

    question: str
    passages: tuple[str, ...]
    spans: tuple[tuple[int, int, int], ...]
    answer: str


@cache
def frames() -> tuple[Frame, ...]:
    """The frames of frames.txt; ValueError names a block that can't be used."""
    text = Path(__file__).with_name("frames.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(_frame(block) for block in "\n".join(lines).strip().split("\n\n"))


def _frame(block: str) -> Frame:
    head, *rest = block.strip().splitlines()
    slots = tuple((part.split("=")[0], part.split("=")[1]) for part in head.split())
    questions = tuple((line[2], line[4:]) for line in rest if line.startswith("? "))
    statements = tuple(line for line in rest if not line.startswith("? "))
    letters = {letter for letter, _ in slots}
    if any(kind not in KINDS for _, kind in slots) or not set(SLOT.findall("".join(rest))) <= letters:
        raise ValueError(f"frame with unknown slots: {head}")
    for key, question in questions:
        if not any(_answers(s, key, question) for s in statements):
            raise ValueError(f"no statement answers {question!r}")
    return Frame(slots, statements, questions)


def _letters(template: str) -> set[str]:
    return set(SLOT.findall(template))


def _answers(statement: str, key: str, question: str) -> bool:
    return {key} | _letters(question) <= _letters(statement)


def fill(template: str, values: dict[str, str]) -> str:
    """The template with its slots filled in and a capital at its head."""
    filled = SLOT.sub(lambda match: values[match.group(1)], template)
    return filled[0].upper() + filled[1:]


class Synthesis:
    """An endless, seeded source of examples; `unanswerable` is the share of them without a right passage."""

    def __init__(self, seed: int, unanswerable: float = 0.4) -> None:
        self.rng = random.Random(seed)
        self.words = Words(self.rng)
        self.unanswerable = unanswerable

    def values(self, frame: Frame) -> dict[str, str]:
        return {letter: self.words.draw(kind) for letter, kind in frame.slots}

    def example(self) -> Example:
        frame = self.rng.choice(frames())
        key, question = self.rng.choice(frame.questions)
        values = self.values(frame)
        eligible = [s for s in frame.statements if _answers(s, key, question)]
        missing = self.rng.random() < self.unanswerable
        golds = (
            []
            if missing
            else self.rng.sample(eligible, 2 if len(eligible) > 1 and self.rng.random() < 0.2 else 1)
        )
        wrong = max(int(missing), self.rng.choice(WRONG))
        passages = [(self._gold(s, key, values)) for s in golds]
        passages += [(self._wrong(frame, key, question, values, i), None) for i in range(wrong)]
        self.rng.shuffle(passages)
        spans = tuple((i, *span) for i, (_, span) in enumerate(passages) if span)
        return Example(self._ask(question, values), tuple(text for text, _ in passages), spans, values[key])

    def _ask(self, question: str, values: dict[str, str]) -> str:
        text = fill(question, values)
        style = self.rng.random()
        if style < 0.08:
            return self.rng.choice(QUESTION_OPENINGS) + text
        if style < 0.14:
            return text.rstrip("?")
        return text

    def _gold(self, statement: str, key: str, values: dict[str, str]) -> tuple[str, tuple[int, int] | None]:
        """The statement with its answer's place; marks stand for the answer while the text is decorated."""
        marked = fill(statement, {**values, key: f"\x01{values[key]}\x02"}).lstrip()
        text = self._decorate(marked, cut=False)
        start = text.index("\x01")
        end = text.index("\x02") - 1
        clean = text.replace("\x01", "").replace("\x02", "")
        if start == 0:
            clean = clean[0].upper() + clean[1:]
        return clean, (start, end)

    def _wrong(self, frame: Frame, key: str, question: str, values: dict[str, str], number: int) -> str:
        """A passage that does not answer: the first ones are the hardest."""
        style = self.rng.random()
        keys = sorted(_letters(question))
        if keys and style < (0.75 if number < 2 else 0.45):
            return self._decorate(
                fill(self.rng.choice(frame.statements), self._near(frame, key, keys, values))
            )
        if style < 0.9:
            return self._decorate(self._same_subject(frame, keys, values))
        other = self.rng.choice([f for f in frames() if f is not frame])
        return self._decorate(fill(self.rng.choice(other.statements), self.values(other)))

    def _near(self, frame: Frame, key: str, keys: list[str], values: dict[str, str]) -> dict[str, str]:
        """The same relation about something else: one named part differs at least, the answer too."""
        kinds = dict(frame.slots)
        numbered = [k for k in keys if kinds[k] == "ordinal"]
        changed = {self.rng.choice(numbered if numbered and self.rng.random() < 0.7 else keys)}
        changed |= {k for k in kinds if k not in keys or self.rng.random() < 0.2}
        fresh = dict(values)
        for letter in sorted(changed | {key}):
            while fresh[letter] == values[letter]:
                fresh[letter] = self.words.near(kinds[letter], values[letter])
        return fresh

    def _same_subject(self, frame: Frame, keys: list[str], values: dict[str, str]) -> str:
        """Another relation that tells something of an entity of the question."""
        kinds = dict(frame.slots)
        subject = {kinds[k]: values[k] for k in keys}
        others = [
            f
            for f in frames()
            if f is not frame and not _alike(f, frame) and subject.keys() & {k for _, k in f.slots}
        ]
        if not others:
            return fill(self.rng.choice(frame.statements), self.values(frame))
        other = self.rng.choice(others)
        fresh = self.values(other)
        for letter, kind in other.slots:
            if kind in subject:
                fresh[letter] = subject.pop(kind)
        return fill(self.rng.choice(other.statements), fresh)

    def _decorate(self, text: str, cut: bool = True) -> str:
        style = self.rng.random()
        if style < 0.12:
            lower = (
                text[0].lower() + text[1:] if text.startswith(("The ", "In ", "A ", "At ", "On ")) else text
            )
            return self.rng.choice(OPENINGS) + lower
        if style < 0.22:
            return text + self.rng.choice(CLOSINGS)
        if style < 0.28:
            other = self.rng.choice(frames())
            extra = fill(self.rng.choice(other.statements), self.values(other))
            return f"{text} {extra}" if self.rng.random() < 0.5 else f"{extra} {text}"
        if cut and style < 0.34:
            words = text.split()
            return (
                " ".join(words[: self.rng.randint(2, len(words))])
                if self.rng.random() < 0.5
                else " ".join(words[self.rng.randint(0, len(words) - 2) :])
            )
        return text


def _alike(one: Frame, other: Frame) -> bool:
    """Frames that share a question's first words, or that tell of posts, may answer each other: no safe negatives."""
    if {"role"} & {kind for _, kind in one.slots} & {kind for _, kind in other.slots}:
        return True
    heads = {" ".join(text.split()[:3]) for _, text in one.questions}
    return bool(heads & {" ".join(text.split()[:3]) for _, text in other.questions})
