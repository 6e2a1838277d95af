"""Passages that compete: duplicates, a card's model against its own index, and cards that contradict each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

from kcard.embedded.question_forms import content_stems, share_of
from kcard.embedded.reader import read_all
from kcard.interfaces import Reader
from kcard.llms.extraction.quotation import MISSING_NUMBER
from kcard.text import numbers, ordinals_as_in, words
from kcard.types import Choice, Context, Passage


def without_duplicates(passages: Sequence[Passage]) -> list[Passage]:
    """Return the non-empty passages in their order; of equal texts the first, or else the retrieved one."""
    first: dict[str, Passage] = {}
    for passage in passages:
        if passage.text.strip():
            earlier = first.setdefault(passage.text, passage)
            if earlier.source is None and passage.source is not None:
                first[passage.text] = passage
    return list(first.values())


# Decide between a card's model and its index when they disagree.
#
# Both know only the corpus, and an index mostly finds the answer if it is there. The model wins only if its passage
# fits the question clearly better, by a logistic regression (recipes/judge) that predicts the log-odds that the model
# is right and the index wrong, given that one of them is.

WEIGHTS = Path(__file__).with_name("judge.json")
BEATEN = "the card's index fits the question better"  # why a model's passage is dropped
CLEARLY = 1.0  # log-odds from which the model wins
MAX_LOG_ODDS = 8.0  # the reader's log-odds are clipped to this


def beaten_by_index(questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[list[bool]]:
    """Tell for each question which passages of a card's model lose against the card's own index."""
    # Cards of which both the model and the index have a passage, by question.
    disputes: list[tuple[int, str]] = []
    candidates: list[tuple[str, list[Passage]]] = []
    for row, written in enumerate(passages):
        retrieved = {passage.card for passage in written if passage.source is not None}
        for card in dict.fromkeys(passage.card for passage in written if passage.source is None):
            if card in retrieved:
                disputes.append((row, card))
                candidates.append((questions[row], [passage for passage in written if passage.card == card]))
    lost = set[tuple[int, str]]()
    for dispute, values in zip(disputes, features(candidates), strict=True):
        log_odds = sum(weight * values[name] for name, weight in _weights().items())
        if log_odds < CLEARLY:
            lost.add(dispute)
    beaten = []
    for row, written in enumerate(passages):
        beaten.append([passage.source is None and (row, passage.card) in lost for passage in written])
    return beaten


def features(disputes: Sequence[tuple[str, Sequence[Passage]]]) -> list[dict[str, float]]:
    """Return by how much the best passage of a card's model fits the question better than the best of its index; each
    dispute is a question with passages of both.

    relevance  difference of the reader's log-odds, less the LLM's penalty for numbers that the passage lacks
    covered    difference of the shares of the question's words, in [-1, 1]
    """
    worded = []
    for question, passages in disputes:
        texts = [passage.source.in_context if passage.source else passage.text for passage in passages]
        worded.append((ordinals_as_in(texts, question), texts))
    leads = []
    for (question, texts), readings, (_, passages) in zip(worded, read_all(worded), disputes, strict=True):
        stated = [passage.source is None for passage in passages]
        stems = content_stems(question)
        relevance, covered = [], []
        for text, reading in zip(texts, readings, strict=True):
            lacking = len(numbers(question) - numbers(text))
            log_odds = reading.relevance - MISSING_NUMBER * lacking
            relevance.append(max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, log_odds)))
            covered.append(share_of(stems, text))
        leads.append({"bias": 1.0, "relevance": _lead(relevance, stated), "covered": _lead(covered, stated)})
    return leads


def _lead(scores: Sequence[float], written: Sequence[bool]) -> float:
    """Return the model's best score less the best one of its index."""
    own = max(score for score, by_model in zip(scores, written, strict=True) if by_model)
    return own - max(score for score, by_model in zip(scores, written, strict=True) if not by_model)


@cache
def _weights() -> Mapping[str, float]:
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


# A card's model against its corpus: what the corpus says otherwise is not read.


# Of 200 passages by an adapter that knew .6 of its corpus, all 63 below were wrong, and of 137 above about 12.
SUPPORTED_BY_CORPUS = 0.75  # faithfulness


def correct_by_corpus(question: str, context: Context, reader: Reader) -> Context:
    """Return the context with the nearest sentence of the card's corpus in place of each passage that the card's model
    wrote and that the corpus does not support, or contradicts: the two answer the question in different words. A note
    has what both say.

    A passage that was judged by other evidence than the corpus stays.
    """
    corrected, dropped, notes = [], [], []
    for passage in context.passages:
        evidence = passage.evidence
        is_model = passage.source is None and passage.factuality is None
        if not passage.kept or not is_model or evidence is None:
            corrected.append(passage)
            continue
        stated = reader.extract(question, passage.text)
        true = reader.extract(question, evidence.in_context)
        differs = stated is not None and true is not None and _differ(stated, true)
        is_supported = passage.faithfulness is None or passage.faithfulness >= SUPPORTED_BY_CORPUS
        if is_supported and not differs:
            corrected.append(passage)
            continue
        reason = "its corpus says otherwise"
        if not differs:
            stated, true, reason = passage.text, evidence.text, "its corpus does not support it"
        dropped.append(replace(passage, kept=False, reason=reason))
        corrected.append(
            Passage(
                passage.card,
                evidence.text,
                faithfulness=1.0,
                evidence=evidence,
                kept=True,
                source=evidence,
            )
        )
        place = f" ({evidence.file}:{evidence.line})" if evidence.file else ""
        notes.append(f"the model of {passage.card} says {stated!r}, but its corpus{place} {true!r}")
    if not notes:
        return context
    passages = (*without_duplicates(corrected), *dropped)
    return replace(context, passages=passages, notes=(*context.notes, *notes))


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
    if not any(_differ(one, other) for one, other in combinations(answers.values(), 2)):
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


def _differ(one: str, other: str) -> bool:
    """Return whether neither answer holds all words of the other: "Vance" and "J. D. Vance" agree."""
    first, second = set(words(one)) - SMALL_WORDS, set(words(other)) - SMALL_WORDS
    return not first <= second and not second <= first
