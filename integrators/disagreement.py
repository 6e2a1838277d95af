"""Cards that contradict each other: the user is warned, with the dates of their knowledge, and the newest goes first.

What a card says is the words of its passage that answer the question; cards disagree where these differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcard.answer import Passage
from kcard.integrators.gathered import Gathered
from kcard.protocols import Reader
from kcard.request import Choice
from kcard.words import words

__all__ = ["reconciled"]

DOUBTFUL = 0.5
SMALL_WORDS = {"a", "an", "the", "of"}


def reconciled(
    question: str, gathered: Gathered, cards: Mapping[str, Choice], reader: Reader, reorder: bool = True
) -> Gathered:
    """`gathered` as it is where its cards agree; else with a note, and the passages of the newest card in front.

    The order stays without `reorder`, and where the LLM sees the passages in several rounds (Gathered.turns).

    Compared are the passages that relevance kept, the best one of each card; those that their own evidence
    doubts (known support below 0.5) are left out.
    """
    said = _said(question, gathered.passages, reader)
    if not any(_differ(a, b) for a in said.values() for b in said.values()):
        return gathered
    dates = {name: cards[name].date if name in cards else None for name in said}
    newest = sorted(said, key=lambda name: dates[name] or "", reverse=True)
    claims = ", ".join(f"{name} ({dates[name] or 'no date'}) says {said[name]!r}" for name in newest)
    notes = (*gathered.notes, f"cards disagree: {claims}")
    if not reorder or sum(turn.documents > 0 for turn in gathered.turns) > 1:
        return replace(gathered, notes=notes)
    kept = [p for p in gathered.passages if p.kept]
    place = {name: i for i, name in enumerate(newest)}
    kept.sort(key=lambda p: place.get(p.card, len(place)))
    others = [p for p in gathered.passages if not p.kept]
    return replace(gathered, passages=(*kept, *others), notes=notes)


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
