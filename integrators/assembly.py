"""Puts the parts of a pipeline together, from what the user named: LLM, cards, selectors, integrator."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kcard import system
from kcard.config import ENDPOINTS, OFFLINE_LLMS, settings
from kcard.errors import UsageError
from kcard.integrators.citations import Context
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import CardEvidence
from kcard.interfaces import LLM, Evidence, Gate, Generator
from kcard.llms.client import TimedGenerator
from kcard.selectors.registry import Loading, SelectorChoice
from kcard.types import Example, Turn

if TYPE_CHECKING:
    from kcard.cards.card import CardSet
    from kcard.cards.models.loader import Loader
    from kcard.cards.models.vllm_engines import Engines
    from kcard.hub.selection import Selection
    from kcard.hub.storage import Blobs
    from kcard.hub.versions import Version
    from kcard.integrators.pool_views import Selectors

__all__ = [
    "CardSource",
    "Endpoint",
    "Integrator",
    "card_llm",
    "gate_turns",
    "integrator",
    "make_engines",
    "make_llm",
    "make_loader",
    "make_pool",
    "select_cards",
    "selectors",
]

CARD_TEMPERATURE = 0.1  # of an LLM that writes documents and does not answer
PROPOSED = (
    3  # cards of a round, at most, that are chosen by score; in top-down only such as fit nearly as well
)


class Integrator(Protocol):
    @property
    def selectors(self) -> "Selectors": ...

    def gather(self, questions: Sequence[str]) -> list[Context]: ...


class CardSource(Protocol):
    """What a pipeline takes its cards from: a Hub, or anything else that has verified versions."""

    def select(self, selection: Sequence[str] | None) -> "Selection":
        """See Hub.select."""
        ...

    def folder(self, ref: str) -> Path:
        """See Hub.folder."""
        ...

    @property
    def read(self) -> "Callable[[Version, str], bytes] | None":
        """See Hub.read; None: only whole cards are to be had, which are then chosen by their descriptions alone."""
        ...


@dataclass(frozen=True)
class Endpoint:
    """How a remote LLM is reached. `timeout`: seconds of one try. `report` is called with a sentence where the user
    should know why it takes long."""

    url: str | None = None
    window: int | None = None
    retries: int = 5
    timeout: float = 60.0
    report: Callable[[str], None] | None = None


def endpoint_of(options: AskOptions, report: Callable[[str], None] | None = None) -> Endpoint:
    """As the options say."""
    return Endpoint(options.llm_url, options.llm_window, options.retries, options.llm_timeout, report)


def make_llm(spec: str | LLM | Callable[[str], str] | None, temperature: float, endpoint: Endpoint) -> LLM:
    """The backend that `spec` names (backend or backend:model), or an LLM as it is, or one around a function from a
    prompt to a reply; None: the configured one."""
    if spec is not None and not isinstance(spec, str):
        from kcard.llms.prompts import FunctionLLM

        return spec if hasattr(spec, "reply") else FunctionLLM(spec)
    configured = settings()
    backend, _, model = (spec or configured.llm).partition(":")
    make: Callable[..., LLM] = system.load("kcard.llms", backend)
    if backend == "embedded":
        if model:
            raise UsageError(f"--llm {backend}:{model}: {backend} takes no model")
        return make()
    if not model:
        raise UsageError(f"--llm {backend} needs a model: {backend}:MODEL")
    if backend not in ENDPOINTS:
        return make(model, temperature=temperature)
    return make(
        model,
        url=endpoint.url or configured.llm_url,
        key=configured.llm_key,
        temperature=temperature,
        window=endpoint.window,
        retries=endpoint.retries,
        timeout=endpoint.timeout,
        report=endpoint.report,
    )


def card_llm(named: str, chosen: str, answering: LLM, endpoint: Endpoint) -> LLM:
    """The LLM that a card names: `answering`, where it names that one or "self"; else one on this machine.

    chosen  what the user chose to answer, as backend or backend:model; empty where it is an object of theirs

    A card may come from anywhere, so it does not choose where questions go: of remote LLMs only the backend that the
    user chose is used, at the address that they chose. Raises UsageError for another.
    """
    if named in {"self", chosen}:
        return answering
    backend = named.partition(":")[0]
    if backend not in {*OFFLINE_LLMS, chosen.partition(":")[0]}:
        raise UsageError(
            f"a card writes with the LLM {named!r}, which would send questions elsewhere: choose it with --llm "
            f"{named}, or leave the card out of --cards"
        )
    return make_llm(named, CARD_TEMPERATURE, endpoint)


def make_loader(options: AskOptions) -> "Loader":
    """What holds the models of cards: on a device, and on the servers of engines."""
    from kcard.cards.models.loader import Loader

    if options.device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise UsageError(f"device {options.device!r}: no GPU is available; leave out --device")
    engines = make_engines(options.engine, options.engine_places)
    return Loader(device=options.device, memory=options.memory_bytes, engines=engines)


def make_engines(specs: Sequence[str] | None, places: int | None = None) -> "Engines | None":
    """The engines named, else those that are configured; None where there are none."""
    configured = settings()
    if not (chosen := configured.engine if specs is None else specs):
        return None
    from kcard.cards.models.vllm_engines import Engines

    return Engines(chosen, places, configured.engine_key)


def make_pool(
    selection: Sequence[str] | None,
    hub: CardSource | None,
    loader: "Loader",
    llm: Callable[[str], LLM] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> "tuple[CardSet, TimedGenerator, str]":
    """The chosen cards; the pool that writes for them; what quarantine left out, in a sentence.

    A card's files are verified and laid out when it is first asked, so a pool may hold thousands. `llm`: what finds
    the LLM that a card names. `loader`, `progress`: see Pool.
    """
    from kcard.cards.pool import Pool

    cards, note = select_cards(selection, hub)
    return cards, TimedGenerator(Pool(cards, llm=llm, loader=loader, progress=progress)), note


def select_cards(selection: Sequence[str] | None, hub: CardSource | None) -> "tuple[CardSet, str]":
    """The chosen cards, unopened, and what quarantine left out, in a sentence; None: all."""
    from kcard.cards.card import CardHandle, CardSet
    from kcard.hub.registry import Hub

    hub = hub or Hub()
    chosen = hub.select(selection)
    read = hub.read
    handles = [
        CardHandle(
            v.manifest,
            partial(hub.folder, v.reference),
            v.size,
            _weights(hub, v),
            None if read is None else partial(read, v),
        )
        for v in chosen.versions
    ]
    return CardSet(handles), chosen.note


def _weights(hub: CardSource, version: "Version") -> Callable[[], int] | None:
    """What tells the bytes of a version's own model, where the source of cards has its files at hand."""
    from kcard.cards.card import is_weights

    blobs: Blobs | None = getattr(hub, "blobs", None)
    files = [sha256 for name, sha256 in version.manifest.files.items() if is_weights(name)]
    return None if blobs is None else lambda: sum(map(blobs.size, files))


def integrator(
    options: AskOptions,
    parts: "Selectors",
    writer: Generator,
    llm: LLM,
    examples: tuple[Example, ...],
    gate: Gate,
) -> Integrator:
    """What gathers knowledge in the chosen mode. `gate`: what decided that it is wanted."""
    from kcard.integrators.top_down import RelevanceThreshold

    made = _integrator(options, parts, writer, llm, examples, gate)
    return RelevanceThreshold(made, writer.cards, options.min_relevance) if options.min_relevance else made


def _integrator(
    options: AskOptions,
    parts: "Selectors",
    writer: Generator,
    llm: LLM,
    examples: tuple[Example, ...],
    gate: Gate,
) -> Integrator:
    """The same for questions that a card fits."""
    from kcard.integrators.bottom_up import BottomUp
    from kcard.integrators.top_down import AutoChoice, ExplicitChoice, SingleDocument, TopDown

    bottom_up = BottomUp(
        writer,
        parts,
        options.sampling,
        options.n1,
        options.n2,
        options.n3,
        options.floor,
        options.min_factuality,
        options.max_cards,
    )
    if options.mode == "bottom-up":
        return bottom_up
    several, offered = options.mode == "hybrid", writer.cards
    nearest = parts.nearest(offered)
    chooses = (
        AutoChoice(nearest, examples, PROPOSED, math.inf if several else options.margin)
        if options.select == "auto"
        else ExplicitChoice(offered, examples, None if several else 1, nearest, options.shortlist)
    )
    return TopDown(
        bottom_up if several else SingleDocument(writer, parts, options.n1, options.min_factuality),
        options.sampling,
        llm,
        chooses,
        len(offered),
        examples,
        options.max_iterations,
        getattr(gate, "templates", 1),
        gate_turns(gate, fired=True),
    )


def gate_turns(gate: Gate, fired: bool) -> tuple[Turn, ...]:
    """What a gate asked the LLM, and its verdict, as the beginning of a transcript; nothing where it asks nothing."""
    turn: Callable[[bool], Turn] | None = getattr(gate, "turn", None)
    return (turn(fired),) if turn else ()


def selectors(
    options: AskOptions, cards: "CardSet", report: Callable[[str], None] | None = None
) -> "Selectors":
    """The selectors, and what the passages of each card are checked against."""
    from kcard.integrators.card_ranking import profiles_of
    from kcard.integrators.pool_views import Selectors
    from kcard.selectors.evidence import Union, open_evidence
    from kcard.selectors.factuality import cached

    choice = SelectorChoice(options.selectors, options.relevance, options.pruner, options.checker)
    loading = Loading(options.device, options.trust_remote_code, report=report)
    evidence = tuple(map(str, options.evidence))
    others: list[Evidence] = [open_evidence(e) for e in evidence if e not in {"own", "none"}]
    return Selectors(
        relevance=choice.make_relevance(loading),
        pruner=choice.make_pruner(loading),
        checker=cached(choice.make_checker(loading)),
        own=CardEvidence(cards) if "own" in evidence else {},
        independent=Union(others) if len(others) > 1 else others[0] if others else None,
        profiles=partial(profiles_of, cards),
    )
