"""Cards whose knowledge is elsewhere: in a search, an LLM, or a model on the Hugging Face Hub.

A search card holds no text, only search.json: the registered evidence to search, such as wikipedia:de. The question is
sent there, so such a card is used only if named (kcard.hub.registry).
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcard import system
from kcard.cards.card import REFERENCE, SEARCH, Card
from kcard.cards.fingerprint import read_fingerprint
from kcard.cards.generators.retrieval import padded
from kcard.cards.hugging_face import ModelRepository, fetch, refuse_code
from kcard.cards.model_limits import refuse_oversized
from kcard.cards.models import stack
from kcard.cards.models.batched.decoder import UnsupportedModel
from kcard.cards.models.loader import Loader
from kcard.errors import CardError
from kcard.interfaces import LLM, CardGenerator
from kcard.io import build, parse
from kcard.manifest import Base
from kcard.text import is_english
from kcard.types import Passage, Question, Sampling

if TYPE_CHECKING:
    from kcard.cards.models.transformers_backend import CausalCard
    from kcard.cards.models.vllm_backend import ServedCard
    from kcard.interfaces import Evidence

GROUP = "kcard.evidence"
# Evidence that reads local files: a downloaded card must not choose which.
LOCAL = "corpus"
# Texts that the encoder reads for ranking.
CANDIDATES = 10


@dataclass(frozen=True)
class SearchTarget:
    """`evidence`: a name registered under kcard.evidence, with its argument: name or name:argument."""

    evidence: str

    def __post_init__(self) -> None:
        name = self.evidence.partition(":")[0]
        if name == LOCAL or name not in system.names(GROUP):
            searches = ", ".join(other for other in system.names(GROUP) if other != LOCAL)
            raise CardError(f"a search card can't search {self.evidence!r}: choose one of {searches}")

    @classmethod
    def read(cls, folder: Path) -> "SearchTarget":
        """Load a folder's search.json. Raises CardError if unreadable."""
        try:
            return build(cls, parse((folder / SEARCH).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CardError(f"{folder / SEARCH} does not name a search: {error!r}") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def open(self) -> "Evidence":
        """Load the evidence to search. Raises what it raises for its argument."""
        name, _, argument = self.evidence.partition(":")
        evidence: Evidence = system.load(GROUP, name)(argument)
        return evidence


def load_search_card(card: Card, models: "Loader") -> "SearchCard":
    """Load the generator of a search card; sends no request yet. Raises CardError."""
    del models
    return SearchCard(card, SearchTarget.read(card.folder).open())


class SearchCard(CardGenerator):
    """Generates the results of a search: document 1 is the best for the question, document 2 the next."""

    def __init__(self, card: Card, evidence: "Evidence") -> None:
        self._name = card.name
        self._english = is_english(card.manifest.language)
        self._evidence = evidence

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate as CardGenerator does, without sampling: the seed has no effect. Results may change over time.

        Documents beyond the results are empty. `Passage.source` holds text and location. Raises what the search raises
        when it is unavailable.
        """
        del sampling
        sources_of = self._evidence.find_all(questions, max(CANDIDATES, documents))
        passages = []
        for question, sources in zip(questions, sources_of, strict=True):
            # Keep the search's order; for English, rank by the mean of its score and the encoder's cosine.
            if self._english and sources:
                from kcard.embedded import minilm

                vectors = minilm.embed([question, *(source.text for source in sources)])
                cosines = (vectors[1:] @ vectors[0]).tolist()
                best = max(source.score for source in sources) or 1.0
                # Rounded, since the last bits of an embedding depend on the rest of its batch.
                scored = []
                for source, near in zip(sources, cosines, strict=True):
                    scored.append((round(source.score / best + near, 5), source))
                scored.sort(key=lambda pair: -pair[0])
                sources = [source for _, source in scored]
            passages.append(padded(self._name, sources, documents))
        return passages


# LLM cards: an LLM generates its own document for the question (GenRead; Adaptive Retrieval, section 4).
#
# The manifest's base names the LLM: embedded, openai:MODEL, hf:MODEL, or self for the one that answers. The loader
# decides which of them may be used: it returns an LLM for the card, or raises.


def load_llm_card(card: Card, models: "Loader") -> "LLMCard":
    """Load an LLM card. Raises CardError if the loader has no LLM, and what its LLM raises."""
    if models.llm is None:
        raise CardError(f"card {card.name!r} generates with an LLM, which only kcard ask provides")
    return LLMCard(card.name, models.llm(card.manifest.base.name))


class LLMCard(CardGenerator):
    """Generates one document per question; the rest are empty, since each would cost a call for much the same text."""

    def __init__(self, name: str, llm: LLM) -> None:
        self._name, self._llm = name, llm

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate as CardGenerator does, with the LLM's own settings. Raises LLMError."""
        return self.generate_for([Question(question) for question in questions], documents, sampling)

    def generate_for(
        self, questions: Sequence[Question], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        del sampling
        empty = [Passage(self._name, "")] * (documents - 1)
        passages = []
        for question in questions:
            text = self._llm.reply(question.request("document")).text.strip()
            passages.append([Passage(self._name, text), *empty][:documents])
        return passages


# Cards that are causal language models: a whole model (full) or an adapter on a base (lora).
#
# The engine runs those that it supports, transformers and peft the others.


def load_model_of_card(
    card: Card, models: Loader, pinned: bool = False
) -> "stack.StackedCard | CausalCard | ServedCard":
    """Load a card with a model of its own, and verify by its fingerprint that it acts as when it was made.

    A card whose base is on one of the loader's servers runs there, and its fingerprint is compared whenever it is
    loaded there. One that the engine does not support runs with transformers and peft, and records the reason.

    Raises ModelUnavailable if its base is unavailable or has changed, CardError if its adapter is not applied, its
    weights or tokenizer are not its own, or it needs custom code. A card without a fingerprint is loaded with a
    warning, unless its files were published elsewhere and are `pinned`, so that it can't have one.
    """
    refuse_code(card.folder, f"card {card.name!r}", card.manifest.files)
    refuse_oversized(card.folder, f"card {card.name!r}")
    served = None if models.engines is None else models.engines.card(card, models)
    if served is not None:
        _warn_unproven(card, read_fingerprint(card.folder) is None and not pinned)
        return served
    try:
        loaded: stack.StackedCard | CausalCard = stack.load(card, models)
    except UnsupportedModel as reason:
        from kcard.cards.models import transformers_backend

        loaded = transformers_backend.CausalCard(card, models, unsupported=str(reason))
    stored = read_fingerprint(card.folder)
    if stored is not None:
        stored.check(loaded.measure(stored.pairs), card.name, card.manifest.base.name)
    else:
        _warn_unproven(card, not pinned)
    return loaded


def _warn_unproven(card: Card, unproven: bool) -> None:
    if unproven:
        logging.getLogger(__name__).warning(
            "card %s has no fingerprint: its files are intact, but nothing proves that its model computes what it did "
            "when it was made",
            card.name,
        )


# A card by reference: its weights are in a repository of the Hugging Face Hub, pinned to one commit.
#
# The card itself holds reference.json: repository, commit, and the sha256 of every file to fetch. The weights
# are fetched into the Hugging Face cache on first use; nothing unpinned is ever loaded.


@dataclass(frozen=True)
class ModelReference:
    """The files to fetch: those of one commit, with their sha256 where the Hub reports it.

    `base` is the model that an adapter belongs to, pinned too; None for a whole model.
    """

    repository: str
    revision: str
    files: Mapping[str, str | None]
    base: Base | None = None

    @classmethod
    def to(cls, repository: ModelRepository, base: Base | None) -> "ModelReference":
        files = {path: repository.files[path] for path in repository.needed}
        return cls(repository.name, repository.revision, files, base)

    @classmethod
    def read(cls, folder: Path) -> "ModelReference":
        """Load a folder's reference.json. Raises CardError if unreadable."""
        try:
            return build(cls, parse((folder / REFERENCE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CardError(f"{folder / REFERENCE} is not a reference: {error!r}") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load_reference_card(card: Card, models: Loader) -> "CardGenerator":
    """Fetch and check the files that a card refers to, and load it as a full or LoRA card.

    Raises ModelUnavailable if they can't be fetched or are not as pinned.
    """
    return load_model_of_card(resolve_reference(card), models, pinned=True)


def resolve_reference(card: Card) -> Card:
    """Fetch and check the files that a card refers to; return the full or LoRA card in the Hugging Face cache.

    Raises ModelUnavailable if they can't be fetched or are not as pinned.
    """
    reference = ModelReference.read(card.folder)
    folder = fetch(reference.repository, reference.revision, reference.files)
    refuse_code(folder, reference.repository, reference.files)
    if reference.base is None:
        manifest = replace(card.manifest, kind="model", method="full")
    else:
        manifest = replace(card.manifest, kind="model", method="lora", base=reference.base)
    return replace(card, folder=folder, manifest=manifest)
