"""The next version of a card, trained on more passages.

An embedded card is trained anew on the passages of both versions. Any other one continues from its own weights, and
replays as many old passages per epoch as there are new ones, so that they are not forgotten (docs/training.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kcard.cards.card import Card
from kcard.cards.hugging_face import refuse_code
from kcard.cards.model_limits import refuse_oversized
from kcard.cards.models.loader import base_digest
from kcard.cards.passages import hashes, passages
from kcard.config import settings
from kcard.errors import ModelUnavailable, UsageError
from kcard.manifest import MANIFEST, Manifest, file_digest
from kcard.text import passage_digest
from kcard.training.base_model import WeightSource
from kcard.training.corpus import Corpus, corpus_digest, is_known, statements
from kcard.training.documents import rejoin
from kcard.training.epochs import Lazy
from kcard.training.options import EMBEDDED_BASE, METHOD, TrainOptions
from kcard.types import Source

UPDATABLE_KINDS = ("model", "both", "retrieval")
# Options that an update may not change.
FIXED_OPTIONS = ("kind", "base", "method", "objective", "prompt_style", "rank")
# Options that default to those of the last version.
RECORDED_OPTIONS = ("epochs", "minutes", "learning_rate", "batch_size", "dtype", "optimizer")
INHERITED_OPTIONS = ("minutes", *(name for name in METHOD if name not in (*FIXED_OPTIONS, "seed")))


@dataclass(frozen=True)
class CorpusUpdate:
    """The old and new passages of a card.

    corpus     the passages whose text is available, old ones first
    old_count  how many of them are old
    hashed     old statements of which the card has only hashes: the place of each, by its digest
    documents  the whole texts that contain a new passage, with objective clm
    """

    corpus: Corpus
    old_count: int
    hashed: Mapping[str, Source] = field(default_factory=dict)
    documents: Sequence[str] | None = None

    def training_texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the texts to train a model on, (new, old): the documents if there are any, otherwise statements."""
        old = self.corpus.passages[: self.old_count]
        if self.documents is not None:
            return self.documents, [*rejoin(old)]
        count = sum(1 for _ in statements(old))
        return self.corpus.texts[count:], self.corpus.texts[:count]


@dataclass(frozen=True)
class Previous:
    """The version of a card that an update starts from. `sha256`: of its manifest, which identifies it."""

    card: Card
    sha256: str

    @property
    def is_embedded(self) -> bool:
        """Whether this is an embedded card, which is always trained anew."""
        manifest = self.card.manifest
        bases = {"full": "", "lora": EMBEDDED_BASE}
        return (
            manifest.base.name == bases.get(manifest.method)
            and "muon_rate" in manifest.training.hyperparameters
        )

    @property
    def passages(self) -> Sequence[Source]:
        """The passages that the card carries."""
        return passages(self.card.folder)

    def arguments(self, options: TrainOptions) -> TrainOptions:
        """Return the options of the next version; those that are not set are this version's. Raises UsageError for an
        option that can't change, and CardError for a card that needs custom code or more layers than it has."""
        refuse_code(self.card.folder, f"card {self.card.name!r}", self.card.manifest.files)
        refuse_oversized(self.card.folder, f"card {self.card.name!r}")
        kind = self.card.manifest.kind
        if kind not in UPDATABLE_KINDS:
            raise UsageError(
                f"{self.card.name} is a card of kind {kind}, which was not trained here: an update needs one of kind "
                f"{', '.join(UPDATABLE_KINDS)}"
            )
        if self.card.manifest.training.objective == "distil":
            raise UsageError(
                f"{self.card.name} was trained with objective distil, which kcard no longer has: train it anew"
            )
        recorded, default = self._recorded_options(), TrainOptions()
        values: dict[str, Any] = {}
        for name in FIXED_OPTIONS:
            value = getattr(options, name)
            if value not in (getattr(default, name), recorded[name]):
                raise UsageError(
                    f"{name} {value!r} can't change in an update: {self.card.name} has {recorded[name]!r}; leave it "
                    "out, or train a new card"
                )
            values[name] = recorded[name]
        for name in INHERITED_OPTIONS:
            if getattr(options, name) is None:
                values[name] = recorded[name]
        # If the last version did not ship its text, neither does the next.
        if self.card.manifest.evidence == "hashes":
            values["evidence"] = "hashes"
        return replace(options, **values)

    def manifest(self, new: Manifest) -> Manifest:
        """Complete `new` by the last version's values, except its date, which only the user knows."""
        default = Manifest(new.name, new.description)
        inherited: dict[str, Any] = {}
        for key in ("domain", "language", "licence"):
            if getattr(new, key) == getattr(default, key):
                inherited[key] = getattr(self.card.manifest, key)
        return replace(new, updates=self.sha256, **inherited)

    def join(self, new: Corpus) -> CorpusUpdate:
        """Join the passages of both.

        Raises UsageError if `new` has no passage that the card lacks, or if an embedded card's old passages are not
        available.
        """
        folder = self.card.folder
        old, hashed = passages(folder), hashes(folder)
        if hashed and self.is_embedded:
            raise UsageError(
                f"{self.card.name} learns old and new passages together, but carries only hashes of the old "
                "ones: train it without update on a corpus with both"
            )
        have = {passage_digest(source.text) for source in old} | hashed.keys()
        fresh = [i for i, source in enumerate(new.passages) if not is_known(source, have)]
        if not fresh:
            raise UsageError(f"{new.path} has no passage that {self.card.name} lacks: nothing to update")
        count = len(old)
        both = Lazy(count + len(fresh), lambda i: old[i] if i < count else new.passages[fresh[i - count]])
        lines: list[str] = []
        if hashed:
            lines.append(self.card.manifest.training.corpus_sha256)
        digest = corpus_digest(both, lines)
        documents = None
        if new.documents is not None:
            documents = new.documents.select(lambda passage: not is_known(passage, have))
        return CorpusUpdate(replace(new, passages=both, sha256=digest), count, hashed, documents)

    def weight_source(self, replayed: Sequence[str]) -> WeightSource:
        """Return what fine-tuning starts from; `replayed`: the old texts.

        Raises ModelUnavailable if the card's base is not available in the same version.
        """
        base = self.card.manifest.base
        if self.card.manifest.is_adapter and base.sha256 is not None:
            digest = base_digest(base.name, base.revision)
            if digest not in (None, base.sha256):
                raise ModelUnavailable(
                    f"{self.card.name} is an adapter for {base.name!r} with sha256 {base.sha256[:12]}…, but "
                    f"{str(digest)[:12]}… is on this machine: download the base that it was trained on"
                )
        return WeightSource(self.card.folder, base, replayed)

    def _recorded_options(self) -> dict[str, Any]:
        """Return the options that the card was trained with, as far as its manifest records them."""
        manifest = self.card.manifest
        parameters = manifest.training.hyperparameters
        recorded = {name: getattr(TrainOptions(), name) for name in (*FIXED_OPTIONS, *INHERITED_OPTIONS)}
        recorded["kind"] = manifest.kind
        if manifest.kind == "retrieval":
            return recorded
        recorded |= {name: parameters.get(name) for name in RECORDED_OPTIONS}
        recorded |= {"method": manifest.method, "objective": self._objective}
        recorded |= {"prompt_style": None, "rank": None, "block": None}
        if manifest.method == "lora":
            recorded["rank"] = parameters.get("rank")
        if self.is_embedded:
            recorded |= {"base": EMBEDDED_BASE, "learning_rate": parameters.get("muon_rate")}
            if manifest.method == "full":
                recorded["prompt_style"] = manifest.prompt.style
        else:
            recorded["base"] = manifest.base.name or str(self.card.folder)
            if self._objective == "clm":
                recorded["block"] = parameters.get("block")
        return recorded

    @property
    def _objective(self) -> str:
        """The objective, by the prompt, since cards published elsewhere don't record it in these terms."""
        return "clm" if self.card.manifest.prompt.template == "{question}" else "recite"


def previous(card: str | Path) -> Previous:
    """Open the version that `card` names: a draft, a card's folder or a reference to the hub.

    Raises UnknownCard and CardError.
    """
    named = Path(card).expanduser()
    for folder in (settings().drafts / card, named):
        if (folder / MANIFEST).is_file():
            return Previous(Card.open(folder.absolute()), file_digest(folder / MANIFEST))
    if named.is_dir() or not isinstance(card, str):
        return Previous(Card.open(named), file_digest(named / MANIFEST))
    from kcard.hub.registry import Hub

    folder = Hub().folder(card)
    return Previous(Card.open(folder), file_digest(folder / MANIFEST))
