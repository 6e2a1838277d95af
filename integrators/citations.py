"""Citations: the passage, and the line of its file, that a sentence of an answer rests on."""

import re
from collections.abc import Sequence
from dataclasses import replace

from kcard.interfaces import Checker, Pair
from kcard.selectors.factuality import support
from kcard.text import sentence_spans, spaced_words, split_sentences, words
from kcard.types import Citation, Passage, Quote, Source

CLAIM = 4  # words, below which a sentence is not a claim that a checker could judge
SUPPORTED = 0.5
BORDER = re.compile(r"(\n| … |^(?:Yes|No): )")  # between quoted parts
VERDICT = re.compile(r"^(?:Yes|No): ")


def cite(answer: str, passages: Sequence[Passage], checker: Checker) -> tuple[Citation, ...]:
    """Return one citation per sentence of the answer; none if no passage was kept.

    A sentence whose words stand in a row in a kept passage cites the first such passage, with support 1. Any other of
    at least four words cites the passage that supports it most by the checker, if that support is 0.5 or more.
    """
    texts = [(i, p.knowledge) for i, p in enumerate(passages) if p.kept]
    sentences = split_sentences(VERDICT.sub("", answer)) if texts else []
    spoken = [_first_holder(sentence, texts) for sentence in sentences]
    open_ = [
        s for s, holder in zip(sentences, spoken, strict=True) if holder is None and len(words(s)) >= CLAIM
    ]
    # The checker finds the passage that supports each of the others most.
    judged: dict[str, Citation] = {}
    if open_:
        pairs = [Pair(sentence, text) for sentence in open_ for _, text in texts]
        scores = support(checker, pairs).reshape(len(open_), len(texts))
        for sentence, row in zip(open_, scores, strict=True):
            best = int(row.argmax())
            score = float(row[best])
            judged[sentence] = Citation(sentence, texts[best][0] if score >= SUPPORTED else None, score)
    citations = [
        Citation(sentence, holder, 1.0) if holder is not None else judged.get(sentence, Citation(sentence))
        for sentence, holder in zip(sentences, spoken, strict=True)
    ]
    return tuple(
        citation if citation.passage is None else replace(citation, line=_line(citation, passages))
        for citation in citations
    )


def cite_quote(answer: str, quote: Quote, passages: Sequence[Passage]) -> tuple[Citation, ...]:
    """Return the citation of an answer that the LLM took from a sentence which it quotes; nothing is searched."""
    kept_numbers = [i for i, p in enumerate(passages) if p.kept]
    if quote.passage >= len(kept_numbers):
        return ()
    citation = Citation(answer, kept_numbers[quote.passage], 1.0, without_headings(quote.text, passages))
    return (replace(citation, line=_line(citation, passages)),)


def line_of(quote: str, source: Source) -> int:
    """Return the first line of the sentence of the source that has these words in a row, or else most of them."""
    quoted = words(quote)
    row = r"[\W_]+".join(map(re.escape, quoted))
    place = re.search(rf"(?<![^\W_]){row}(?![^\W_])", source.text, re.IGNORECASE) if quoted else None
    sentences = sentence_spans(source.text)
    if place:
        begun = max((start for start, _ in sentences if start <= place.start()), default=place.start())
    else:
        shared = {start: len({*quoted} & {*words(source.text[start:end])}) for start, end in sentences}
        begun = max(shared, key=lambda start: shared[start], default=0)
    return source.line_at(begun)


def _line(citation: Citation, passages: Sequence[Passage]) -> int:
    passage = passages[citation.passage or 0]
    source = passage.source or passage.evidence
    return line_of(citation.quote or citation.sentence, source) if source else 0


def without_headings(answer: str, passages: Sequence[Passage]) -> str:
    """Remove the headings of kept passages from an answer that quotes them: "Backup > Locks: It waits."

    The LLM read these headings before each passage (Passage.knowledge); they are removed whole or from some word on.
    """
    sections = {p.source.section for p in passages if p.kept and p.source and p.source.section}
    if not sections:
        return answer
    parts = BORDER.split(answer)  # texts, and between them the borders
    for i, part in enumerate(parts[::2]):
        ends = (mark.end() for mark in re.finditer(": ", part))
        headings = (n for n in ends if any(f"{section}: ".endswith(part[:n]) for section in sections))
        parts[2 * i] = part[next(headings, 0) :]
    return "".join(parts)


def _first_holder(sentence: str, texts: Sequence[tuple[int, str]]) -> int | None:
    """Return the first passage that holds the words of the sentence in a row."""
    # Only telling words can be traced: a lone "A" or "no" stands in nearly every text.
    if not any(len(word) > 2 or not word.isascii() or word.isdigit() for word in words(sentence)):
        return None
    span = spaced_words(sentence)
    return next((i for i, text in texts if span in spaced_words(text)), None)
