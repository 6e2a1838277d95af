"""Cards that an engine can take: everything that can be found out before anything is written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kcard.cards.embedded import BASE
from kcard.cards.export import adapter as adapters
from kcard.cards.export.adapter import Adapter, misfits
from kcard.cards.export.engines import Engine
from kcard.cards.export.prompt import Expected, TextPrompt, expected, text_prompt
from kcard.cards.format import fingerprint
from kcard.cards.format.code import refuse_code
from kcard.cards.format.folder import Card
from kcard.cards.kinds import reference
from kcard.cards.lm.loader import Loader, base_files
from kcard.cards.lm.vocabulary import VOCABULARY
from kcard.errors import CardError, UsageError
from kcard.manifest import MANIFEST, Base, file_digest

__all__ = ["Prepared", "check_together", "prepare"]

WHOLE = "add --merge to export the card as a whole model"
SERVE = "use kcard serve"


@dataclass(frozen=True)
class Prepared:
    """One card, as an engine will have it.

    card      its model files lie in `card.folder`; of a card by reference they were fetched
    sha256    of its manifest, which names the version
    adapter   what the engine applies to the base; None where it gets a whole model
    merged    whether the whole model is made of an adapter and its base
    config    of the model or of the base (config.json); empty where the base is not at hand
    prompt    how it is asked
    expected  what it writes, by its fingerprint
    """

    card: Card
    sha256: str
    adapter: Adapter | None
    merged: bool
    config: Mapping[str, Any]
    prompt: TextPrompt
    expected: Sequence[Expected]

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def form(self) -> Literal["adapter", "merged", "whole"]:
        if self.adapter is not None:
            return "adapter"
        return "merged" if self.merged else "whole"

    @property
    def rewords(self) -> bool:
        """Whether kcard puts questions into the words of the corpus first, which no engine does."""
        return (self.card.folder / VOCABULARY).is_file()

    @property
    def base(self) -> Base:
        return self.card.manifest.base

    @property
    def base_argument(self) -> str:
        """The base of an adapter as an engine is told: the name in a hub, or a folder."""
        if self.base.name == BASE:
            return "./base"
        folder = Path(self.base.name)
        return str(folder.resolve()) if folder.is_dir() else self.base.name


def prepare(card: Card, engine: Engine, merge: bool) -> Prepared:
    """Check that the engine can run the card, whole if `merge`.

    Raises CardError, which says what to do instead, where the card has no weights, its prompt is not text, the engine
    does not run its architecture or would not apply its adapter as it was trained; ModelUnavailable where what a
    reference points to can't be fetched.
    """
    sha256 = file_digest(card.folder / MANIFEST)
    _check_kind(card, engine)
    card = reference.resolved(card) if card.manifest.kind == "reference" else card
    refuse_code(card.folder, f"card {card.name!r}", card.manifest.files)
    config = _config(card)
    adapter = adapters.read(card.folder) if card.manifest.kind == "lora" else None
    model_type = config.get("model_type")
    if model_type in engine.without:
        raise CardError(
            f"card {card.name!r}: {engine.title} does not run models of type {model_type}: export it to vllm, or "
            f"{SERVE}"
        )
    if adapter is not None and not merge and (found := misfits(adapter, engine, model_type)):
        raise CardError(
            f"card {card.name!r}: {engine.title} would not apply its adapter as it was trained, because "
            f"{' and '.join(found)}: {WHOLE}"
        )
    kept = fingerprint.read(card.folder)
    tokenizer = Loader().tokenizer(card)
    return Prepared(
        card,
        sha256,
        None if merge else adapter,
        merge and adapter is not None,
        config,
        text_prompt(card.name, tokenizer, card.manifest.prompt.template, kept),
        expected(tokenizer, kept),
    )


def check_together(cards: Sequence[Prepared], engine: Engine) -> None:
    """Raise UsageError unless one server can run all of them: adapters of one base, or one whole model."""
    names = ", ".join(card.name for card in cards)
    if len({card.name for card in cards}) < len(cards):
        raise UsageError(f"two of the cards have one name: {names}")
    if len(cards) == 1:
        return
    if whole := [card.name for card in cards if card.adapter is None]:
        raise UsageError(
            f"{engine.title} serves one whole model at a time, and {', '.join(whole)} "
            f"{'is' if len(whole) == 1 else 'are'} whole: export such cards one by one"
        )
    if len(bases := {(card.base.name, card.base.revision): card.name for card in cards}) > 1:
        listed = ", ".join(f"{card} on {base[0]}" for base, card in bases.items())
        raise UsageError(f"the cards have different bases ({listed}): export those of one base at a time")
    if len({_tokenizer(card.card) for card in cards}) > 1:
        raise UsageError(f"the tokenizers of {names} differ: export the cards one by one")


def _check_kind(card: Card, engine: Engine) -> None:
    kind, prompt = card.manifest.kind, card.manifest.prompt
    if kind == "prefix":
        raise CardError(
            f"card {card.name!r} is a prefix: keys and values, which {engine.title} takes no adapters of: {SERVE}, or "
            "train it with --method lora"
        )
    if kind not in ("full", "lora", "reference"):
        raise CardError(
            f"card {card.name!r} of kind {kind} has no weights that {engine.title} could run: {SERVE}, which "
            "answers with every kind of card"
        )
    if prompt.style != "tokens":
        raise CardError(
            f"card {card.name!r}: its prompts are vectors of a sentence encoder ({prompt.style}), which "
            f"{engine.title} can't make of a question: {SERVE}, or train it with --prompt-style tokens"
        )


def _config(card: Card) -> Mapping[str, Any]:
    base = card.manifest.base
    folder = base_files(base.name, base.revision) if card.manifest.kind == "lora" else card.folder
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _tokenizer(card: Card) -> str:
    """What tells tokenizers apart: the file that holds the vocabulary."""
    files = card.manifest.files
    return files.get("tokenizer.json") or files.get("tokenizer.model") or files.get("vocab.json") or card.name
