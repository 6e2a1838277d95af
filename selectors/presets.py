"""Presets: one selector of each kind under one name, each of which can be replaced."""

from dataclasses import dataclass
from typing import Any

from kcard.errors import MissingExtra, ModelUnavailable, UsageError
from kcard.protocols import Checker, Pruner, Relevance
from kcard.selectors import registry
from kcard.selectors.models.catalogue import PRESETS, Kind
from kcard.selectors.registry import Loading

__all__ = ["DEFAULT", "SelectorChoice"]

DEFAULT = "offline"


@dataclass(frozen=True)
class SelectorChoice:
    """A preset, and the selectors that take the place of its own. Raises UsageError for an unknown preset."""

    preset: str = DEFAULT
    relevance: str | None = None
    pruner: str | None = None
    checker: str | None = None

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"unknown selectors {self.preset!r}: choose one of {', '.join(PRESETS)}")

    def spec(self, kind: Kind) -> str:
        """The name of the selector of that kind."""
        own = {"relevance": self.relevance, "pruner": self.pruner, "checker": self.checker}[kind]
        return own or PRESETS[self.preset].of(kind)

    def make_relevance(self, loading: Loading) -> Relevance:
        found: Relevance = self._made("relevance", self.relevance, loading)
        return found

    def make_pruner(self, loading: Loading) -> Pruner:
        found: Pruner = self._made("pruner", self.pruner, loading)
        return found

    def make_checker(self, loading: Loading) -> Checker:
        found: Checker = self._made("checker", self.checker, loading)
        return found

    def _made(self, kind: Kind, own: str | None, loading: Loading) -> Any:
        """The selector; where it is the preset's, an error names the preset too."""
        make = {"relevance": registry.relevance, "pruner": registry.pruner, "checker": registry.checker}[kind]
        try:
            return make(self.spec(kind), loading)
        except (MissingExtra, ModelUnavailable) as error:
            if own or self.preset == DEFAULT:
                raise
            raise type(error)(f"--selectors {self.preset}: {error}") from error
