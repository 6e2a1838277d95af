"""Citations: the passage, and the line of its file, that a sentence of an answer rests on."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kcard.interfaces import Checker, Pair
from kcard.llms.extraction.entries import term_of
from kcard.selectors.factuality import support
from kcard.text import sentence_spans, spaced_words, split_sentences, words
from kcard.types import Citation, Passage, Quote, Source

MIN_CLAIM_WORDS = 4  # a shorter sentence is not a claim that a checker could judge
MIN_SUPPORT = 0.5
PART_BORDER = re.compile(r"(\n| … |^(?:Yes|No): )")  # between quoted parts
VERDICT = re.compile(r"^(?:Yes|No): ")


def cite(answer: str, passages: Sequence[Passage], checker: Checker) -> tuple[Citation, ...]:
    """Return one citation per sentence of the answer; none if no passage was kept.

    A sentence whose words stand in a row in a kept passage cites the first such passage, with support 1. Any other of
    at least four words cites the passage that supports it most by the checker, if that support is 0.5 or more.
    """
    texts = {}
    for number, passage in enumerate(passages):
        if passage.kept:
            texts[number] = passage.knowledge
    if not texts:
        return ()
    citations = []
    unknown, pairs = [], []
    for sentence in split_sentences(VERDICT.sub("", answer)):
        holder = _first_holder(sentence, texts)
        if holder is not None:
            citations.append(Citation(sentence, holder, 1.0))
            continue
        if len(words(sentence)) >= MIN_CLAIM_WORDS:
            unknown.append(len(citations))
            pairs += [Pair(sentence, text) for text in texts.values()]
        citations.append(Citation(sentence))
    # The checker finds the passage that supports each of the others most.
    scores = support(checker, pairs).reshape(-1, len(texts))
    numbers = list(texts)
    for place, row in zip(unknown, scores, strict=True):
        best = int(row.argmax())
        citation = replace(citations[place], support=float(row[best]))
        if row[best] >= MIN_SUPPORT:
            citation = replace(citation, passage=numbers[best])
        citations[place] = citation
    return tuple(_with_line(citation, passages) for citation in citations)


def cite_quote(answer: str, quote: Quote, passages: Sequence[Passage]) -> tuple[Citation, ...]:
    """Return the citation of an answer that the LLM took from a sentence which it quotes; nothing is searched."""
    kept_numbers = [i for i, p in enumerate(passages) if p.kept]
    if quote.passage >= len(kept_numbers):
        return ()
    citation = Citation(answer, kept_numbers[quote.passage], 1.0, without_headings(quote.text, passages))
    return (_with_line(citation, passages),)


def line_of(quote: str, source: Source) -> int:
    """Return the first line of the sentence of the source that has these words in a row, or else most of them."""
    quoted = words(quote)
    sentences = sentence_spans(source.text)
    if quoted:
        row = r"[\W_]+".join(map(re.escape, quoted))
        place = re.search(rf"(?<![^\W_]){row}(?![^\W_])", source.text, re.IGNORECASE)
        if place:
            nearest = place.start()
            for start, _ in sentences:
                if start <= place.start():
                    nearest = start
            return source.line_at(nearest)
    nearest, most_shared = 0, -1
    for start, end in sentences:
        shared = len(set(quoted) & set(words(source.text[start:end])))
        if shared > most_shared:
            nearest, most_shared = start, shared
    return source.line_at(nearest)


def _with_line(citation: Citation, passages: Sequence[Passage]) -> Citation:
    """Return a citation with the line of its file, if it cites a passage whose source is known."""
    if citation.passage is None:
        return citation
    passage = passages[citation.passage]
    source = passage.source or passage.evidence
    if source is None:
        return citation
    return replace(citation, line=line_of(citation.quote or citation.sentence, source))


def without_headings(answer: str, passages: Sequence[Passage]) -> str:
    """Remove the headings of kept passages from an answer that quotes them: "Backup > Locks: It waits."

    The LLM read these headings before each passage (Passage.knowledge); they are removed whole or from some word on. An
    option or command that is the last part of a heading stays: "Backup > --locks: It waits."
    """
    headings = set()
    for passage in passages:
        if passage.kept and passage.source and passage.source.section:
            headings.add(f"{passage.source.section}: ")
    if not headings:
        return answer
    parts = PART_BORDER.split(answer)  # texts, and between them the borders
    for i in range(0, len(parts), 2):
        parts[i] = _without_heading(parts[i], headings)
    return "".join(parts)


def _without_heading(text: str, headings: Collection[str]) -> str:
    for colon in re.finditer(": ", text):
        opening = text[: colon.end()]
        if any(heading.endswith(opening) for heading in headings):
            term = term_of(opening)
            if term:
                return f"{term}: {text[colon.end() :]}"
            return text[colon.end() :]
    return text


def _first_holder(sentence: str, texts: Mapping[int, str]) -> int | None:
    """Return the number of the first text that holds the words of the sentence in a row."""
    # Only telling words can be traced: a lone "A" or "no" stands in nearly every text.
    if not any(len(word) > 2 or not word.isascii() or word.isdigit() for word in words(sentence)):
        return None
    span = spaced_words(sentence)
    for number, text in texts.items():
        if span in spaced_words(text):
            return number
    return None
