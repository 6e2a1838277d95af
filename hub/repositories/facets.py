"""What repositories are filtered by: values from their tags and the metadata of their README.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Facets", "bases", "domain", "facets", "kind"]

# Tags of a card. The longest domain is the card's own, the others contain it.
KIND, DOMAIN, BASE, LICENCE = "kcard:kind:", "domain:", "base_model:", "license:"


@dataclass(frozen=True)
class Facets:
    """The values of a repository; "" if it has none. Of several base models or languages, the first."""

    domain: str
    base: str
    kind: str
    language: str
    licence: str


def facets(tags: Sequence[str], library: str | None, card: Mapping[str, Any]) -> Facets:
    """The facets of a repository with these tags, this library and this metadata of README.md."""
    return Facets(
        domain=domain(tags),
        base=next(iter(bases(tags)), ""),
        kind=kind(tags, library),
        language=_language(card.get("language")),
        licence=next(iter(_after(LICENCE, tags)), ""),
    )


def kind(tags: Sequence[str], library: str | None) -> str:
    """The kind of a knowledge card, otherwise the library."""
    return next(iter(_after(KIND, tags)), "") or library or ""


def domain(tags: Sequence[str]) -> str:
    """The domain of a knowledge card."""
    return max(_after(DOMAIN, tags), key=len, default="")


def bases(tags: Sequence[str]) -> list[str]:
    """The base models."""
    return [name for name in _after(BASE, tags) if ":" not in name]


def _language(value: object) -> str:
    first = next(iter(value), "") if isinstance(value, list) else value
    if first is False:  # YAML reads the language code `no` as a boolean
        return "no"
    return first if isinstance(first, str) and len(first) <= 100 else ""


def _after(prefix: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
