"""A LoRA card as a whole model: its adapter added to its base, for engines that can't apply it.

What was written is read again and compared with the card by its fingerprint.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from kcard.cards.embedded import base_folder
from kcard.cards.export.files import copy_tokenizer
from kcard.cards.format import fingerprint
from kcard.cards.format.folder import Card
from kcard.cards.lm.fingerprinting import fingerprint_pairs
from kcard.cards.lm.loader import SMALL, Loader, causal_lm, explained, with_adapter
from kcard.cards.lm.vocabulary import VOCABULARY
from kcard.errors import CardError, ModelUnavailable
from kcard.manifest import Base
from kcard.quiet import quiet_loading

__all__ = ["merge"]


def merge(card: Card, folder: Path) -> None:
    """Write the card's base with its adapter added into `folder`, and the tokenizer; prove that it acts as the card.

    The sum is made in float32 and stored in the base's own dtype, small models in float32.

    Raises ModelUnavailable where the base can't be had, CardError where the adapter does not fit it or the merged
    model does not act as the card does.
    """
    import torch

    base = card.manifest.base
    with explained(
        ModelUnavailable, f"card {card.name!r} needs the base model {base.name!r}, which can't be loaded"
    ):
        whole = causal_lm(base_folder(base.name), base.revision, local=False)
    Loader().check_digest(card)
    dtype = torch.float32 if sum(p.numel() for p in whole.parameters()) < SMALL else whole.dtype
    with (
        explained(CardError, f"card {card.name!r}: its adapter can't be merged into {base.name!r}"),
        quiet_loading(),
    ):
        merged = with_adapter(whole.float(), card.folder).merge_and_unload(safe_merge=True)
        merged.to(dtype).save_pretrained(folder)
    del whole, merged
    copy_tokenizer(card, folder)
    _prove(card, folder)


def _prove(card: Card, folder: Path) -> None:
    """Compare the merged model with the card; with the card as it is now, where it carries no fingerprint."""
    from kcard.cards.lm.fallback.card import CausalCard

    kept = fingerprint.read(card.folder)
    if kept is None:
        kept = CausalCard(card, Loader()).measure(fingerprint_pairs(card.manifest, []))
    # A merged model has no base to compare.
    kept = replace(kept, rows=tuple(replace(row, base=()) for row in kept.rows))
    merged = Card(folder, replace(card.manifest, kind="full", base=Base()))
    words = card.folder / VOCABULARY
    if words.is_file():  # the words that the fingerprint's questions are put into; no engine reads them
        shutil.copyfile(words, folder / VOCABULARY)
    kept.check(CausalCard(merged, Loader()).measure(kept.pairs), card.name, card.manifest.base.name)
    (folder / VOCABULARY).unlink(missing_ok=True)
