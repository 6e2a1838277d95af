"""Text cut into pieces of a certain size, at the borders of lines and sentences."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Size", "count_words", "cut", "sentences"]

# Scripts that put no blank between words: two Chinese characters, or four Thai letters, weigh as much as a word.
DENSE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")
END = re.compile("(?<=[。！？।॥؟۔\u104b\u17d4])(?![」』”’»）)])")
PAUSES = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", "،", "؛")
UNBROKEN = 480  # characters without a blank: no sentences are sought in them
JOINER = "\u200d"
MARKS = ("Mn", "Mc", "Me")
MODIFIERS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Size:
    """At most so many words and characters."""

    words: int
    characters: int

    def holds(self, text: str) -> bool:
        return len(text) <= self.characters and count_words(text) <= self.words


def count_words(text: str) -> int:
    """Words between blanks; in scripts without blanks, what would weigh as much."""
    words = text.count(" ") + text.count("\n") + 1
    if not text.isascii():
        words += len(DENSE.findall(text)) // 2 + len(UNSPACED.findall(text)) // 4
    return words


def cut(text: str, size: Size) -> Iterator[str]:
    """Pieces that hold as many whole lines, or else whole sentences, as `size` allows; a longer sentence in parts.

    A line and those indented deeper below it, such as an option and what it does, stay together where `size` holds all.
    Within a line white space becomes single blanks, unless the line is indented; no word is lost.
    """
    text = _clean(text)
    if not text:
        return
    if size.holds(text):
        yield text
        return
    lines = text.split("\n")
    if len(lines) > 1:
        yield from _packed(_entries(lines, size), size, "\n")
    else:
        yield from _packed(_sentences(text), size, " ")


def sentences(text: str, size: Size) -> Iterator[str]:
    """Each line that `size` holds, the sentences of a longer one, and an overlong sentence in parts."""
    for line in _clean(text).split("\n"):
        if line.strip():
            for sentence in [line] if size.holds(line) else _sentences(line):
                yield from [sentence] if size.holds(sentence) else _pieces(sentence, size)


def _entries(lines: Sequence[str], size: Size) -> Iterator[str]:
    """Lines with those that are indented deeper below them; where `size` does not hold that, the same of these."""
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    least = min(indents)
    starts = [at for at, indent in enumerate(indents) if indent == least or at == 0]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        entry = "\n".join(lines[start:end])
        if end - start == 1 or size.holds(entry):
            yield entry
        else:
            first, *deeper = _entries(lines[start + 1 : end], size)
            lead = f"{lines[start]}\n{first}"
            yield from [lead, *deeper] if size.holds(lead) else [lines[start], first, *deeper]


def _packed(parts: Iterable[str], size: Size, blank: str) -> Iterator[str]:
    """Neighbours joined as long as `size` holds them."""
    gathered = ""
    for part in parts:
        if gathered and size.holds(joined := gathered + blank + part):
            gathered = joined
            continue
        if gathered:
            yield gathered
        *whole, gathered = [part] if size.holds(part) else [*cut_line(part, size)]
        yield from whole
    if gathered:
        yield gathered


def cut_line(line: str, size: Size) -> Iterator[str]:
    """A line in pieces: its sentences packed, an overlong one in parts."""
    found = [*_sentences(line)]
    yield from _packed(found, size, " ") if len(found) > 1 else _pieces(line, size)


def _sentences(text: str) -> Iterator[str]:
    """By the full stops of all scripts; a text without blanks or stops is left whole."""
    from kcard.sentences import split

    for part in [text] if text.isascii() else END.split(text):
        if max(map(len, part.split(" "))) > UNBROKEN:
            yield part.strip()
        else:
            yield from split(part)


def _clean(text: str) -> str:
    """Single blanks within lines, no empty lines, no control characters, and nothing that UTF-8 can't hold (half a
    surrogate pair)."""
    if not text.isprintable():
        text = INVISIBLE.sub(" ", text.expandtabs()).encode("utf-8", "replace").decode("utf-8")
    if "\n" not in text:
        return " ".join(text.split())
    lines = (line.rstrip() for line in text.split("\n"))
    return "\n".join(line if line[0] == " " else " ".join(line.split()) for line in lines if line).strip("\n")


def _pieces(sentence: str, size: Size) -> Iterator[str]:
    """Cut an overlong sentence at the last clause border that fits, else at a word, else between characters."""
    rest = sentence
    while not size.holds(rest):
        head = _head(rest, size)
        half = len(head) // 2
        at = max(head.rfind(mark, half) for mark in PAUSES)
        at = at + 1 if at > 0 else head.rfind(" ", half)
        at = at if at > 0 else _between_characters(rest, len(head))
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def _head(text: str, size: Size) -> str:
    """The longest beginning that fits."""
    low, high = 1, min(len(text), size.characters)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size.holds(text[:middle]) else (low, middle - 1)
    return text[:low]


def _between_characters(text: str, at: int) -> int:
    """The place at or before `at` that parts no accent, vowel sign or joined emoji from its character."""
    for place in range(at, at // 2, -1):
        joined = text[place - 1] == JOINER or text[place] == JOINER
        if not joined and unicodedata.category(text[place]) not in MARKS and text[place] not in MODIFIERS:
            return place
    return at
