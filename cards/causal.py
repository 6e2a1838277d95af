"""Cards that are causal language models: a whole model (full) or an adapter on a base (lora).

It knows how to load one and have it write; which cards there are, and passages, are the pool's.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards import prefix, tokens
from kcard.cards.base import Shelf
from kcard.cards.document import clean
from kcard.cards.folder import Card
from kcard.cards.generation import Limits, Prompts, generate
from kcard.errors import CardError
from kcard.sampling import Sampling, derive_seed

if TYPE_CHECKING:
    from kcard.cards.kinds import CardWriter

__all__ = ["CausalCard", "load"]


def load(card: Card, shelf: Shelf) -> "CardWriter":
    """Load a card of kind full or lora. Raises ModelUnavailable where its base can't be had."""
    return CausalCard(card, shelf)


class CausalCard:
    """One loaded card. LoRA cards of one base share it in memory: each switches to its own adapter."""

    def __init__(self, card: Card, shelf: Shelf) -> None:
        from transformers import AutoTokenizer

        self._card = card
        self._loaded = shelf.lora(card) if card.manifest.kind == "lora" else shelf.full(card)
        self._tokenizer = AutoTokenizer.from_pretrained(card.folder, local_files_only=True)
        self._limits = _limits(self._loaded.activate(), self._tokenizer, shelf.rows)
        self._projection: prefix.Projection | None = None
        if card.manifest.prompt.style == "encoder-prefix":
            self._projection = self._read_projection()

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardWriter. At temperature 0 a question's documents are all the same, and written once."""
        different = documents if sampling.temperature > 0 else min(documents, 1)
        model = self._loaded.activate()
        prompts, sampling = self._prompts(model, questions, sampling)
        rows = [row for row in range(len(questions)) for _ in range(different)]
        seeds = [
            derive_seed(sampling.seed, question, self._card.name, number)
            for question in questions
            for number in range(different)
        ]
        written = generate(model, prompts.pick(rows), seeds, sampling, self._limits)
        passages = [Passage(self._card.name, clean(self._decode(ids), ended)) for ids, ended in written]
        grouped = [passages[i * different : (i + 1) * different] for i in range(len(questions))]
        return grouped if different == documents else [group * documents for group in grouped]

    def _prompts(self, model: Any, questions: Sequence[str], sampling: Sampling) -> tuple[Prompts, Sampling]:
        """Prompts that leave room for the document in a model of limited length; it may be shortened."""
        room = getattr(model.config, "max_position_embeddings", None) or 1_000_000
        if self._projection is not None:
            prompts = prefix.encode(model, self._projection, self._tokenizer.bos_token_id, questions)
            return prompts, replace(
                sampling, tokens=min(sampling.tokens, room - self._projection.vectors - 1)
            )
        # By the model and the settings alone: the longest prompt of a batch must not shorten its neighbours.
        length = min(sampling.tokens, room // 2)
        template = self._card.manifest.prompt.template
        return tokens.encode(self._tokenizer, template, questions, room - length), replace(
            sampling, tokens=length
        )

    def _decode(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _read_projection(self) -> prefix.Projection:
        if self._tokenizer.bos_token_id is None:
            raise CardError(
                f"card {self._card.name!r}: prompt style encoder-prefix needs a tokenizer with a bos token"
            )
        width = self._loaded.activate().get_input_embeddings().weight.shape[1]
        return prefix.Projection(self._card, width)


def _limits(model: Any, tokenizer: Any, rows: int) -> Limits:
    """A document ends where the model's generation config or the tokenizer says that texts end."""
    configured = model.generation_config.eos_token_id
    ends = configured if isinstance(configured, list) else [configured]
    eos = tuple(dict.fromkeys(x for x in (*ends, tokenizer.eos_token_id) if x is not None))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (eos[0] if eos else 0)
    return Limits(eos=eos, pad=pad, rows=rows)
