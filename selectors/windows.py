"""Evidence in windows of one and two sentences, and whether the numbers of a claim stand in one of them."""

import functools
import re
from collections.abc import Iterable, Sequence

from kcard.sentences import pieces, split, whole
from kcard.words import analyzer, small_words

__all__ = ["COVERED", "coverage", "covered", "grounded", "near", "windows"]

WORDS = re.compile(r"\w+")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COMPARISON = re.compile(
    r"\b(?:than|at least|at most|over|under|about|around|nearly|almost|before|after)\b", re.IGNORECASE
)
LONGEST = 80
MOST = 8000
# Share of a claim's words that a text must have in one place to speak of what the claim says (docs/selectors.md).
COVERED = 0.4
READ = 4  # windows of a text
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SPELLED = {word: str(i) for words in (NUMERALS, ORDINALS) for i, word in enumerate(words, start=1)}


def near(evidence: str, claim: str) -> list[str]:
    """The sentences of the evidence in order; of more than 8000 characters only the nearest.

    The nearest pieces (sentences.py) are those that share most words with the claim. So the time that a text
    takes is bounded.
    """
    found = pieces(evidence)
    if sum(map(len, found)) > MOST:
        wanted, room = _words(claim), MOST
        chosen = []
        for i in sorted(range(len(found)), key=lambda i: (-len(wanted & _words(found[i])), i)):
            if len(found[i]) <= room:
                chosen.append(i)
                room -= len(found[i])
        found = [found[i] for i in sorted(chosen)]
    return [sentence for piece in found for sentence in split(piece)]


def windows(sentences: Sequence[str], claim: str, most: int) -> list[str]:
    """The windows that share most words with the claim, best first, at most `most`; shorter ones first."""
    sentences = [piece for sentence in sentences for piece in _cut(sentence)]
    pairs = [" ".join(sentences[i : i + 2]) for i in range(len(sentences) - 1)]
    wanted = _words(claim)
    found = list(dict.fromkeys([*sentences, *pairs]))
    return sorted(found, key=lambda w: (-len(wanted & _words(w)), len(w)))[:most]


def grounded(claim: str, window: str) -> bool:
    """Whether every number of the claim stands in the window, and at least one of its words.

    A claim that compares ("more than 280") may hold without its number being there. On windows without a common
    word, "word word word", the network guesses.
    """
    if not _words(claim) & _words(window):
        return False
    there = _numbers(window) | {SPELLED[word] for word in _words(window) & SPELLED.keys()}
    return bool(COMPARISON.search(claim)) or _numbers(claim) <= there


def covered(claim: str, window: str) -> float:
    """The share of a claim's telling words whose stems the window has, in [0, 1]; 1 for a claim without any."""
    stems = analyzer("english")
    telling = set(stems(" ".join(_words(claim) - small_words("en"))))
    return len(telling & set(stems(window))) / len(telling) if telling else 1.0


def coverage(claim: str, evidence: Iterable[str]) -> float:
    """How far the texts speak of what a claim says, in [0, 1], whether they bear it out or not.

    For each sentence of the claim the largest share of its telling words that one window has; the mean of these.
    """
    sentences = whole(claim) or [claim]
    texts = [near(text, claim) for text in dict.fromkeys(evidence)]
    best = [
        max((covered(part, w) for found in texts for w in windows(found, part, READ)), default=0.0)
        for part in sentences
    ]
    return sum(best) / len(best)


def _cut(sentence: str) -> list[str]:
    """Text without full stops can be endless; the network reads about 120 words."""
    words = sentence.split()
    return [" ".join(words[i : i + LONGEST]) for i in range(0, len(words), LONGEST)]


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(WORDS.findall(text.lower()))


def _numbers(text: str) -> set[str]:
    """Figures without thousands commas; 7th counts as 7."""
    return {match.replace(",", "").rstrip(".") for match in NUMBER.findall(text)}
