"""Cards that are causal language models: a whole model (full) or an adapter or a prefix on a base (lora, prefix).

The engine writes for those that it can take; transformers and peft write for the others.
"""

import logging
from typing import TYPE_CHECKING

from kcard.cards.format import fingerprint
from kcard.cards.format.code import refuse_code
from kcard.cards.format.folder import Card
from kcard.cards.lm import stacked
from kcard.cards.lm.engine.decoder import Unsupported
from kcard.cards.lm.loader import Loader

if TYPE_CHECKING:
    from kcard.cards.lm.fallback.card import CausalCard
    from kcard.cards.lm.vllm.card import ServedCard

__all__ = ["load"]


def load(card: Card, models: Loader, pinned: bool = False) -> "stacked.StackedCard | CausalCard | ServedCard":
    """Load a card of kind full, lora or prefix, and prove by its fingerprint that it acts as when it was made.

    One whose base a server of the loader's engines has is written there; whenever it is loaded there, its fingerprint
    is compared. One that the engine can't take writes with transformers and peft, and keeps the reason.

    Raises ModelUnavailable where its base can't be had or has changed, CardError where its adapter is not applied, its
    weights or tokenizer are not its own, or it needs code of its own. A card without a fingerprint is loaded with a
    warning, but for one whose files were published elsewhere and are `pinned`: it can't have any.
    """
    refuse_code(card.folder, f"card {card.name!r}", card.manifest.files)
    if models.engines is not None and (served := models.engines.card(card, models)) is not None:
        _warn_unproven(card, fingerprint.read(card.folder) is None and not pinned)
        return served
    try:
        loaded: stacked.StackedCard | CausalCard = stacked.load(card, models)
    except Unsupported as reason:
        loaded = _alone(card, models, str(reason))
    if (kept := fingerprint.read(card.folder)) is not None:
        kept.check(loaded.measure(kept.pairs), card.name, card.manifest.base.name)
    else:
        _warn_unproven(card, not pinned)
    return loaded


def _warn_unproven(card: Card, unproven: bool) -> None:
    if unproven:
        logging.getLogger(__name__).warning(
            "card %s carries no fingerprint: its files are whole, but that they act as when it was made is not "
            "proven",
            card.name,
        )


def _alone(card: Card, models: Loader, reason: str) -> "CausalCard":
    from kcard.cards.lm.fallback.card import CausalCard

    return CausalCard(card, models, unsupported=reason)
