"""The next version of a card: what it keeps of the last one, and the passages of both.

Every card goes on from its own weights. Old passages are replayed, so that it keeps what it knew: of an embedded
card all, of any other as many as there are new ones in each epoch (docs/training.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kcard.answer import Source
from kcard.cards.format.code import refuse_code
from kcard.cards.format.folder import Card
from kcard.cards.format.passages import hashes, passages
from kcard.cards.lm.loader import base_digest
from kcard.config import settings
from kcard.errors import ModelUnavailable, UsageError
from kcard.manifest import MANIFEST, Manifest, file_digest
from kcard.training.bases import EMBEDDED
from kcard.training.corpus import Corpus, corpus_digest, is_known, statements
from kcard.training.documents import rejoined
from kcard.training.finetune import WarmStart
from kcard.training.lazy import Lazy
from kcard.training.options import TrainOptions
from kcard.words import passage_digest

__all__ = ["Joined", "Previous", "previous"]

UPDATED = ("full", "lora", "prefix", "retrieval")
# What an update may not change, since the card goes on as what it is.
KEPT = ("kind", "base", "method", "objective", "prompt_style", "rank", "prefix_tokens")
# What it takes from the last version where it is not given.
TAKEN = (
    "epochs",
    "minutes",
    "learning_rate",
    "batch_size",
    "block",
    "dtype",
    "optimizer",
    "teacher_top_k",
    "teacher_temperature",
)


@dataclass(frozen=True)
class Joined:
    """Old and new passages together.

    corpus     those whose text is at hand, old ones first
    known      how many of them are old
    hashed     old statements of which only hashes travel: where each stands, by its digest
    documents  the whole texts that hold a new passage, where the objective is clm
    """

    corpus: Corpus
    known: int
    hashed: Mapping[str, Source] = field(default_factory=dict)
    documents: Sequence[str] | None = None

    def learned(self) -> tuple[Sequence[str], Sequence[str]]:
        """What a model is shown, (new, old): statements, or documents where there are some."""
        old = self.corpus.passages[: self.known]
        if self.documents is not None:
            return self.documents, [*rejoined(old)]
        count = sum(1 for _ in statements(old))
        return self.corpus.texts[count:], self.corpus.texts[:count]


@dataclass(frozen=True)
class Previous:
    """The version that a card is trained on from. `sha256`: of its manifest, which names it."""

    card: Card
    sha256: str

    @property
    def embedded(self) -> bool:
        """Whether it is an embedded card, which learns old and new passages together."""
        made = self.card.manifest
        bases = {"full": "", "lora": EMBEDDED}
        return made.base.name == bases.get(made.kind) and "muon_rate" in made.training.hyperparameters

    @property
    def passages(self) -> Sequence[Source]:
        """Those that it carries."""
        return passages(self.card.folder)

    def arguments(self, given: TrainOptions) -> TrainOptions:
        """How the next version is trained: as this one was. UsageError for what can't be changed, CardError for a
        card that needs code of its own."""
        refuse_code(self.card.folder, f"card {self.card.name!r}", self.card.manifest.files)
        if (kind := self.card.manifest.kind) not in UPDATED:
            raise UsageError(
                f"{self.card.name} is a card of kind {kind}, which was not trained here: an update needs one of kind "
                f"{', '.join(UPDATED)}"
            )
        kept, default = self._made(), TrainOptions()
        for name in KEPT:
            if getattr(given, name) not in (getattr(default, name), kept[name]):
                raise UsageError(
                    f"{name} {getattr(given, name)!r} can't change in an update: {self.card.name} has "
                    f"{kept[name]!r}; leave it out, or train a new card"
                )
        taken = {name: kept[name] for name in TAKEN if getattr(given, name) is None}
        # Text that was not to travel with the last version does not travel with the next.
        evidence = "hashes" if self.card.manifest.evidence == "hashes" else given.evidence
        return replace(given, **{name: kept[name] for name in KEPT}, **taken, evidence=evidence)

    def manifest(self, new: Manifest) -> Manifest:
        """`new` with what it leaves open as the last version has it. Not the date: only the user knows that."""
        default = Manifest(new.name, new.description)
        inherited = {
            key: getattr(self.card.manifest, key)
            for key in ("domain", "language", "licence")
            if getattr(new, key) == getattr(default, key)
        }
        return replace(new, updates=self.sha256, **inherited)

    def joined(self, new: Corpus) -> Joined:
        """The passages of both. UsageError where `new` holds nothing that the card has not, and where an embedded
        card would have to do without its old ones."""
        folder = self.card.folder
        old, hashed = passages(folder), hashes(folder)
        if hashed and self.embedded:
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
        lines = [] if not hashed else [self.card.manifest.training.corpus_sha256]
        digest = corpus_digest(both, lines)
        documents = None if new.documents is None else new.documents.of(lambda p: not is_known(p, have))
        return Joined(replace(new, passages=both, sha256=digest), count, hashed, documents)

    def onward(self, known: Sequence[str]) -> WarmStart:
        """Where fine-tuning goes on; `known`: the old texts, which are replayed.

        Raises ModelUnavailable where the card's base is not at hand as it was.
        """
        base = self.card.manifest.base
        if self.card.manifest.is_adapter and base.sha256 is not None:
            found = base_digest(base.name, base.revision)
            if found not in (None, base.sha256):
                raise ModelUnavailable(
                    f"{self.card.name} is an adapter for {base.name!r} with sha256 {base.sha256[:12]}…, but "
                    f"{str(found)[:12]}… is on this machine: download the base that it was trained on"
                )
        return WarmStart(self.card.folder, base, known)

    def _made(self) -> dict[str, Any]:
        """The arguments of training that made it, as far as its manifest tells."""
        made = self.card.manifest
        parameters = made.training.hyperparameters
        if made.kind == "retrieval":
            return {name: getattr(TrainOptions(), name) for name in (*KEPT, *TAKEN)} | {"kind": "retrieval"}
        return {
            "kind": "both" if made.index else "model",
            "base": EMBEDDED if self.embedded else made.base.name or str(self.card.folder),
            "method": made.kind,
            "objective": self._objective,
            "prompt_style": made.prompt.style if self.embedded and made.kind == "full" else None,
            "rank": parameters.get("rank") if made.kind == "lora" else None,
            "prefix_tokens": parameters.get("prefix_tokens"),
            "epochs": parameters.get("epochs"),
            "minutes": parameters.get("minutes"),
            "learning_rate": parameters.get("muon_rate" if self.embedded else "learning_rate"),
            "batch_size": parameters.get("batch_size"),
            "dtype": parameters.get("dtype"),
            "optimizer": parameters.get("optimizer"),
            "block": parameters.get("block") if self._objective == "clm" and not self.embedded else None,
            "teacher_top_k": parameters.get("teacher_top_k"),
            "teacher_temperature": parameters.get("teacher_temperature"),
        }

    @property
    def _objective(self) -> str:
        """By the prompt, since cards that were published elsewhere name none of these."""
        if self.card.manifest.training.objective == "distil":
            return "distil"
        return "clm" if self.card.manifest.prompt.template == "{question}" else "recite"


def previous(card: str | Path) -> Previous:
    """The version that `card` means: a draft's name, a card's folder or a reference to the hub.

    Raises UnknownCard and CardError.
    """
    named = Path(card).expanduser()
    for folder in (settings().drafts / card, named):
        if (folder / MANIFEST).is_file():
            return Previous(Card.open(folder.absolute()), file_digest(folder / MANIFEST))
    if named.is_dir() or not isinstance(card, str):
        found = Card.open(named)
        return Previous(found, file_digest(named / MANIFEST))
    from kcard.hub.registry import Hub

    folder = Hub().folder(card)
    return Previous(Card.open(folder), file_digest(folder / MANIFEST))
