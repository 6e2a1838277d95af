"""The vLLM servers that run cards: one per base, chosen by the models that each lists."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.cards.card import Card
from kcard.cards.fingerprint import read_fingerprint
from kcard.cards.models import prompting
from kcard.cards.models.batched import lora
from kcard.cards.models.batched.decoder import UnsupportedModel
from kcard.cards.models.loader import Loader, base_files, explained
from kcard.cards.models.prompting import Prompter
from kcard.cards.models.vllm_backend import PREFIX, Places, ServedCard, ServedCards
from kcard.cards.models.vllm_server import Server, ServerModel
from kcard.cards.models.weights import limits
from kcard.config import engine_url
from kcard.embedded.opt import base_folder
from kcard.errors import CardError, LLMError
from kcard.manifest import MANIFEST

DIGEST_DIGITS = 12  # hexadecimal digits of a version in the name of its adapter
CONTEXT = 2048  # tokens, if neither the base's config nor the server gives the limit


class CardNotServed(Exception):
    """No server runs the card; the message says why."""


@dataclass(frozen=True)
class _Engine:
    """A server, its places for adapters, and its models other than adapters."""

    server: Server
    places: Places
    bases: list[ServerModel]

    def base(self, name: str) -> ServerModel | None:
        """Return the base with that name or loaded from that path."""
        folder = base_folder(name)
        for model in self.bases:
            if name in {model.name, model.root} or _paths(folder) & _paths(model.root):
                return model
        return None


class Engines:
    """The servers named by `specs`, such as vllm=http://127.0.0.1:8000.

    places  maximum number of adapters loaded on each; None: as many as the server batches, if it reports that
    key     for servers with --api-key

    Raises UsageError for a malformed spec. Servers list their models when a card is first loaded.
    """

    def __init__(self, specs: Sequence[str], places: int | None = None, key: str | None = None) -> None:
        self._servers = [Server(engine_url(spec), key) for spec in specs]
        self._places = [Places(server, places) for server in self._servers]
        self._engines: dict[int, _Engine] = {}
        self._group = ServedCards()
        self._cards: dict[Path, ServedCard | CardNotServed] = {}
        self._warned: set[str] = set()

    @property
    def announcement(self) -> str:
        """Where questions go, for the user."""
        urls = " and ".join(server.url for server in self._servers)
        return f"cards: questions for cards of their bases are sent to {urls}"

    def card(self, card: Card, models: Loader) -> ServedCard | None:
        """Return the card on the server that has its base or the card itself; None if the own engine is to run it,
        which is logged once. Raises LLMError if a server does not answer, CardError for a damaged card."""
        if card.folder not in self._cards:
            try:
                self._cards[card.folder] = self.find(card, models)
            except CardNotServed as error:
                self._cards[card.folder] = error
        served = self._cards[card.folder]
        if isinstance(served, CardNotServed):
            if card.name not in self._warned:
                self._warned.add(card.name)
                logging.getLogger(__name__).warning(
                    "card %s runs on kcard's own engine: %s", card.name, served
                )
            return None
        return served

    def describe(self, card: Card, models: Loader) -> str:
        """Say what runs the card: a server and the model there, or kcard itself and why."""
        if not card.manifest.method:
            return f"kcard: a card of kind {card.manifest.kind}"
        try:
            served = self.find(card, models)
        except CardNotServed as reason:
            return f"kcard: {reason}"
        return f"{served.server.url}: {served.model}"

    def find(self, card: Card, models: Loader) -> ServedCard:
        """Return the card on its server, or raise CardNotServed."""
        from safetensors import safe_open

        if card.manifest.prompt.style != "tokens":
            raise CardNotServed("its prompts are vectors, not tokens")
        # A whole model: the server must have this very folder, or a model of its name that a fingerprint can verify.
        if card.manifest.method != "lora":
            proven = read_fingerprint(card.folder) is not None
            for engine in self._reachable_engines():
                for model in engine.bases:
                    if _paths(model.root) & _paths(card.folder) or (proven and model.name == card.name):
                        prompter = _make_prompter(card, models, card.folder, model)
                        return ServedCard(
                            prompter, engine.server, engine.places, model.name, None, self._group
                        )
            raise CardNotServed(f"no server has it (they have {self._served_names()})")
        # An adapter: vLLM must be able to load it, and the server must have its base.
        refused = ""
        with explained(CardError, f"card {card.name!r}: its adapter can't be read"):
            try:
                lora.check(card.folder)
            except UnsupportedModel as reason:
                refused = str(reason)
            else:
                with safe_open(card.folder / lora.WEIGHTS, "pt") as file:
                    changed = [name for name in file.keys() if "token_adapter" in name]  # noqa: SIM118
                refused = f"it changes {changed[0]}" if changed else ""
        if refused:
            raise CardNotServed(f"vLLM can't load its adapter: {refused}")
        named = card.manifest.base
        for engine in self._reachable_engines():
            base = engine.base(named.name)
            if base is not None:
                prompter = _make_prompter(card, models, base_files(named.name, named.revision), base)
                return ServedCard(
                    prompter, engine.server, engine.places, adapter_name(card), base.name, self._group
                )
        raise CardNotServed(f"no server has its base {named.name!r} (they have {self._served_names()})")

    def _reachable_engines(self) -> Iterator[_Engine]:
        """Yield the servers with the models that they list; one that failed is tried again on the next call. If some do
        not answer, raise the first one's error after the others."""
        failed: LLMError | None = None
        for place, (server, places) in enumerate(zip(self._servers, self._places, strict=True)):
            if place not in self._engines:
                try:
                    bases = [model for model in server.models() if model.parent is None]
                except LLMError as error:
                    failed = failed or error
                    continue
                self._engines[place] = _Engine(server, places, bases)
            yield self._engines[place]
        if failed is not None:
            raise failed

    def _served_names(self) -> str:
        names = []
        for engine in self._engines.values():
            names += [model.name for model in engine.bases]
        return ", ".join(names) or "no model"


def adapter_name(card: Card) -> str:
    """Return the server-side name of a card's adapter, equal for all programs with this version of the card."""
    sealed = card.folder / MANIFEST
    # The folder of a card by reference is the fetched repository, which has no manifest.
    text = sealed.read_bytes() if sealed.is_file() else card.manifest.to_json().encode()
    return f"{PREFIX}{card.name}-{hashlib.sha256(text).hexdigest()[:DIGEST_DIGITS]}"


def _make_prompter(card: Card, models: Loader, folder: Path | None, served: ServerModel) -> Prompter:
    """Prompt as the own engine does; if the base is not on this machine, within the server's limits."""
    ends, context = (None, None) if folder is None else limits(folder)
    limits_of = [most for most in (context, served.context) if most is not None]
    return prompting.load_prompter(card, models.tokenizer(card), ends, min(limits_of, default=CONTEXT), 0)


def _paths(name: str | Path) -> set[Path]:
    """Return a model's path if it is a local folder."""
    path = Path(name)
    return {path.resolve()} if path.is_dir() else set()
