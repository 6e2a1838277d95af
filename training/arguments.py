"""How a card is to be trained, as the user asked, and what is wrong with that: said before any work is done."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kcard.errors import UsageError
from kcard.manifest import LOOKED_UP
from kcard.training.bases import EMBEDDED, EMBEDDED_WIDTH

__all__ = ["Arguments", "Kind", "check", "check_date"]

Kind = Literal["model", "retrieval", "both", "graph", "search"]

DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
CHOICES = {
    "kind": (None, "model", "retrieval", "both", "graph", "search"),
    "evidence": ("passages", "hashes"),
    "method": (None, "full", "lora"),
    "objective": ("recite", "clm"),
    "prompt_style": (None, "tokens", "encoder-prefix"),
}
POSITIVE = ("epochs", "learning_rate", "batch_size", "rank")
# What a card without a model has no use for.
OF_MODELS = ("base", "method", "prompt_style", *POSITIVE)


@dataclass(frozen=True)
class Arguments:
    """None: the default of the base and the corpus holds."""

    kind: Kind | None = None
    evidence: Literal["passages", "hashes"] = "passages"
    base: str | None = None
    method: str | None = None
    objective: str = "recite"
    prompt_style: str | None = None
    epochs: float | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    rank: int | None = None
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """What the ways of training take, without what was left to their defaults."""
        given = {"style" if k == "prompt_style" else k: v for k, v in asdict(self).items() if v is not None}
        return {key: value for key, value in given.items() if key not in {"kind", "evidence", "base"}}


def check(given: Arguments) -> None:
    """UsageError for a value that is out of range, or of no use with this kind, base or method.

    `base` and `method` are those that the card will have; a card that looks things up has neither.
    """
    for name, known in CHOICES.items():
        if (value := getattr(given, name)) not in known:
            words = [word for word in known if word is not None]
            raise UsageError(f"{name} {value!r} is unknown: choose {', '.join(words[:-1])} or {words[-1]}")
    for name in POSITIVE:
        if (number := getattr(given, name)) is not None and not number > 0:
            raise UsageError(f"{name} {number} is not above 0")
    if given.kind not in (None, "model") and given.evidence == "hashes":
        raise UsageError(
            f"evidence hashes keeps the text out of the card, and kind {given.kind} writes that text: "
            "use kind model or evidence passages"
        )
    if given.kind in LOOKED_UP:
        _check_without_model(given)
    else:
        _check_model(given)


def check_date(date: str | None) -> None:
    """UsageError for a knowledge date that is none."""
    if date is not None and not DATE.fullmatch(date):
        raise UsageError(f"knowledge_date {date!r} is not a date: write it as YYYY-MM-DD, YYYY-MM or YYYY")


def _check_without_model(given: Arguments) -> None:
    for name in OF_MODELS:
        if (value := getattr(given, name)) is not None:
            raise UsageError(f"{name} {value!r} is for a model and kind {given.kind} has none: leave it out")


def _check_model(given: Arguments) -> None:
    if given.base == EMBEDDED:
        _check_embedded(given)
    elif given.prompt_style is not None:
        raise UsageError(
            f"prompt_style {given.prompt_style!r} is for base embedded: leave it out with base {given.base}"
        )
    if given.rank is not None and given.method != "lora":
        raise UsageError(f"rank {given.rank} is for method lora: leave it out with method {given.method}")


def _check_embedded(given: Arguments) -> None:
    if given.method == "lora" and given.prompt_style == "encoder-prefix":
        raise UsageError(
            "prompt_style encoder-prefix is for whole models, and an adapter on base embedded reads tokens: leave it "
            "out or use method full"
        )
    if given.rank is not None and given.rank > EMBEDDED_WIDTH:
        raise UsageError(
            f"rank {given.rank} is above the width of base embedded: give {EMBEDDED_WIDTH} at most"
        )
    if given.batch_size is not None:
        raise UsageError(
            "batch_size does nothing with base embedded, whose steps hold 1024 tokens: leave it out"
        )
    if given.prompt_style == "encoder-prefix" and given.objective == "clm":
        raise UsageError(
            "objective clm has no questions to encode: use prompt_style tokens or objective recite"
        )
