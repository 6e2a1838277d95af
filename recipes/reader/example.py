"""One reading example: a question, a text, and what of the text answers it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kcard.text import sentence_spans as sentences

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Reading:
    """What the reader is to say of a text.

    section   the headings over the text, or its title; put before it
    answered  whether the text answers the question
    spans     (start, end) in `text` of every right answer in words; none where only sentences answer
    evidence  (start, end) of the sentences that the answer rests on
    group     what must not stand on both sides of a split: an article, a manual
    near      (section, text) of texts that are like it and do not answer, the likest first
    """

    question: str
    section: str
    text: str
    answered: bool = True
    spans: Spans = ()
    evidence: Spans = ()
    group: str = ""
    near: tuple[tuple[str, str], ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(self.text[a:b] for a, b in self.spans)


def around(reading: Reading, words: int, order: Iterator[bool]) -> Reading:
    """The sentence of the first answer with as many of its neighbours as fit into so many words.

    `order`: whether the one before comes next, where there is a choice.
    """
    spans = sentences(reading.text)
    marked = reading.evidence or reading.spans
    if not spans or not marked:
        return reading
    at = marked[0][0]
    first = last = next((i for i, (a, b) in enumerate(spans) if a <= at < b), 0)
    count = _count(reading.text, *spans[first])
    while True:
        sides = [i for i in (first - 1, last + 1) if 0 <= i < len(spans)]
        sides = [i for i in sides if count + _count(reading.text, *spans[i]) <= words]
        if not sides:
            break
        i = sides[0] if len(sides) == 1 or next(order) else sides[1]
        count += _count(reading.text, *spans[i])
        first, last = min(first, i), max(last, i)
    return _part(reading, spans[first][0], spans[last][1])


def without(reading: Reading) -> Reading | None:
    """The text without the sentences that answer, so that it does not; None where it still holds the answer's words."""
    rest, end = "", 0
    for a, b in sorted(reading.evidence):
        rest, end = rest + reading.text[end:a], b
    rest = f"{rest}{reading.text[end:]}".strip()
    answered = any(answer.lower() in rest.lower() for answer in reading.answers)
    if answered or rest.count(" ") < 12:
        return None
    return replace(reading, text=rest, answered=False, spans=(), evidence=())


def _part(reading: Reading, start: int, end: int) -> Reading:
    def inside(places: Spans) -> Spans:
        return tuple((a - start, b - start) for a, b in places if start <= a and b <= end)

    return replace(
        reading, text=reading.text[start:end], spans=inside(reading.spans), evidence=inside(reading.evidence)
    )


def _count(text: str, start: int, end: int) -> int:
    return text.count(" ", start, end) + 1
