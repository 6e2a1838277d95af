"""The trace of an answer, as it is kept with a result, made ready for the page.

A trace may come from another version or have been written by hand, so nothing in it is relied on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ShownPassage", "Trace", "trace"]


@dataclass(frozen=True)
class ShownPassage:
    """A passage, its scores by name, and where its text and its evidence stand."""

    number: int
    card: str
    text: str
    pruned: str
    kept: bool
    scores: Mapping[str, float | None]
    source: str
    evidence: str
    evidence_place: str


@dataclass(frozen=True)
class Trace:
    """What led to an answer; `citations` are sentence, number of the passage from 1 (None: none), and support."""

    gate: str = ""
    score: float | None = None
    fired: bool | None = None
    cards: tuple[str, ...] = ()
    passages: tuple[ShownPassage, ...] = ()
    citations: tuple[tuple[str, int | None, float | None], ...] = ()
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    nearest: str = ""
    nearest_place: str = ""
    scored: tuple[str, ...] = field(default=())


SCORES = ("relevance", "faithfulness", "factuality")


def trace(data: Mapping[str, Any]) -> Trace:
    """Of Result.trace; an empty one where the question failed."""
    gate = _mapping(data.get("gate"))
    passages = tuple(_passage(i, _mapping(p)) for i, p in enumerate(_list(data.get("passages")), 1))
    nearest = _mapping(data.get("nearest"))
    fired = gate.get("fired")
    return Trace(
        gate=_text(gate.get("name")),
        score=_number(gate.get("score")),
        fired=fired if isinstance(fired, bool) else None,
        cards=tuple(map(_text, _list(data.get("cards")))),
        passages=passages,
        citations=tuple(_citation(_mapping(c)) for c in _list(data.get("citations"))),
        notes=tuple(map(_text, _list(data.get("notes")))),
        confidence=_number(data.get("confidence")),
        nearest=_text(nearest.get("text")),
        nearest_place=_place(nearest),
        scored=tuple(name for name in SCORES if any(p.scores[name] is not None for p in passages)),
    )


def _passage(number: int, data: Mapping[str, Any]) -> ShownPassage:
    evidence = _mapping(data.get("evidence"))
    return ShownPassage(
        number=number,
        card=_text(data.get("card")),
        text=_text(data.get("text")),
        pruned=_text(data.get("pruned")),
        kept=data.get("kept") is True,
        scores={name: _number(data.get(name)) for name in SCORES},
        source=_place(_mapping(data.get("source"))),
        evidence=_text(evidence.get("text")),
        evidence_place=_place(evidence),
    )


def _citation(data: Mapping[str, Any]) -> tuple[str, int | None, float | None]:
    passage = data.get("passage")
    number = passage + 1 if isinstance(passage, int) else None
    return _text(data.get("sentence")), number, _number(data.get("support"))


def _place(source: Mapping[str, Any]) -> str:
    """File, line and section of a source, as far as they are known."""
    file, line, section = _text(source.get("file")), source.get("line"), _text(source.get("section"))
    return ", ".join(part for part in (file, f"line {line}" if file and line else "", section) if part)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
