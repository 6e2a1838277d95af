"""One card that is a causal language model, with transformers and peft.

What the engine can't take writes so; and so does every new card, to prove that the two agree.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards.format.fingerprint import Fingerprint, Pair
from kcard.cards.format.folder import Card
from kcard.cards.lm import prompting
from kcard.cards.lm.fallback import past
from kcard.cards.lm.fallback.forward import hidden_states, log_probabilities
from kcard.cards.lm.fallback.generation import Limits, generate
from kcard.cards.lm.loader import Loader, explained
from kcard.errors import CardError
from kcard.hidden_states import depth
from kcard.protocols import Array
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CausalCard"]


class CausalCard:
    """One loaded card. LoRA cards of one base share it in memory: each switches to its own adapter.

    bare         not the card itself but the base that it was made from, asked just as the card is
    unsupported  why the card is not in the engine, with others; empty where nobody asked
    """

    def __init__(self, card: Card, models: Loader, bare: bool = False, unsupported: str = "") -> None:
        self.unsupported = unsupported
        kinds = {"lora": models.lora, "prefix": models.prefix}
        load = models.base if bare else kinds.get(card.manifest.kind, models.full)
        self._loaded = load(card)
        model, prefix = self._loaded.activate(), self._loaded.prefix
        longest = getattr(model.config, "max_position_embeddings", None) or 1_000_000
        if prefix is not None:
            with explained(CardError, f"card {card.name!r}: its prefix can't be read"):
                past.check_fit(model, prefix)
            longest = past.room(model.config) - prefix.tokens
        self._prompting = prompting.read(
            card,
            models.tokenizer(card),
            model.generation_config.eos_token_id,
            longest,
            model.get_input_embeddings().weight.shape[1],
        )
        self._limits = Limits(self._prompting.eos, self._prompting.pad, models.rows)

    @property
    def size(self) -> int:
        """Bytes that would be free if the card left; 0 of an adapter, which stays in its base."""
        if self._loaded.prefix is not None:
            return self._loaded.prefix.size
        if self._loaded.adapter is not None:
            return 0
        return sum(p.numel() * p.element_size() for p in self._loaded.model.parameters())

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator. At temperature 0 a question's documents are all the same, and written once."""
        different = documents if sampling.temperature > 0 else min(documents, 1)
        model, asked = self._loaded.activate(), self._prompting
        prompts = asked.prompts(questions, sampling, self._start(model))
        rows = [row for row in range(len(questions)) for _ in range(different)]
        seeds = [seed for question in questions for seed in asked.seeds(question, different, sampling)]
        sampling = replace(sampling, tokens=asked.length(sampling))
        written = generate(model, prompts.pick(rows), seeds, sampling, self._limits, self._loaded.prefix)
        passages = [
            asked.passage(questions[row], ids, ended) for row, (ids, ended) in zip(rows, written, strict=True)
        ]
        grouped = [passages[i * different : (i + 1) * different] for i in range(len(questions))]
        return grouped if different == documents else [group * documents for group in grouped]

    def measure(self, pairs: Sequence[Pair]) -> Fingerprint:
        """The log-probabilities of each text after its question; of an adapter's base too, without it."""
        model, asked = self._loaded.activate(), self._prompting
        prompts, texts = asked.probes(pairs, self._start(model))
        card = log_probabilities(model, prompts, texts, self._limits.pad, self._loaded.prefix)
        base: list[list[float]] = []
        if self._loaded.has_base:
            with self._loaded.bare() as bare:
                base = log_probabilities(bare, prompts, texts, self._limits.pad)
        return asked.fingerprint(pairs, (prompts, texts), model.dtype, card, base)

    @property
    def layers(self) -> int:
        return depth(self._loaded.activate())

    def hidden_states(self, questions: Sequence[str], layer: int, mean: bool) -> Array:
        """The questions as vectors, asked as for a document; see kcard.cards.lm.fallback.forward."""
        model = self._loaded.activate()
        prompts = self._prompting.prompts(questions, prompting.PROBED, self._start(model))
        return hidden_states(model, prompts, self._limits, layer, mean, self._loaded.prefix)

    def _start(self, model: Any) -> "Tensor | None":
        """The embedding of the token that prompts start with, where they need it."""
        import torch

        if (token := self._prompting.start) is None:
            return None
        table = model.get_input_embeddings()
        with torch.inference_mode():
            found: Tensor = table(torch.tensor([token], device=table.weight.device))[0]
        return found
