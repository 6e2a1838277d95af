"""Which kept passage each sentence of an answer rests on: the first step from an answer back to its source.

A short answer that was copied out of a passage is found by its words alone; only whole sentences that an LLM
put together go to the checker.
"""

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from kcard.answer import Citation, Passage, Source
from kcard.protocols import Checker, Pair
from kcard.request import Quote
from kcard.selectors.verdicts import support
from kcard.sentences import spans, split
from kcard.words import words

__all__ = ["cite", "cite_quote", "line_of", "without_headings"]

# Fewer words are not a claim that a checker could judge.
CLAIM = 4
SUPPORTED = 0.5
BORDER = re.compile(r"(\n| … |^(?:Yes|No): )")  # between quoted parts
VERDICT = re.compile(r"^(?:Yes|No): ")


def cite(answer: str, passages: Sequence[Passage], checker: Checker) -> tuple[Citation, ...]:
    """One citation a sentence of the answer; none where no passage was kept.

    A sentence whose words stand in a row in a kept passage rests on the first such one, support 1. Another of
    at least four words rests on the passage by which the checker supports it most, if that is 0.5 or more.
    """
    kept = [(i, p.knowledge) for i, p in enumerate(passages) if p.kept]
    sentences = split(VERDICT.sub("", answer)) if kept else []
    spoken = [_copied(sentence, kept) for sentence in sentences]
    open_ = [
        s for s, found in zip(sentences, spoken, strict=True) if found is None and len(words(s)) >= CLAIM
    ]
    judged = _judged(open_, kept, checker)
    citations = [
        Citation(sentence, found, 1.0) if found is not None else judged.get(sentence, Citation(sentence))
        for sentence, found in zip(sentences, spoken, strict=True)
    ]
    return tuple(
        citation if citation.passage is None else replace(citation, line=_line(citation, passages))
        for citation in citations
    )


def cite_quote(answer: str, quote: Quote, passages: Sequence[Passage]) -> tuple[Citation, ...]:
    """The citation of words that an LLM took out of a sentence which it names: no passage is sought for them."""
    kept = [i for i, p in enumerate(passages) if p.kept]
    if quote.passage >= len(kept):
        return ()
    citation = Citation(answer, kept[quote.passage], 1.0, without_headings(quote.text, passages))
    return (replace(citation, line=_line(citation, passages)),)


def line_of(quote: str, source: Source) -> int:
    """Return the line of the file on which the sentence of the source begins that has these words in a row, or else
    most of them."""
    wanted = words(quote)
    row = r"[\W_]+".join(map(re.escape, wanted))
    place = re.search(rf"(?<![^\W_]){row}(?![^\W_])", source.text, re.IGNORECASE) if wanted else None
    sentences = spans(source.text)
    if place:
        begun = max((start for start, _ in sentences if start <= place.start()), default=place.start())
    else:
        shared = {start: len({*wanted} & {*words(source.text[start:end])}) for start, end in sentences}
        begun = max(shared, key=lambda start: shared[start], default=0)
    return source.line_at(begun)


def _line(citation: Citation, passages: Sequence[Passage]) -> int:
    passage = passages[citation.passage or 0]
    source = passage.source or passage.evidence
    return line_of(citation.quote or citation.sentence, source) if source else 0


def without_headings(answer: str, passages: Sequence[Passage]) -> str:
    """Take the headings of the kept passages out of an answer that quotes these: "Backup > Locks: It waits."

    They are what an LLM read before each passage (Passage.knowledge), whole or from some word on.
    """
    sections = {p.source.section for p in passages if p.kept and p.source and p.source.section}
    if not sections:
        return answer
    parts = BORDER.split(answer)  # texts, and between them the borders
    parts[::2] = [_without_heading(part, sections) for part in parts[::2]]
    return "".join(parts)


def _without_heading(text: str, sections: Set[str]) -> str:
    for end in (mark.end() for mark in re.finditer(": ", text)):
        if any(f"{section}: ".endswith(text[:end]) for section in sections):
            return text[end:]
    return text


def _copied(sentence: str, kept: Sequence[tuple[int, str]]) -> int | None:
    """The first passage that holds the words of the sentence in a row."""
    wanted = words(sentence)
    if not _telling(wanted):
        return None
    span = f" {' '.join(wanted)} "
    return next((i for i, text in kept if span in f" {' '.join(words(text))} "), None)


def _telling(wanted: Sequence[str]) -> bool:
    """Whether these words can be traced: a lone "A" or "no" stands in nearly every text."""
    return any(len(word) > 2 or not word.isascii() or word.isdigit() for word in wanted)


def _judged(
    sentences: Sequence[str], kept: Sequence[tuple[int, str]], checker: Checker
) -> dict[str, Citation]:
    if not sentences:
        return {}
    pairs = [Pair(sentence, text) for sentence in sentences for _, text in kept]
    scores = support(checker, pairs).reshape(len(sentences), len(kept))
    found = {}
    for sentence, row in zip(sentences, scores, strict=True):
        best = int(row.argmax())
        score = float(row[best])
        found[sentence] = Citation(sentence, kept[best][0] if score >= SUPPORTED else None, score)
    return found
