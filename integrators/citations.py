"""What cards wrote for a question as context: citations, and what to do where passages disagree.

A short answer that was copied out of a passage is found by its words alone; only whole sentences that an LLM
put together go to the checker.
"""

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kcard.interfaces import Checker, Pair, Reader
from kcard.offline.extract import MISSING_NUMBER, STEMS, asked_about
from kcard.offline.reader import read_all
from kcard.selectors.factuality import support
from kcard.text import numbers, ordinals_as_in, sentence_spans, split_sentences, words
from kcard.types import Choice, Citation, Passage, Quote, Source, Turn

__all__ = [
    "WEIGHTS",
    "Context",
    "beaten_by_index",
    "cite",
    "cite_quote",
    "features",
    "line_of",
    "resolve_conflicts",
    "without_duplicates",
    "without_headings",
]


# What an integrator hands on: every passage with its marks, and notes for the user.


@dataclass(frozen=True)
class Context:
    """Passages in the order in which the LLM reads the kept ones; `turns`: what led to them, in top-down and hybrid."""

    passages: tuple[Passage, ...] = ()
    notes: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the LLM reads: only what cards wrote, never the evidence."""
        return tuple(p.knowledge for p in self.passages if p.kept)

    @property
    def headings(self) -> tuple[str, ...]:
        """What stands over each of these, and at its beginning; empty texts where nothing does."""
        return tuple(p.source.section if p.source else "" for p in self.passages if p.kept)


def without_duplicates(passages: Sequence[Passage]) -> list[Passage]:
    """Non-empty passages in their order, of equal texts the first, or the one that was looked up."""
    first: dict[str, Passage] = {}
    for passage in passages:
        if passage.text.strip():
            earlier = first.setdefault(passage.text, passage)
            if earlier.source is None and passage.source is not None:
                first[passage.text] = passage
    return list(first.values())


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
    texts = [(i, p.knowledge) for i, p in enumerate(passages) if p.kept]
    sentences = split_sentences(VERDICT.sub("", answer)) if texts else []
    spoken = [_copied(sentence, texts) for sentence in sentences]
    open_ = [
        s for s, found in zip(sentences, spoken, strict=True) if found is None and len(words(s)) >= CLAIM
    ]
    judged = _judged(open_, texts, checker)
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
    numbers_kept = [i for i, p in enumerate(passages) if p.kept]
    if quote.passage >= len(numbers_kept):
        return ()
    citation = Citation(answer, numbers_kept[quote.passage], 1.0, without_headings(quote.text, passages))
    return (replace(citation, line=_line(citation, passages)),)


def line_of(quote: str, source: Source) -> int:
    """Return the line of the file on which the sentence of the source begins that has these words in a row, or else
    most of them."""
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


def _copied(sentence: str, texts: Sequence[tuple[int, str]]) -> int | None:
    """The first passage that holds the words of the sentence in a row."""
    spoken = words(sentence)
    if not _telling(spoken):
        return None
    span = f" {' '.join(spoken)} "
    return next((i for i, text in texts if span in f" {' '.join(words(text))} "), None)


def _telling(wanted: Sequence[str]) -> bool:
    """Whether these words can be traced: a lone "A" or "no" stands in nearly every text."""
    return any(len(word) > 2 or not word.isascii() or word.isdigit() for word in wanted)


def _judged(
    sentences: Sequence[str], texts: Sequence[tuple[int, str]], checker: Checker
) -> dict[str, Citation]:
    if not sentences:
        return {}
    pairs = [Pair(sentence, text) for sentence in sentences for _, text in texts]
    scores = support(checker, pairs).reshape(len(sentences), len(texts))
    citations = {}
    for sentence, row in zip(sentences, scores, strict=True):
        best = int(row.argmax())
        score = float(row[best])
        citations[sentence] = Citation(sentence, texts[best][0] if score >= SUPPORTED else None, score)
    return citations


# A model beside an index of the same corpus: which of the two is right where they disagree.
#
# Both can state only what stands in the corpus, and an index, if it has the answer, mostly finds it. The model counts
# where what it wrote fits the question clearly better, by a logistic regression that recipes/judge fits: the log-odds
# that the model is right and the index wrong, given that one of them is.

WEIGHTS = Path(__file__).with_name("judge.json")
CLEARLY = 1.0  # log-odds from which the model counts
MOST = 8.0  # log-odds of the reader beyond which it is as sure as can be


def beaten_by_index(questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[list[bool]]:
    """Which passages of each question were written by the model of a card whose index is rather right."""
    disputes = [
        (row, card)
        for row, found in enumerate(passages)
        for card in dict.fromkeys(p.card for p in found if p.source is None)
        if any(p.card == card and p.source is not None for p in found)
    ]
    own = [[p for p in passages[row] if p.card == card] for row, card in disputes]
    leads = features([(questions[row], found) for (row, _), found in zip(disputes, own, strict=True)])
    lost = {key for key, values in zip(disputes, leads, strict=True) if _log_odds(values) < CLEARLY}
    return [[p.source is None and (row, p.card) in lost for p in found] for row, found in enumerate(passages)]


def features(disputes: Sequence[tuple[str, Sequence[Passage]]]) -> list[dict[str, float]]:
    """By how much what a card's model wrote fits the question better than the best that its index looked up; each
    dispute has passages of both.

    relevance  the reader's log-odds, less what the LLM takes off for numbers of the question that a passage lacks
    covered    the share of the question's words, in [-1, 1]
    """
    readings_wanted = [
        (ordinals_as_in([_text(p) for p in passages], question), [_text(p) for p in passages])
        for question, passages in disputes
    ]
    leads = []
    for (question, texts), readings, (_, passages) in zip(
        readings_wanted, read_all(readings_wanted), disputes, strict=True
    ):
        stated = [p.source is None for p in passages]
        relevance = [
            max(-MOST, min(MOST, r.relevance - MISSING_NUMBER * len(numbers(question) - numbers(text))))
            for r, text in zip(readings, texts, strict=True)
        ]
        covered = [_covered(question, text) for text in texts]
        leads.append({"bias": 1.0, "relevance": _lead(relevance, stated), "covered": _lead(covered, stated)})
    return leads


def _text(passage: Passage) -> str:
    return passage.source.in_context if passage.source else passage.text


def _covered(question: str, text: str) -> float:
    stems = asked_about(question)
    return len(stems & set(STEMS(text))) / max(1, len(stems))


def _lead(scores: Sequence[float], written: Sequence[bool]) -> float:
    """The model's best score less the best of its index."""
    own = max(score for score, by_model in zip(scores, written, strict=True) if by_model)
    return own - max(score for score, by_model in zip(scores, written, strict=True) if not by_model)


def _log_odds(values: Mapping[str, float]) -> float:
    return sum(weight * values[name] for name, weight in _weights().items())


@cache
def _weights() -> Mapping[str, float]:
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


# Cards that contradict each other: the user is warned, with the dates of their knowledge, and the newest goes first.
#
# What a card says is the words of its passage that answer the question; cards disagree where these differ.

DOUBTFUL = 0.5
SMALL_WORDS = {"a", "an", "the", "of"}


def resolve_conflicts(
    question: str, gathered: Context, cards: Mapping[str, Choice], reader: Reader, reorder: bool = True
) -> Context:
    """`gathered` as it is where its cards agree; else with a note, and the passages of the newest card in front.

    The order stays without `reorder`, and where the LLM sees the passages in several rounds (Context.turns).

    Compared are the passages that relevance kept, the best one of each card; those that their own evidence
    doubts (known support below 0.5) are left out.
    """
    answers = _said(question, gathered.passages, reader)
    if not any(_differ(a, b) for a in answers.values() for b in answers.values()):
        return gathered
    dates = {name: cards[name].date if name in cards else None for name in answers}
    newest = sorted(answers, key=lambda name: dates[name] or "", reverse=True)
    claims = ", ".join(f"{name} ({dates[name] or 'no date'}) says {answers[name]!r}" for name in newest)
    notes = (*gathered.notes, f"cards disagree: {claims}")
    if not reorder or sum(turn.documents > 0 for turn in gathered.turns) > 1:
        return replace(gathered, notes=notes)
    front = [p for p in gathered.passages if p.kept]
    place = {name: i for i, name in enumerate(newest)}
    front.sort(key=lambda p: place.get(p.card, len(place)))
    others = [p for p in gathered.passages if not p.kept]
    return replace(gathered, passages=(*front, *others), notes=notes)


def _said(question: str, passages: Sequence[Passage], reader: Reader) -> dict[str, str]:
    """What each card answers, by name; nothing where fewer than two cards could."""
    best: dict[str, Passage] = {}
    for p in sorted(passages, key=lambda p: not p.kept):
        relevant = p.kept or p.pruned is not None
        doubtful = p.support is not None and p.support < DOUBTFUL
        if relevant and not doubtful:
            best.setdefault(p.card, p)
    if len(best) < 2:
        return {}
    read = {name: reader.extract(question, p.knowledge) for name, p in best.items()}
    return {name: answer for name, answer in read.items() if answer}


def _differ(one: str, other: str) -> bool:
    """Whether neither holds all words of the other: "Vance" and "J. D. Vance" agree."""
    first, second = set(words(one)) - SMALL_WORDS, set(words(other)) - SMALL_WORDS
    return not first <= second and not second <= first
