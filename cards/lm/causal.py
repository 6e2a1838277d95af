"""Cards that are causal language models: a whole model (full) or an adapter on a base (lora).

It knows how to load one and have it write; which cards there are, and passages, are the pool's.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards.format import canaries
from kcard.cards.format.canaries import Canaries, Pair
from kcard.cards.format.folder import Card
from kcard.cards.lm import prompting, stacked
from kcard.cards.lm.generation import Limits, Prompts, generate
from kcard.cards.lm.hidden_states import hidden_states
from kcard.cards.lm.likelihood import log_probabilities
from kcard.cards.lm.loader import Loader
from kcard.cards.lm.prompting import LENGTH
from kcard.cards.lm.stacked import StackedCard, Unstackable
from kcard.hidden_states import depth
from kcard.protocols import Array
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from kcard.cards.kinds.table import CardGenerator

__all__ = ["CausalCard", "load"]


def load(card: Card, models: Loader, pinned: bool = False) -> "CardGenerator":
    """Load a card of kind full or lora, and prove by its canaries that it acts as when it was made.

    One that the engine can't take writes with transformers and peft, and keeps the reason.

    Raises ModelUnavailable where its base can't be had or has changed, CardError where its adapter is not
    applied or its weights or tokenizer are not its own. A card without canaries is loaded with a warning, but
    for one whose files were published elsewhere and are `pinned`: it can't have any.
    """
    loaded: StackedCard | CausalCard
    try:
        loaded = stacked.load(card, models)
    except Unstackable as reason:
        loaded = CausalCard(card, models, apart=str(reason))
    if (kept := canaries.read(card.folder)) is not None:
        kept.check(loaded.measure(kept.pairs), card.name, card.manifest.base.name)
    elif not pinned:
        logging.getLogger(__name__).warning(
            "card %s carries no canaries: its files are whole, but that they act as when it was made is not "
            "proven",
            card.name,
        )
    return loaded


class CausalCard:
    """One loaded card. LoRA cards of one base share it in memory: each switches to its own adapter.

    bare   not the card itself but the base that it was made from, asked just as the card is
    apart  why the card is not in the engine, with others; empty where nobody asked
    """

    def __init__(self, card: Card, models: Loader, bare: bool = False, apart: str = "") -> None:
        self.name, self.apart = card.name, apart
        load = models.base if bare else models.lora if card.manifest.kind == "lora" else models.full
        self._loaded = load(card)
        model = self._loaded.activate()
        self._prompting = prompting.read(
            card,
            models.tokenizer(card),
            model.generation_config.eos_token_id,
            getattr(model.config, "max_position_embeddings", None) or 1_000_000,
            model.get_input_embeddings().weight.shape[1],
        )
        self._limits = Limits(self._prompting.eos, self._prompting.pad, models.rows)

    @property
    def size(self) -> int:
        """Bytes that would be free if the card left; 0 of an adapter, which stays in its base."""
        if self._loaded.adapter is not None:
            return 0
        return sum(p.numel() * p.element_size() for p in self._loaded.model.parameters())

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator. At temperature 0 a question's documents are all the same, and written once."""
        different = documents if sampling.temperature > 0 else min(documents, 1)
        model, asked = self._loaded.activate(), self._prompting
        prompts, sampling = asked.prompts(questions, sampling, partial(_embedding, model))
        rows = [row for row in range(len(questions)) for _ in range(different)]
        seeds = [seed for question in questions for seed in asked.seeds(question, different, sampling)]
        written = generate(model, prompts.pick(rows), seeds, sampling, self._limits)
        passages = [asked.passage(ids, ended) for ids, ended in written]
        grouped = [passages[i * different : (i + 1) * different] for i in range(len(questions))]
        return grouped if different == documents else [group * documents for group in grouped]

    def measure(self, pairs: Sequence[Pair]) -> Canaries:
        """The log-probabilities of each text after its question; of an adapter's base too, without it."""
        model = self._loaded.activate()
        base = None if self._loaded.adapter is None else self._bare_scores
        card = partial(log_probabilities, model, pad=self._limits.pad)
        return self._prompting.measure(pairs, model.dtype, partial(_embedding, model), card, base)

    def _bare_scores(self, prompts: Prompts, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        with self._loaded.bare() as bare:
            return log_probabilities(bare, prompts, texts, self._limits.pad)

    @property
    def layers(self) -> int:
        return depth(self._loaded.activate())

    def hidden_states(self, questions: Sequence[str], layer: int, mean: bool) -> Array:
        """The questions as vectors, asked as for a document; see kcard.cards.lm.hidden_states."""
        model = self._loaded.activate()
        prompts, _ = self._prompting.prompts(questions, Sampling(tokens=LENGTH), partial(_embedding, model))
        return hidden_states(model, prompts, self._limits, layer, mean)


def _embedding(model: Any, token: int) -> "Tensor":
    import torch

    table = model.get_input_embeddings()
    with torch.inference_mode():
        found: Tensor = table(torch.tensor([token], device=table.weight.device))[0]
    return found
