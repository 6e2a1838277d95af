"""Pipelines by route over one pool of cards, which follows the hub."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kcard.answer import Answer
from kcard.errors import HubError, LLMError
from kcard.integrators.assembly import make_loader
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline
from kcard.serve.pending import Pending
from kcard.serve.routes import Route

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["Pipelines"]

FRESH = 1.0  # seconds for which the hub is not looked at again
Cards = tuple[tuple[str, str], ...]  # names and references


class Pipelines:
    """Answers questions by route with cards of the hub; one thread at a time.

    Args:
        options: of asking; `cards` limits what is served
        hub: where the cards are
        llm: the name under which the LLM is served

    Published, removed and quarantined cards count from the next question on; models of the others stay loaded.
    Raises what Pipeline raises, but a hub without cards is served without them.
    """

    def __init__(self, options: AskOptions, hub: "Hub", llm: str) -> None:
        self.llm = llm
        self._options, self._hub = options, hub
        self._direct = Pipeline(replace(options, mode="direct", cards=None), hub=hub)
        self._loader = make_loader(options)
        self._lock = threading.Lock()
        self._cards: Cards = ()
        self._changes = 0  # of the cards
        self._searched = False
        self._looked = -FRESH
        self._routes: dict[Route, Pipeline] = {}
        self._routed: Cards = ()  # the cards of these pipelines

    def cards(self) -> Sequence[str]:
        """Their names; for any thread."""
        return [name for name, _ in self._look()]

    def version(self) -> int | None:
        """How often the cards have changed; None where equal questions may have other answers: with an LLM that does
        not say that it is deterministic, or with cards or evidence whose texts change elsewhere."""
        self._look()
        outside = self._searched or not set(self._options.evidence) <= {"own", "none"}
        repeatable = getattr(self._direct.llm, "deterministic", False) and not outside
        return self._changes if repeatable else None

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | LLMError]:
        """See Pipeline.outcomes. Where there are no cards, the LLM answers alone."""
        return self._pipeline(route).outcomes(questions)

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[Pending | LLMError]:
        """See Pipeline.prepared."""
        pipeline = self._pipeline(route)
        for question, found in zip(questions, pipeline.prepared(questions), strict=True):
            yield found if isinstance(found, LLMError) else Pending(pipeline, question, found)

    def _pipeline(self, route: Route) -> Pipeline:
        """Raises UnknownCard for a card that was removed meanwhile."""
        cards = self._look()
        if cards != self._routed:
            self._routes, self._routed = {}, cards
        if route.mode == "direct" or not cards:
            return self._direct
        if route not in self._routes:
            base = self._routes.get(Route("bottom-up")) or self._base()
            self._routes[route] = base.variant(route.mode, route.card)
        return self._routes[route]

    def _base(self) -> Pipeline:
        """The pipeline whose cards, selectors and LLM the others share."""
        options = replace(self._options, mode="bottom-up", llm=self._direct.llm)
        base = Pipeline(options, hub=self._hub, loader=self._loader)
        self._routes[Route("bottom-up")] = base
        return base

    def _look(self) -> Cards:
        """The cards that the hub has now, or had a moment ago."""
        with self._lock:
            if time.monotonic() - self._looked >= FRESH:
                try:
                    found = self._hub.select(self._options.card_names).versions
                except HubError:
                    found = ()
                cards = tuple((version.manifest.name, version.reference) for version in found)
                self._changes += cards != self._cards
                self._cards = cards
                self._searched = any(version.manifest.kind == "search" for version in found)
                self._looked = time.monotonic()
            return self._cards
