"""Evidence in windows of one and two sentences, and whether the numbers of a claim stand in one of them."""

import functools
import re

from kcard.selectors.sentences import split

__all__ = ["grounding", "windows"]

WORDS = re.compile(r"\w+")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COMPARISON = re.compile(
    r"\b(?:than|at least|at most|over|under|about|around|nearly|almost|before|after)\b", re.IGNORECASE
)
LONGEST = 80
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SPELLED = {word: str(i) for words in (NUMERALS, ORDINALS) for i, word in enumerate(words, start=1)}


def windows(evidence: str, claim: str, most: int) -> list[str]:
    """The windows that share most words with the claim, best first, at most `most`; shorter ones first."""
    sentences = _sentences(evidence)
    pairs = [" ".join(sentences[i : i + 2]) for i in range(len(sentences) - 1)]
    wanted = _words(claim)
    found = list(dict.fromkeys([*sentences, *pairs]))
    return sorted(found, key=lambda w: (-len(wanted & _words(w)), len(w)))[:most]


def grounding(claim: str, window: str) -> float:
    """Share of the claim's numbers that stand in the window, in [0, 1]; 1 where it has none.

    Also 1 where the claim compares ("more than 280"): it may hold without its number being there.
    """
    wanted = _numbers(claim)
    if not wanted or COMPARISON.search(claim):
        return 1.0
    there = _numbers(window) | {SPELLED[word] for word in _words(window) & SPELLED.keys()}
    return len(wanted & there) / len(wanted)


@functools.lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(piece for sentence in split(text) for piece in _cut(sentence))


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
