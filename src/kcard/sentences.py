"""Text to sentences, by pysbd's rules: initials, titles and abbreviations end none ("J. D. Vance", "U.S. Senate").

Its rules are English; other scripts split at their own full stops as far as those rules know them.
"""

import functools
import re
import warnings
from collections.abc import Iterator
from typing import Any

from kcard.plain_sentences import certain, is_one

__all__ = ["pieces", "spans", "split", "whole"]

# pysbd's time grows with the square of the text: 8 kB take 0.08 s, 230 kB more than a minute.
PIECE = 1000
# It also grows with the full stops. More than one in 20 characters of a long piece is not prose ("a. b. c.").
STOPS, DENSE, LONG = re.compile(r"[.!?。！？]"), 0.05, 400
PLAIN_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
BOUNDARY = re.compile(r"(?<=\w\w[.!?])\s+")
UNFINISHED = re.compile(r"(?:^|\s)(?:approx|ca|c|cf|fl|b|d|r)\.$", re.IGNORECASE)
END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]*$")


@functools.cache
def _segmenter() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has escapes that Python warns of when it compiles them
        import pysbd
    return pysbd.Segmenter(language="en", clean=False)


def split(text: str) -> list[str]:
    """The sentences of a text in order, stripped; a line break ends one. Nothing is lost but white space."""
    return [sentence for piece in pieces(text) for sentence in _sentences(piece)]


def spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text stand in it: (start, end) of each, in order, without white space around them."""
    return list(_spans(text))


@functools.lru_cache(maxsize=4096)
def _spans(text: str) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    at = 0
    for sentence in split(text):
        words = r"\s+".join(map(re.escape, sentence.split()))
        if place := re.compile(words).search(text, at):
            found.append(place.span())
            at = place.end()
    return tuple(found)


def pieces(text: str) -> list[str]:
    """The text in order in pieces of at most about 1000 characters that end where a line or a sentence does."""
    return [piece for line in text.splitlines() for piece in _pieces(line)]


def whole(text: str) -> list[str]:
    """The sentences without a last one that was cut off: it has no end mark where all others have one."""
    sentences = split(text)
    cut = len(sentences) > 1 and not END.search(sentences[-1]) and all(END.search(s) for s in sentences[:-1])
    return sentences[:-1] if cut else sentences


@functools.lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    found: list[str] = []
    dense = len(text) > LONG and len(STOPS.findall(text)) > DENSE * len(text)
    for part in PLAIN_END.split(text) if dense else _segments(text):
        sentence = part.strip()
        if found and UNFINISHED.search(found[-1]):
            found[-1] += f" {sentence}"
        elif sentence:
            found.append(sentence)
    return tuple(found)


def _segments(text: str) -> Iterator[str]:
    for part in certain(text):
        if is_one(part):
            yield part
        else:
            yield from _segmenter().segment(part)


def _pieces(line: str) -> list[str]:
    """The line in pieces of at most about PIECE characters, cut after words that end in a full stop."""
    rest, found = line.strip(), []
    while len(rest) > PIECE:
        cuts = [match.end() for match in BOUNDARY.finditer(rest, 0, PIECE)]
        cut = cuts[-1] if cuts else rest.rfind(" ", 0, PIECE) + 1 or PIECE
        found.append(rest[:cut])
        rest = rest[cut:]
    return [*found, rest] if rest else found
