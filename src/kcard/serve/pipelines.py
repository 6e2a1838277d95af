"""Pipelines by route over one pool of cards, kept up to date with the hub.

The model names of the endpoint are routes: the LLM, the LLM with a mode, and the LLM with one card.

    llama-3.1-8b               as `kcard serve --mode` says
    llama-3.1-8b:direct        without cards; also top-down, bottom-up, hybrid
    llama-3.1-8b:biomedical    with that card
    llama-3.1-8b:draft:report  with a file that was uploaded (kcard.serve.uploads)
"""

import itertools
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.config import settings
from kcard.errors import CardError, HubError, KcardError, one_line
from kcard.hub.selection import Selection
from kcard.integrators.assembly import make_loader
from kcard.integrators.options import AskOptions, Mode
from kcard.integrators.pipeline import Pipeline, PreparedQuestion
from kcard.interfaces import LLM
from kcard.manifest import DRAFT, MANIFEST, Manifest, file_digest
from kcard.types import Answer

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

logger = logging.getLogger("kcard.serve")

FRESH_SECONDS = 1.0  # after which the hub is read again
MAX_EXAMPLES = 4  # questions
MAX_OPEN_UPLOADS = 8  # pipelines of uploaded files
Cards = tuple[tuple[str, str], ...]  # names and references


@dataclass(frozen=True)
class Route:
    """How a question is answered.

    card   the only card that generates; None: all
    llm    its name; None: the first
    draft  sha256 of the manifest, where the card is the draft of an uploaded file, draft:NAME
    """

    mode: Mode
    card: str | None = None
    llm: str | None = None
    draft: str | None = None


@dataclass(frozen=True)
class PendingQuestion:
    """A question with its knowledge, awaiting the reply of the LLM's own server, for the thread that prepared it."""

    pipeline: Pipeline
    prepared: PreparedQuestion


class Pipelines:
    """Answers questions by route with cards of the hub; one thread at a time.

    Args:
        options: of asking; `cards` limits the cards that are served
        hub: the hub of the cards
        llm: the name under which the LLM is served
        others: further LLMs, by the names under which they are served; all are loaded at once

    Private and gated cards of the hub are served only if `options.cards` names them. Published, removed and quarantined
    cards take effect with the next question; models of the others stay loaded. Raises what Pipeline raises, except that
    a hub without cards is served without them.
    """

    def __init__(
        self, options: AskOptions, hub: "Hub", llm: str, others: Mapping[str, str] | None = None
    ) -> None:
        self.llm = llm
        self._options, self._hub = options, hub
        direct = replace(options, mode="direct", cards=None)
        self._direct = {llm: Pipeline(direct, hub=hub)}  # by the LLM
        for name, spec in (others or {}).items():
            self._direct[name] = Pipeline(replace(direct, llm=spec), hub=hub)
        self._loader = make_loader(options)
        self._lock = threading.Lock()
        self._selection: Selection | None = None
        self._cards: Cards = ()
        self._trouble = ""  # why there are no cards
        self._changes = 0  # of the cards
        self._has_search_cards = False
        self._read_at = -FRESH_SECONDS
        self._routes: dict[Route, Pipeline] = {}
        self._route_cards: Cards = ()  # the cards of these pipelines
        self._uploads: dict[Route, Pipeline] = {}

    @property
    def models(self) -> Mapping[str, LLM]:
        """The LLMs by their names, the first one first."""
        return {name: pipeline.llm for name, pipeline in self._direct.items()}

    def cards(self) -> Sequence[str]:
        """Return the names of the cards that are served now; for any thread."""
        return [name for name, _ in self._current_cards()]

    def examples(self) -> Sequence[str]:
        """Return example questions to the cards that are served now, at most MAX_EXAMPLES; for any thread."""
        from kcard.hub.server.web.exams import example_questions

        self._current_cards()
        selection = self._selection
        if selection is None:
            return []
        by_card = []
        for version in selection.versions[:MAX_EXAMPLES]:
            by_card.append(example_questions(self._hub.blobs, version.files, version.manifest.language))
        rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_card))
        return list(dict.fromkeys(filter(None, rounds)))[:MAX_EXAMPLES]

    def version(self, llm: str | None = None) -> int | None:
        """Return how often the cards have changed, for any thread; None where equal questions may have other answers.

        That is the case with an LLM that is not declared deterministic, or with cards or evidence of remote services.
        """
        self._current_cards()
        is_remote = self._has_search_cards or not set(self._options.evidence) <= {"own", "none"}
        is_repeatable = self._direct[llm or self.llm].llm.is_deterministic and not is_remote
        if not is_repeatable:
            return None
        return self._changes

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | KcardError]:
        """Answer questions as Pipeline.outcomes does. Where there are no cards, the LLM answers alone."""
        return self._pipeline(route).outcomes(questions)

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[PendingQuestion | KcardError]:
        """Prepare questions as Pipeline.prepared does."""
        pipeline = self._pipeline(route)
        for prepared in pipeline.prepared(questions):
            yield prepared if isinstance(prepared, KcardError) else PendingQuestion(pipeline, prepared)

    def _pipeline(self, route: Route) -> Pipeline:
        """Return the pipeline of a route. Raises UnknownCard for a card that was removed meanwhile."""
        if route.draft is not None:
            return self._upload_pipeline(route)
        cards = self._current_cards()
        if cards != self._route_cards:
            self._routes, self._route_cards = {}, cards
            if self._selection is not None and self._selection.drafts:
                # A draft that was made anew has the folder by which the loader knows the earlier one.
                self._loader = make_loader(self._options)
        direct = self._direct[route.llm or self.llm]
        if route.mode == "direct" or not cards:
            return direct
        if route not in self._routes:
            # The pipeline of this route shares its LLM, cards and selectors with the others of its LLM.
            shared = Route("bottom-up", llm=route.llm)
            base = self._routes.get(shared)
            if base is None:
                options = replace(self._options, mode="bottom-up", llm=direct.llm)
                base = Pipeline(options, hub=self._hub, selection=self._selection, loader=self._loader)
                self._routes[shared] = base
            self._routes[route] = base.variant(route.mode, route.card)
        return self._routes[route]

    def _upload_pipeline(self, route: Route) -> Pipeline:
        """Return the pipeline of an uploaded file, which has no other card. Raises CardError if it was removed."""
        if route not in self._uploads:
            if len(self._uploads) >= MAX_OPEN_UPLOADS:
                self._uploads.clear()
            name = (route.card or "").removeprefix(DRAFT)
            llm = self._direct[route.llm or self.llm].llm
            options = replace(self._options, mode=route.mode, cards=None, gate=None, llm=llm)
            selection = Selection((), drafts=(settings().drafts / name,))
            base = Pipeline(options, hub=self._hub, selection=selection, loader=make_loader(options))
            self._uploads[route] = base.variant(route.mode, name)
        return self._uploads[route]

    def _current_cards(self) -> Cards:
        """Return the cards of the hub, read at most FRESH_SECONDS ago."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._read_cards()
            return self._cards

    def _read_cards(self) -> None:
        selection, trouble = None, ""
        cards: list[tuple[str, str]] = []
        kinds = set()
        try:
            selection = self._hub.select(self._options.card_names, public=True, drafts=True)
            for version in selection.versions:
                cards.append((version.name, version.reference))
                kinds.add(version.manifest.kind)
            for folder in selection.drafts:
                manifest = Manifest.read(folder)
                # The digest tells that a draft was made anew.
                cards.append((manifest.name, file_digest(folder / MANIFEST)))
                kinds.add(manifest.kind)
        except (HubError, CardError) as error:
            selection, cards, kinds, trouble = None, [], set(), one_line(error)
        if trouble and trouble != self._trouble:
            logger.warning("no cards are served: %s", trouble)
        self._changes += tuple(cards) != self._cards
        self._selection, self._cards, self._trouble = selection, tuple(cards), trouble
        self._has_search_cards = "search" in kinds
        self._read_at = time.monotonic()
