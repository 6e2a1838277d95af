"""Cards that are causal language models: a whole model (full) or an adapter on a base (lora).

It knows how to load one and have it write; which cards there are, and passages, are the pool's.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards import canaries, prefix, tokens
from kcard.cards.base import Shelf, explained
from kcard.cards.canaries import Canaries, Canary, Pair
from kcard.cards.document import clean
from kcard.cards.folder import Card
from kcard.cards.generation import Limits, Prompts, generate
from kcard.cards.hidden_states import hidden_states
from kcard.cards.likelihood import log_probabilities
from kcard.errors import CardError
from kcard.hidden_states import depth
from kcard.protocols import Array
from kcard.sampling import Sampling, derive_seed

if TYPE_CHECKING:
    from kcard.cards.kinds import CardWriter

__all__ = ["CausalCard", "load"]

# Tokens of a canary's continuation that are looked at.
LENGTH = 24


def load(card: Card, shelf: Shelf, pinned: bool = False) -> "CardWriter":
    """Load a card of kind full or lora, and prove by its canaries that it acts as when it was made.

    Raises ModelUnavailable where its base can't be had or has changed, CardError where its adapter is not
    applied or its weights or tokenizer are not its own. A card without canaries is loaded with a warning, but
    for one whose files were published elsewhere and are `pinned`: it can't have any.
    """
    loaded = CausalCard(card, shelf)
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

    `bare`: not the card itself but the base that it was made from, asked just as the card is.
    """

    def __init__(self, card: Card, shelf: Shelf, bare: bool = False) -> None:
        from transformers import AutoTokenizer

        self._card = card
        load = shelf.base if bare else shelf.lora if card.manifest.kind == "lora" else shelf.full
        self._loaded = load(card)
        with explained(CardError, f"card {card.name!r}: its tokenizer can't be loaded"):
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

    def measure(self, pairs: Sequence[Pair]) -> Canaries:
        """The log-probabilities of each text after its question; of an adapter's base too, without it."""
        model = self._loaded.activate()
        # Questions that come twice are encoded once.
        questions = [*dict.fromkeys(question for question, _ in pairs)]
        asked, sampling = self._prompts(model, questions, Sampling(temperature=0, tokens=LENGTH))
        asked = asked.pick([questions.index(question) for question, _ in pairs])
        texts = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for _, text in pairs]
        texts = [ids[: sampling.tokens] for ids in texts]
        card = log_probabilities(model, asked, texts, self._limits.pad)
        base: list[list[float]] = [[] for _ in pairs]
        if self._loaded.adapter is not None:
            with self._loaded.bare() as bare:
                base = log_probabilities(bare, asked, texts, self._limits.pad)
        prompts = asked.ids or ((),) * len(pairs)
        rows = [
            Canary(question, text, tuple(prompt), tuple(ids), tuple(by_card), tuple(by_base))
            for (question, text), prompt, ids, by_card, by_base in zip(
                pairs, prompts, texts, card, base, strict=True
            )
        ]
        return Canaries(str(model.dtype).removeprefix("torch."), tuple(rows))

    @property
    def layers(self) -> int:
        return depth(self._loaded.activate())

    def hidden_states(self, questions: Sequence[str], layer: int, mean: bool) -> Array:
        """The questions as vectors, asked as for a document; see kcard.cards.hidden_states."""
        model = self._loaded.activate()
        prompts, _ = self._prompts(model, questions, Sampling(tokens=LENGTH))
        return hidden_states(model, prompts, self._limits, layer, mean)

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
        with explained(CardError, f"card {self._card.name!r}: its projection can't be loaded"):
            return prefix.Projection(self._card, width)


def _limits(model: Any, tokenizer: Any, rows: int) -> Limits:
    """A document ends where the model's generation config or the tokenizer says that texts end."""
    configured = model.generation_config.eos_token_id
    ends = configured if isinstance(configured, list) else [configured]
    eos = tuple(dict.fromkeys(x for x in (*ends, tokenizer.eos_token_id) if x is not None))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (eos[0] if eos else 0)
    return Limits(eos=eos, pad=pad, rows=rows)
