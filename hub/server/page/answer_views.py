"""An answer as its page shows it. The process that wrote it reads cards of others: what can't be read is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcard.hub.repositories.values import Mark
from kcard.hub.server.asking.candidates import Candidate

__all__ = ["AnswerView", "Nearest", "PassageView", "SentenceView", "answer_view"]

LONGEST = 4000  # characters of a shown text
MOST = 40  # passages, sentences or notes


@dataclass(frozen=True)
class PassageView:
    """A passage, and what the selectors made of it; scores in [0, 1], None: not measured.

    card       None: unknown
    place      file, line and section of the corpus; "" if a model wrote it
    evidence   the text that it was checked against, if that is another one
    """

    card: Candidate | None
    mark: Mark | None
    text: str
    kept: bool
    faithfulness: float | None
    factuality: float | None
    place: str
    evidence: str


@dataclass(frozen=True)
class SentenceView:
    """A sentence of the answer and the number of the passage that supports it, from 1; None: no passage does."""

    text: str
    passage: int | None
    support: float


@dataclass(frozen=True)
class Nearest:
    """What comes nearest to an answer that is not known, and the number of its passage."""

    text: str
    place: str
    passage: int | None


@dataclass(frozen=True)
class AnswerView:
    """An answer. `sentences` is empty if no card was asked, or the answer is not known (then there is `nearest`)."""

    text: str
    confidence: float | None
    gate: str
    score: float | None
    fired: bool
    seconds: float | None
    sentences: Sequence[SentenceView]
    passages: Sequence[PassageView]
    nearest: Nearest | None
    notes: Sequence[str]

    @property
    def unsupported(self) -> bool:
        """Whether there is an answer, but no passage that supports it."""
        known = self.nearest is None and (bool(self.sentences) or not self.fired)
        return known and all(sentence.passage is None for sentence in self.sentences)


def answer_view(
    answer: Mapping[str, Any], cards: Sequence[Candidate], marks: Mapping[int, Mark]
) -> AnswerView:
    """The answer of some cards, as JSON. `marks` are those of the cards' repositories."""
    by_name = {card.name: card for card in cards}
    passages = [_passage(one, by_name, marks) for one in _rows(answer.get("passages"))]
    gate = answer.get("gate")
    gate = gate if isinstance(gate, dict) else {}
    return AnswerView(
        text=_text(answer.get("answer")),
        confidence=_share(answer.get("confidence")),
        gate=_text(gate.get("name")),
        score=_number(gate.get("score")),
        fired=gate.get("fired") is True,
        seconds=_number(answer.get("seconds")),
        sentences=[_sentence(one, len(passages)) for one in _rows(answer.get("citations"))],
        passages=passages,
        nearest=_nearest(answer.get("nearest"), passages),
        notes=[_text(note) for note in _list(answer.get("notes"))],
    )


def _passage(one: dict[str, Any], cards: Mapping[str, Candidate], marks: Mapping[int, Mark]) -> PassageView:
    card = cards.get(_text(one.get("card")))
    text, evidence = _text(one.get("text")), one.get("evidence")
    supported = _text(evidence.get("text")) if isinstance(evidence, dict) else ""
    return PassageView(
        card=card,
        mark=None if card is None else marks.get(card.repository.id),
        text=text,
        kept=one.get("kept") is True,
        faithfulness=_share(one.get("faithfulness")),
        factuality=_share(one.get("factuality")),
        place=_place(one.get("source")),
        evidence=supported if supported != text else "",
    )


def _sentence(one: dict[str, Any], passages: int) -> SentenceView:
    given = one.get("passage")
    passage = given + 1 if isinstance(given, int) and 0 <= given < passages else None
    return SentenceView(_text(one.get("sentence")), passage, _share(one.get("support")) or 0.0)


def _nearest(one: object, passages: Sequence[PassageView]) -> Nearest | None:
    if not isinstance(one, dict) or not _text(one.get("text")):
        return None
    text = _text(one["text"])
    containing = (i for i, passage in enumerate(passages, 1) if passage.kept and text in passage.text)
    return Nearest(text, _place(one), next(containing, None))


def _place(source: object) -> str:
    if not isinstance(source, dict) or not _text(source.get("file")):
        return ""
    section = _text(source.get("section"))
    line = _number(source.get("line"))
    where = _text(source["file"]) + (f":{line:.0f}" if line else "")
    return where + (f", {section}" if section else "")


def _rows(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _list(value: object) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e9 else None


def _share(value: object) -> float | None:
    found = _number(value)
    return None if found is None else min(1.0, max(0.0, found))
