"""Passages that compete: duplicates, a card's model against its own index, and cards that contradict each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

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


WEIGHTS = Path(__file__).with_name("judge.json")
BEATEN_BY_INDEX = "the card's index fits the question better"  # why a model's passage is dropped
MIN_WINNING_LOG_ODDS = 1.0  # from which the model wins
MAX_LOG_ODDS = 8.0  # the reader's log-odds are clipped to this


def beaten_by_index(questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[list[bool]]:
    """Tell for each question which passages of a card's model lose against the card's own index.

    Both know only the corpus, and an index mostly finds the answer if it is there. The model wins only if its passage
    fits the question clearly better, by a logistic regression (recipes/judge) that predicts the log-odds that the
    model is right and the index wrong, given that one of them is.
    """
    beaten = [[False] * len(own) for own in passages]
    # Cards of which both the model and the index have a passage: the question's row, and the places of its passages.
    disputes: list[tuple[int, list[int]]] = []
    candidates: list[tuple[str, list[Passage]]] = []
    for row, own in enumerate(passages):
        by_card: dict[str, list[int]] = {}
        for place, passage in enumerate(own):
            by_card.setdefault(passage.card, []).append(place)
        for places in by_card.values():
            of_card = [own[place] for place in places]
            written = [passage.source is None for passage in of_card]
            if any(written) and not all(written):
                disputes.append((row, places))
                candidates.append((questions[row], of_card))
    for (row, places), values in zip(disputes, features(candidates), strict=True):
        log_odds = sum(weight * values[name] for name, weight in _weights().items())
        if log_odds < MIN_WINNING_LOG_ODDS:
            for place in places:
                beaten[row][place] = passages[row][place].source is None
    return beaten


def features(disputes: Sequence[tuple[str, Sequence[Passage]]]) -> list[dict[str, float]]:
    """Return by how much the best passage of a card's model fits the question better than the best of its index; each
    dispute is a question with passages of both.

    relevance  difference of the reader's log-odds, less the LLM's penalty for numbers that the passage lacks
    covered    difference of the shares of the question's words, in [-1, 1]
    """
    worded = []
    for question, passages in disputes:
        texts = []
        for passage in passages:
            if passage.source:
                texts.append(passage.source.in_context)
            else:
                texts.append(passage.text)
        worded.append((ordinals_as_in(texts, question), texts))
    leads = []
    for (question, texts), readings, (_, passages) in zip(worded, read_all(worded), disputes, strict=True):
        stems = content_stems(question)
        model, index = [], []
        for passage, text, reading in zip(passages, texts, readings, strict=True):
            lacking = len(numbers(question) - numbers(text))
            log_odds = reading.relevance - MISSING_NUMBER * lacking
            fit = (max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, log_odds)), share_of(stems, text))
            if passage.source:
                index.append(fit)
            else:
                model.append(fit)
        relevance, covered = (np.max(model, axis=0) - np.max(index, axis=0)).tolist()
        leads.append({"bias": 1.0, "relevance": relevance, "covered": covered})
    return leads


@cache
def _weights() -> Mapping[str, float]:
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


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


MIN_COMPARED_SUPPORT = 0.5
SMALL_WORDS = {"a", "an", "the", "of"}


def resolve_conflicts(
    question: str, context: Context, cards: Mapping[str, Choice], reader: Reader, reorder: bool = True
) -> Context:
    """Return the context unchanged if its cards agree, else with a note and the newest card's passages in front.

    The order is kept without `reorder`, and if the LLM sees the passages in several rounds (Context.turns).

    A card's answer is the words that answer the question in its best passage that relevance kept; cards disagree if
    their answers differ. Passages that their own evidence doubts (known support below 0.5) are left out.
    """
    front, others = [], []
    for passage in context.passages:
        if passage.kept:
            front.append(passage)
        else:
            others.append(passage)
    # The answer of each card, read from its best passage.
    best: dict[str, Passage] = {}
    for passage in (*front, *others):
        is_relevant = passage.kept or passage.pruned is not None
        is_doubtful = passage.support is not None and passage.support < MIN_COMPARED_SUPPORT
        if is_relevant and not is_doubtful:
            best.setdefault(passage.card, passage)
    if len(best) < 2:
        return context
    answers: dict[str, str] = {}
    dates: dict[str, str] = {}
    for name, passage in best.items():
        answer = reader.extract(question, passage.knowledge)
        if answer:
            answers[name] = answer
            dates[name] = ""
            if name in cards:
                dates[name] = cards[name].date or ""
    if not any(_differ(one, other) for one, other in combinations(answers.values(), 2)):
        return context
    # Warn the user, with the dates of the cards' knowledge, and put the newest first.
    newest = sorted(answers, key=dates.__getitem__, reverse=True)
    claims = ", ".join(f"{name} ({dates[name] or 'no date'}) says {answers[name]!r}" for name in newest)
    notes = (*context.notes, f"cards disagree: {claims}")
    rounds = [turn for turn in context.turns if turn.documents]
    if not reorder or len(rounds) > 1:
        return replace(context, notes=notes)
    rank = {name: i for i, name in enumerate(newest)}
    front.sort(key=lambda passage: rank.get(passage.card, len(rank)))
    return replace(context, passages=(*front, *others), notes=notes)


def _differ(one: str, other: str) -> bool:
    """Return whether neither answer holds all words of the other: "Vance" and "J. D. Vance" agree."""
    first, second = set(words(one)) - SMALL_WORDS, set(words(other)) - SMALL_WORDS
    return not first <= second and not second <= first
