"""The context of a question: passages, citations, and what to do if passages disagree.

A short answer that was copied from a passage is traced by its words alone; only whole sentences that an LLM composed
go to the checker.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kcard.interfaces import Checker, Pair, Reader
from kcard.offline.extract import MISSING_NUMBER, content_stems, share_of
from kcard.offline.reader import read_all
from kcard.selectors.factuality import support
from kcard.text import numbers, ordinals_as_in, sentence_spans, spaced_words, split_sentences, words
from kcard.types import Choice, Citation, Context, Passage, Quote, Source


def without_duplicates(passages: Sequence[Passage]) -> list[Passage]:
    """Return the non-empty passages in their order; of equal texts the first, or else the retrieved one."""
    first: dict[str, Passage] = {}
    for passage in passages:
        if passage.text.strip():
            earlier = first.setdefault(passage.text, passage)
            if earlier.source is None and passage.source is not None:
                first[passage.text] = passage
    return list(first.values())


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


# Decide between a card's model and its index when they disagree.
#
# Both know only the corpus, and an index mostly finds the answer if it is there. The model wins only if its passage
# fits the question clearly better, by a logistic regression (recipes/judge) that predicts the log-odds that the model
# is right and the index wrong, given that one of them is.

WEIGHTS = Path(__file__).with_name("judge.json")
CLEARLY = 1.0  # log-odds from which the model wins
MOST = 8.0  # the reader's log-odds are clipped to this


def beaten_by_index(questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[list[bool]]:
    """Tell for each question which passages of a card's model lose against the card's own index."""
    disputes = [
        (row, card)
        for row, candidates in enumerate(passages)
        for card in dict.fromkeys(p.card for p in candidates if p.source is None)
        if any(p.card == card and p.source is not None for p in candidates)
    ]
    own = [[p for p in passages[row] if p.card == card] for row, card in disputes]
    leads = features([(questions[row], found) for (row, _), found in zip(disputes, own, strict=True)])

    def log_odds(values: Mapping[str, float]) -> float:
        return sum(weight * values[name] for name, weight in _weights().items())

    lost = {key for key, values in zip(disputes, leads, strict=True) if log_odds(values) < CLEARLY}
    return [[p.source is None and (row, p.card) in lost for p in found] for row, found in enumerate(passages)]


def features(disputes: Sequence[tuple[str, Sequence[Passage]]]) -> list[dict[str, float]]:
    """Return by how much the best passage of a card's model fits the question better than the best of its index; each
    dispute is a question with passages of both.

    relevance  difference of the reader's log-odds, less the LLM's penalty for numbers that the passage lacks
    covered    difference of the shares of the question's words, in [-1, 1]
    """
    texts_of_disputes = [
        (ordinals_as_in([_text(p) for p in passages], question), [_text(p) for p in passages])
        for question, passages in disputes
    ]
    leads = []
    for (question, texts), readings, (_, passages) in zip(
        texts_of_disputes, read_all(texts_of_disputes), disputes, strict=True
    ):
        stated = [p.source is None for p in passages]
        relevance = [
            max(-MOST, min(MOST, r.relevance - MISSING_NUMBER * len(numbers(question) - numbers(text))))
            for r, text in zip(readings, texts, strict=True)
        ]
        stems = content_stems(question)
        covered = [share_of(stems, text) for text in texts]
        leads.append({"bias": 1.0, "relevance": _lead(relevance, stated), "covered": _lead(covered, stated)})
    return leads


def _text(passage: Passage) -> str:
    return passage.source.in_context if passage.source else passage.text


def _lead(scores: Sequence[float], written: Sequence[bool]) -> float:
    """Return the model's best score less the best one of its index."""
    own = max(score for score, by_model in zip(scores, written, strict=True) if by_model)
    return own - max(score for score, by_model in zip(scores, written, strict=True) if not by_model)


@cache
def _weights() -> Mapping[str, float]:
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


# Cards that contradict each other: the user is warned, with the dates of their knowledge, and the newest goes first.
#
# A card's answer is the words of its passage that answer the question; cards disagree if their answers differ.

DOUBTFUL = 0.5
SMALL_WORDS = {"a", "an", "the", "of"}


def resolve_conflicts(
    question: str, context: Context, cards: Mapping[str, Choice], reader: Reader, reorder: bool = True
) -> Context:
    """Return the context unchanged if its cards agree, else with a note and the newest card's passages in front.

    The order is kept without `reorder`, and if the LLM sees the passages in several rounds (Context.turns).

    Only each card's best passage that relevance kept is compared; those that their own evidence doubts (known support
    below 0.5) are left out.
    """
    # The answer of each card, read from its best passage.
    best: dict[str, Passage] = {}
    for p in sorted(context.passages, key=lambda p: not p.kept):
        relevant = p.kept or p.pruned is not None
        doubtful = p.support is not None and p.support < DOUBTFUL
        if relevant and not doubtful:
            best.setdefault(p.card, p)
    if len(best) < 2:
        return context
    read = {name: reader.extract(question, p.knowledge) for name, p in best.items()}
    answers = {name: answer for name, answer in read.items() if answer}
    # Answers differ if neither holds all words of the other: "Vance" and "J. D. Vance" agree.
    contents = [set(words(answer)) - SMALL_WORDS for answer in answers.values()]
    if not any(not one <= other and not other <= one for one in contents for other in contents):
        return context
    dates = {name: cards[name].date if name in cards else None for name in answers}
    newest = sorted(answers, key=lambda name: dates[name] or "", reverse=True)
    claims = ", ".join(f"{name} ({dates[name] or 'no date'}) says {answers[name]!r}" for name in newest)
    notes = (*context.notes, f"cards disagree: {claims}")
    if not reorder or sum(turn.documents > 0 for turn in context.turns) > 1:
        return replace(context, notes=notes)
    front = [p for p in context.passages if p.kept]
    place = {name: i for i, name in enumerate(newest)}
    front.sort(key=lambda p: place.get(p.card, len(place)))
    others = [p for p in context.passages if not p.kept]
    return replace(context, passages=(*front, *others), notes=notes)
