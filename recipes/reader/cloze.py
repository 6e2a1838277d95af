"""Reading examples from claims that evidence supports: a word or phrase that both have is asked for in the claim.

The claims are those of VitaminC (--path, see recipes/checker). Claim and evidence say the same in other words, which
a reader of prose must learn to see through (Lewis et al., Unsupervised Question Answering by Cloze Translation, 2019).
"""

import gzip
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from recipes.reader.synth import Example

__all__ = ["Cloze"]

FILE = "train.jsonl.gz"
WORD = re.compile(r"\w+(?:[.,'’-]\w+)*%?")
MARKS = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("``", '"'), ("''", '"'))
LONGEST = 5
_SMALL = """
a an the of in on at to for from by with and or but is was were are be been as that this it its his her their he she
they has have had not no than more less over under about after before during while since who which what when where
"""
SMALL = frozenset(_SMALL.split())
LEADS = frozenset(["a", "an", "the", "of", "in", "as", "by", "for", "with"])
NUMBER = re.compile(r"[\d.,]+%?")
YEAR = re.compile(r"1\d{3}|20\d{2}")


@dataclass(frozen=True)
class Pair:
    claim: str
    evidence: str


class Cloze:
    """A seeded, endless source of examples from the supported claims under `folder`."""

    def __init__(self, folder: Path, seed: int, unanswerable: float = 0.3) -> None:
        self.folder, self.unanswerable = folder, unanswerable
        self.rng = random.Random(seed)

    @cached_property
    def pairs(self) -> list[Pair]:
        with gzip.open(self.folder / FILE, "rt", encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        told = [Pair(_plain(r["claim"]), _plain(r["evidence"])) for r in rows if r["label"] == "SUPPORTS"]
        return [pair for pair in dict.fromkeys(told) if any(shared(pair))]

    def example(self) -> Example:
        pair = self.rng.choice(self.pairs)
        spans = [s for s in shared(pair) if s]
        (start, end), (low, high) = self.rng.choices(spans, [_weight(pair.claim, s[0]) for s in spans])[0]
        question = self._question(pair.claim[:start], pair.claim[start:end], pair.claim[end:])
        others = [self.rng.choice(self.pairs).evidence for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2)))]
        answer = pair.evidence[low:high]
        if self.rng.random() < self.unanswerable:
            wrong = others or [self.rng.choice(self.pairs).evidence]
            return Example(
                question, tuple(t for t in wrong if answer.lower() not in t.lower()) or ("-",), (), answer
            )
        place = self.rng.randint(0, len(others))
        passages = [*others[:place], pair.evidence, *others[place:]]
        return Example(question, tuple(passages), ((place, low, high),), answer)

    def _question(self, before: str, answer: str, after: str) -> str:
        wh = self._asking(answer)
        before, after = before.strip(), after.strip().rstrip(".")
        if not before:
            return f"{wh} {after}?"
        before = before[0].lower() + before[1:] if before.split()[0].lower() in SMALL else before
        form = self.rng.random()
        if form < 0.4:
            return f"{before[0].upper()}{before[1:]} {wh.lower()} {after}?".replace(" ?", "?")
        return (
            f"{wh} {before} {after}?".replace(" ?", "?")
            if form < 0.75
            else f"{wh} {after} {before}?".replace("  ", " ")
        )

    def _asking(self, answer: str) -> str:
        if YEAR.fullmatch(answer):
            return self.rng.choice(("When", "What year", "In which year", "In what year"))
        if NUMBER.fullmatch(answer):
            return self.rng.choice(("How many", "How much", "What number", "How many"))
        if answer[0].isupper():
            return self.rng.choice(("Who", "What", "Which", "Who", "Where", "What is the name of"))
        return self.rng.choice(("What", "What", "Which", "What kind of", "How", "What did"))


def shared(pair: Pair) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(start, end) in the claim and in the evidence of each phrase that both have, which the evidence has once."""
    claim = list(WORD.finditer(pair.claim))
    words = [m.group().lower() for m in WORD.finditer(pair.evidence)]
    places = [m.span() for m in WORD.finditer(pair.evidence)]
    asked = [m.group().lower() for m in claim]
    for i in range(len(asked)):
        for length in range(min(LONGEST, len(asked) - i), 0, -1):
            phrase = asked[i : i + length]
            if length == len(asked) or not _whole(pair.claim, claim, i, i + length):
                continue
            found = [j for j in range(len(words) - length + 1) if words[j : j + length] == phrase]
            if len(found) == 1:
                j = found[0]
                yield (
                    (claim[i].start(), claim[i + length - 1].end()),
                    (places[j][0], places[j + length - 1][1]),
                )


def _whole(text: str, words: Sequence[re.Match[str]], first: int, end: int) -> bool:
    """Whether the words are a number, a name with all its parts, or a noun phrase after a small word."""
    if words[first].group().lower() in SMALL or words[end - 1].group().lower() in SMALL:
        return False
    before = words[first - 1].group() if first else ""
    after = words[end].group() if end < len(words) else ""
    if any(text[a.end() : b.start()] != " " for a, b in pairwise(words[first:end])):
        return False
    if end - first == 1 and NUMBER.fullmatch(words[first].group()):
        return True
    if all(word.group()[0].isupper() or word.group() in SMALL for word in words[first:end]):
        return not (before[:1].isupper() and first > 1) and not after[:1].isupper()
    lower = all(word.group()[0].islower() for word in words[first:end])
    return lower and before.lower() in LEADS and (after in SMALL or not after)


def _weight(claim: str, span: tuple[int, int]) -> float:
    """Numbers and names are asked for most, as people do; of phrases the longer."""
    text = claim[span[0] : span[1]]
    if NUMBER.fullmatch(text):
        return 3.0
    return (2.0 if text[0].isupper() else 1.0) * (1 + 0.3 * text.count(" "))


def _plain(text: str) -> str:
    for mark, plain in MARKS:
        text = text.replace(mark, plain)
    return re.sub(r"\s+([.,;:!?)'])", r"\1", " ".join(text.split())).replace("( ", "(")
