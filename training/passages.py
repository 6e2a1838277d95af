"""Blocks of text become passages: what a card recites whole, a statement, a sentence or a few of them."""

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["cut"]

MAX_WORDS = 60
MAX_CHARACTERS = 480
# Scripts that put no blank between words: two Chinese characters, or four Thai letters, weigh as much as a word.
DENSE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")
END = re.compile("(?<=[。！？।॥؟۔\u104b\u17d4])(?![」』”’»）)])")
PAUSES = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", "،", "؛")
JOINER = "\u200d"
MARKS = ("Mn", "Mc", "Me")
MODIFIERS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f]")


def cut(text: str) -> Iterator[str]:
    """Passages of at most 60 words: the text itself, else its sentences, else pieces of a sentence.

    White space is made single blanks; no word is lost.
    """
    text = _clean(text)
    if not text:
        return
    if _fits(text):
        yield text
        return
    for sentence in _sentences(text):
        yield from [sentence] if _fits(sentence) else _pieces(sentence)


def _sentences(text: str) -> Iterator[str]:
    """By the full stops of all scripts; a text without blanks or stops is left whole."""
    from kcard.selectors.sentences import split

    for part in [text] if text.isascii() else END.split(text):
        if max(map(len, part.split(" "))) > MAX_CHARACTERS:
            yield part.strip()
        else:
            yield from split(part)


def _clean(text: str) -> str:
    """Single blanks, no control characters, and nothing that UTF-8 can't hold (half a surrogate pair)."""
    if not text.isprintable():
        text = INVISIBLE.sub(" ", text).encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split())


def _fits(text: str) -> bool:
    if len(text) > MAX_CHARACTERS:
        return False
    words = text.count(" ") + 1
    if not text.isascii():
        words += len(DENSE.findall(text)) // 2 + len(UNSPACED.findall(text)) // 4
    return words <= MAX_WORDS


def _pieces(sentence: str) -> Iterator[str]:
    """Cut an overlong sentence at the last clause border that fits, else at a word, else between characters."""
    rest = sentence
    while not _fits(rest):
        head = _head(rest)
        half = len(head) // 2
        at = max(head.rfind(mark, half) for mark in PAUSES)
        at = at + 1 if at > 0 else head.rfind(" ", half)
        at = at if at > 0 else _between_characters(rest, len(head))
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def _head(text: str) -> str:
    """The longest beginning that fits."""
    low, high = 1, min(len(text), MAX_CHARACTERS)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(text[:middle]) else (low, middle - 1)
    return text[:low]


def _between_characters(text: str, at: int) -> int:
    """The place at or before `at` that parts no accent, vowel sign or joined emoji from its character."""
    for place in range(at, at // 2, -1):
        joined = text[place - 1] == JOINER or text[place] == JOINER
        if not joined and unicodedata.category(text[place]) not in MARKS and text[place] not in MODIFIERS:
            return place
    return at
