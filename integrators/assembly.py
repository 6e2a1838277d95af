"""Build the parts of a pipeline from the user's options: LLM, cards, selectors, integrator."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kcard import system
from kcard.config import ENDPOINTS, GGUF_LLMS, OFFLINE_LLMS, settings, without_shortcut
from kcard.errors import UsageError
from kcard.events import OnEvent, ignore
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import CardEvidence
from kcard.interfaces import LLM, Evidence, Gate, Generator
from kcard.selectors.registry import Loading, SelectorChoice
from kcard.types import Context, Example, Question, Turn

if TYPE_CHECKING:
    from kcard.cards.card import CardSet
    from kcard.cards.models.loader import Loader
    from kcard.cards.models.vllm_engines import Engines
    from kcard.hub.registry import Hub
    from kcard.hub.selection import Selection
    from kcard.integrators.pool_views import Selectors
    from kcard.manifest import Manifest

CARD_TEMPERATURE = 0.1  # of an LLM that generates documents for a card
MAX_CARDS_OF_ROUND = 3  # chosen by score; in top-down, only those that fit nearly as well as the best


class Integrator(Protocol):
    @property
    def selectors(self) -> "Selectors": ...

    def gather(self, questions: Sequence[Question]) -> list[Context]: ...


@dataclass(frozen=True)
class Endpoint:
    """How to reach a remote LLM. `timeout`: seconds per attempt. `on_event` is told why a request takes long."""

    url: str | None = None
    window: int | None = None
    retries: int = 5
    timeout: float = 60.0
    on_event: OnEvent = ignore


def endpoint_of(options: AskOptions, on_event: OnEvent = ignore) -> Endpoint:
    return Endpoint(options.llm_url, options.llm_window, options.retries, options.llm_timeout, on_event)


def make_llm(spec: str | LLM | Callable[[str], str] | None, temperature: float, endpoint: Endpoint) -> LLM:
    """Return the LLM that `spec` stands for.

    spec  a backend or backend:model; an LLM, which is returned as it is; a function from prompt to reply, which is
          wrapped; None: the configured LLM
    """
    if spec is not None and not isinstance(spec, str):
        from kcard.llms.prompts import FunctionLLM

        if isinstance(spec, LLM):
            return spec
        return FunctionLLM(spec)
    configured = settings()
    llm, own_url = without_shortcut(spec or configured.llm)
    backend, _, model = llm.partition(":")
    make: Callable[..., LLM] = system.load("kcard.llms", backend)
    if backend == "embedded":
        if model:
            raise UsageError(f"--llm {backend}:{model}: {backend} takes no model")
        return make()
    if not model:
        raise UsageError(f"--llm {backend} needs a model: {backend}:MODEL")
    if backend in GGUF_LLMS:
        return make(model, temperature=temperature, window=endpoint.window)
    if backend not in ENDPOINTS:
        return make(model, temperature=temperature)
    key = configured.llm_key
    if own_url:
        key = None
    return make(
        model,
        url=own_url or endpoint.url or configured.llm_url,
        key=key,
        temperature=temperature,
        window=endpoint.window,
        retries=endpoint.retries,
        timeout=endpoint.timeout,
        on_event=endpoint.on_event,
    )


def card_llm(named: str, chosen: str, answering: LLM, endpoint: Endpoint) -> LLM:
    """Return the LLM that a card names: `answering` if it names that one or "self", else one on this machine.

    chosen  the LLM that the user chose to answer, as backend or backend:model; empty if they passed an object

    A card may come from anywhere, so it must not decide where questions are sent: of remote backends only the one that
    the user chose is used, at the user's URL. Raises UsageError for any other.
    """
    if named in {"self", chosen}:
        return answering
    backend = named.partition(":")[0]
    if backend not in {*OFFLINE_LLMS, chosen.partition(":")[0]}:
        raise UsageError(
            f"a card generates with the LLM {named!r}, which would send questions to a remote service: choose it with "
            f"--llm {named}, or leave the card out of --cards"
        )
    return make_llm(named, CARD_TEMPERATURE, endpoint)


def make_loader(options: AskOptions) -> "Loader":
    """Return the loader of the cards' models, on the chosen device and on the configured vLLM servers."""
    from kcard.cards.models.loader import Loader

    if options.device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise UsageError(f"device {options.device!r}: no GPU is available: leave out --device")
    engines = make_engines(options.engine, options.engine_places)
    return Loader(device=options.device, memory=options.memory_bytes, engines=engines)


def make_engines(specs: Sequence[str] | None, places: int | None = None) -> "Engines | None":
    """Return the engines that are named, else the configured ones; None if there are none."""
    configured = settings()
    if specs is None:
        specs = configured.engine
    if not specs:
        return None
    from kcard.cards.models.vllm_engines import Engines

    return Engines(specs, places, configured.engine_key)


def make_pool(
    selection: "Sequence[str] | Selection | CardSet | None",
    hub: "Hub | None",
    loader: "Loader",
    llm: Callable[[str], LLM] | None = None,
    on_event: OnEvent = ignore,
) -> "tuple[CardSet, Generator, str]":
    """Return the selected cards, the pool that generates for them, and a note on cards left out by quarantine.

    A card's files are verified and unpacked when it is first used, so a pool may hold thousands. `llm`: maps the name
    of an LLM, as a card gives it, to the LLM. `loader`, `on_event`: see CardPool.
    """
    from kcard.cards.pool import CardPool

    cards, note = select_cards(selection, hub)
    return cards, CardPool(cards, llm=llm, loader=loader, on_event=on_event), note


def select_cards(
    selection: "Sequence[str] | Selection | CardSet | None", hub: "Hub | None"
) -> "tuple[CardSet, str]":
    """Return the selected cards (None: all), published ones unopened, and a note on those that were left out."""
    from kcard.cards.card import Card, CardHandle, CardSet, is_weights
    from kcard.hub.registry import Hub
    from kcard.hub.selection import Selection

    if isinstance(selection, CardSet):
        return selection, ""
    if hub is None:
        hub = Hub()
    if not isinstance(selection, Selection):
        selection = hub.select(selection, drafts=True)
    size_of = hub.blobs.size

    def weight_bytes(manifest: "Manifest") -> int:
        return sum(size_of(sha256) for name, sha256 in manifest.files.items() if is_weights(name))

    cards: list[CardHandle | Card] = []
    for version in selection.versions:
        handle = CardHandle(
            version.manifest,
            partial(hub.folder, version.reference),
            version.size,
            partial(weight_bytes, version.manifest),
            partial(hub.read, version),
            version.name,
        )
        cards.append(handle)
    for folder in selection.drafts:
        cards.append(Card.open(folder))
    return CardSet(cards), selection.note


def make_integrator(
    options: AskOptions,
    selectors: "Selectors",
    pool: Generator,
    llm: LLM,
    examples: tuple[Example, ...],
    gate: Gate,
) -> Integrator:
    """Return the integrator of the chosen mode. `gate`: the one that decides whether knowledge is needed."""
    from kcard.integrators.top_down import (
        AutoChoice,
        CardChoice,
        ExplicitChoice,
        NearestChoice,
        RelevanceThreshold,
        SingleDocument,
        Step,
        TopDown,
    )

    integrator: Integrator
    step: Step
    if options.mode == "top-down":
        step = SingleDocument(
            pool,
            selectors,
            options.n1,
            options.min_factuality,
            options.compare_index,
            options.single_document,
        )
    else:
        # Bottom-up and hybrid let several cards generate, and select from all of their documents.
        from kcard.integrators.bottom_up import BottomUp

        integrator = BottomUp(
            pool,
            selectors,
            options.sampling,
            options.n1,
            options.n2,
            options.n3,
            options.floor,
            options.min_factuality,
            options.max_cards,
            options.factuality_k,
            options.compare_index,
        )
        step = integrator
    # In top-down and hybrid some cards are chosen, round by round.
    if options.mode != "bottom-up":
        offered = pool.cards
        ranker = selectors.nearest(offered)
        margin: float = options.margin
        max_cards: int | None = 1
        if options.mode == "hybrid":
            margin = math.inf
            max_cards = None
        choice: CardChoice
        if options.select == "question":
            choice = NearestChoice(ranker, MAX_CARDS_OF_ROUND, margin)
        elif options.select == "auto":
            choice = AutoChoice(ranker, examples, MAX_CARDS_OF_ROUND, margin)
        else:
            choice = ExplicitChoice(offered, examples, max_cards, ranker, options.shortlist)
        integrator = TopDown(
            step,
            options.sampling,
            llm,
            choice,
            len(offered),
            examples,
            options.max_iterations,
            gate.templates,
            gate_turns(gate, fired=True),
            options.reuse_cards,
        )
    # Questions that no card fits get no knowledge.
    if options.relevance_threshold:
        integrator = RelevanceThreshold(integrator, pool.cards, options.relevance_threshold)
    return integrator


def gate_turns(gate: Gate, fired: bool) -> tuple[Turn, ...]:
    """Return the gate's question to the LLM and its verdict as the start of a transcript; empty if it asks nothing."""
    turn = gate.turn(fired)
    if turn is None:
        return ()
    return (turn,)


def with_documents(turns: tuple[Turn, ...], count: int) -> tuple[Turn, ...]:
    """Return a transcript whose last turn, if there is one, has added `count` documents."""
    if not turns:
        return turns
    return (*turns[:-1], replace(turns[-1], documents=count))


def make_selectors(options: AskOptions, cards: "CardSet", on_event: OnEvent = ignore) -> "Selectors":
    """Return the selectors and the evidence that passages are checked against."""
    from kcard.integrators.card_ranking import profiles_of
    from kcard.integrators.pool_views import Selectors
    from kcard.selectors.evidence import Union, open_evidence
    from kcard.selectors.factuality import cached

    choice = SelectorChoice(options.selectors, options.relevance, options.pruner_name, options.checker)
    loading = Loading(options.device, options.trust_remote_code, on_event=on_event)
    own: Mapping[str, Evidence] = {}
    others: list[Evidence] = []
    for spec in map(str, options.evidence):
        if spec == "own":
            own = CardEvidence(cards)
        elif spec != "none":
            others.append(open_evidence(spec))
    independent: Evidence | None = None
    if len(others) == 1:
        independent = others[0]
    elif others:
        independent = Union(others)
    return Selectors(
        relevance=choice.make("relevance", loading),
        pruner=choice.make("pruner", loading),
        checker=cached(choice.make("checker", loading)),
        own=own,
        independent=independent,
        profiles=partial(profiles_of, cards),
        rank_by=options.rank_by,
    )
