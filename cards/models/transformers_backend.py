"""A card's model run by transformers and peft.

transformers decodes greedily among the tokens that each row's own sampler drew (kcard.cards.models.batched.generate),
so a document depends on its seed and prompt, never on the rest of its batch. `generate` and the like take prompts and
seeds, not cards or questions.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.cards.card import Card
from kcard.cards.fingerprint import Fingerprint, Pair
from kcard.cards.models import prompting
from kcard.cards.models.batched.generate import Prompts, until_eos
from kcard.cards.models.loader import MAX_ROWS, Loader
from kcard.errors import UsageError
from kcard.hidden_states import depth, layer_and_pooling, pooled
from kcard.interfaces import Array, CardGenerator
from kcard.manifest import MANIFEST, file_digest
from kcard.token_sampling import DrawnTokens, Sampler
from kcard.types import Passage, Sampling

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """`rows`: maximum rows per forward pass. `eos`, `pad`: token ids; a row ends at any eos."""

    eos: tuple[int, ...]
    pad: int
    rows: int = MAX_ROWS


def generate(
    model: Any,
    prompts: Prompts,
    seeds: Sequence[int],
    sampling: Sampling,
    limits: Limits,
) -> list[tuple[list[int], bool]]:
    """Return per prompt the new token ids, without eos, and whether the model itself ended the document.

    seeds: one per row, unused at temperature 0. Rows of similar length share a batch, whose prompts are padded on the
    left; a batch stops when all its rows have ended.
    """
    import torch

    order = sorted(range(len(prompts)), key=prompts.length)
    replies: list[tuple[list[int], bool]] = [([], False)] * len(prompts)
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            rows = order[start : start + limits.rows]
            new = _generate_batch(model, prompts.pick(rows), [seeds[i] for i in rows], sampling, limits)
            for row, ids in zip(rows, new.tolist(), strict=True):
                replies[row] = until_eos(ids, limits.eos)
    return replies


def _generate_batch(
    model: Any,
    prompts: Prompts,
    seeds: Sequence[int],
    sampling: Sampling,
    limits: Limits,
) -> "Tensor":
    """Return the new ids of one batch, (rows, tokens)."""
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    # The prompts, padded on the left; `skip`: how many columns of transformers' result are theirs.
    inputs: dict[str, Any]
    if prompts.embeddings is not None:
        mask = torch.ones(prompts.embeddings.shape[:2], dtype=torch.long, device=model.device)
        inputs, skip = {"inputs_embeds": prompts.embeddings.to(model.device), "attention_mask": mask}, 0
    else:
        skip = max(map(len, prompts.ids))
        ids, shown = [], []
        for row in prompts.ids:
            padding = skip - len(row)
            ids.append([limits.pad] * padding + list(row))
            shown.append([0] * padding + [1] * len(row))
        inputs = {
            "input_ids": torch.tensor(ids, device=model.device),
            "attention_mask": torch.tensor(shown, device=model.device),
        }
    # Greedy decoding, among the tokens that each row's sampler draws.
    processors: list[Any] = []
    if sampling.temperature > 0:
        seed_tensor = torch.tensor(seeds, dtype=torch.int64, device=model.device)
        processors.append(DrawnTokens(Sampler(seed_tensor, sampling.temperature, sampling.top_k)))
    config = GenerationConfig(
        max_new_tokens=sampling.tokens,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        eos_token_id=list(limits.eos) or None,
        pad_token_id=limits.pad,
    )
    out: Tensor = model.generate(
        **inputs, generation_config=config, logits_processor=LogitsProcessorList(processors)
    )
    return out[:, skip:]


# One forward pass of a transformers model over prompts, without sampling.


def log_probabilities(
    model: Any,
    prompts: Prompts,
    continuations: Sequence[Sequence[int]],
    pad: int,
) -> list[list[float]]:
    """Return the natural log-probability, 0 or less, of each continuation token per prompt.

    All rows go through the model at once, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        inputs = _forward_inputs(model, prompts, continuations, pad)
        logits = model(**inputs, use_cache=False).logits
        values = []
        for row, ids in enumerate(continuations):
            # The logits at a position predict the next token.
            start = prompts.length(row) - 1
            scores = logits[row, start : start + len(ids)].float().log_softmax(dim=-1)
            targets = torch.tensor(list(ids), device=scores.device)
            values.append([float(x) for x in scores.gather(1, targets.unsqueeze(1)).squeeze(1)])
        return values


def hidden_states(model: Any, prompts: Prompts, limits: Limits, layer: int, mean: bool) -> Array:
    """Return one vector per prompt, shape (n, d): that layer's state of the last token, or the mean of all."""
    import torch

    if not len(prompts):
        return np.zeros((0, model.config.hidden_size), dtype=np.float32)
    order = sorted(range(len(prompts)), key=prompts.length)
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            some = prompts.pick(order[start : start + limits.rows])
            inputs = _forward_inputs(model, some, [()] * len(some), limits.pad)
            states = model(**inputs, use_cache=False, output_hidden_states=True).hidden_states[layer]
            vectors.append(pooled(states, inputs["attention_mask"], mean).cpu().numpy())
    back: Array = np.concatenate(vectors)[np.argsort(order)]
    return back


def _forward_inputs(
    model: Any, prompts: Prompts, continuations: Sequence[Sequence[int]], pad: int
) -> "dict[str, Tensor]":
    """Return the model's arguments, padded on the right so that positions start at the first token."""
    import torch

    # Embeddings come before the ids of the continuation.
    prompt_ids = prompts.ids or ((),) * len(prompts)
    rows = [[*prompt, *ids] for prompt, ids in zip(prompt_ids, continuations, strict=True)]
    lengths = [prompts.length(row) + len(ids) for row, ids in enumerate(continuations)]
    masks = []
    for row, length in zip(rows, lengths, strict=True):
        padding = max(lengths) - length
        masks.append([1] * length + [0] * padding)
        row += [pad] * padding
    mask = torch.tensor(masks, device=model.device)
    ids = torch.tensor(rows, dtype=torch.int64, device=model.device)
    if prompts.embeddings is None:
        return {"input_ids": ids, "attention_mask": mask}
    embedded = torch.cat([prompts.embeddings.to(model.device), model.get_input_embeddings()(ids)], dim=1)
    return {"inputs_embeds": embedded, "attention_mask": mask}


# One card that is a causal language model, with transformers and peft.
#
# Runs models that the engine does not support, and measures every new card, to verify that the two agree.


class CausalCard(CardGenerator):
    """One loaded card. LoRA cards of one base share it in memory: each switches to its own adapter.

    bare         run not the card but the base that it was made from, prompted the same way
    unsupported  why the card is not batched by the engine; empty if that was not tried
    """

    def __init__(self, card: Card, models: Loader, bare: bool = False, unsupported: str = "") -> None:
        self.unsupported = unsupported
        if bare:
            self.loaded = models.base(card)
        elif card.manifest.is_adapter:
            self.loaded = models.lora(card)
        else:
            self.loaded = models.full(card)
        model = self.loaded.activate()
        self._prompter = prompting.load_prompter(
            card,
            models.tokenizer(card),
            model.generation_config.eos_token_id,
            getattr(model.config, "max_position_embeddings", None) or 1_000_000,
            model.get_input_embeddings().weight.shape[1],
        )
        self._limits = Limits(self._prompter.eos, self._prompter.pad, models.rows)
        # Bytes that evicting the card would free; none for an adapter, which stays in its base.
        if self.loaded.adapter is None:
            self.size = sum(p.numel() * p.element_size() for p in self.loaded.model.parameters())

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate as CardGenerator does. At temperature 0 a question's documents are equal, generated once."""
        different = sampling.distinct(documents)
        model, prompter = self.loaded.activate(), self._prompter
        prompts = prompter.prompts(questions, sampling, self._start(model))
        rows: list[int] = []
        seeds: list[int] = []
        for row, question in enumerate(questions):
            rows += [row] * different
            seeds += prompter.seeds(question, different, sampling)
        sampling = replace(sampling, tokens=prompter.length(sampling))
        generated = iter(generate(model, prompts.pick(rows), seeds, sampling, self._limits))
        by_question = []
        for question in questions:
            passages = [prompter.passage(question, *next(generated)) for _ in range(different)]
            if different < documents:
                passages *= documents
            by_question.append(passages)
        return by_question

    def measure(self, pairs: Sequence[Pair]) -> Fingerprint:
        """Measure the log-probabilities of each text after its question; for an adapter, also by its base."""
        model, prompter = self.loaded.activate(), self._prompter
        prompts, texts = prompter.probes(pairs, self._start(model))
        card = log_probabilities(model, prompts, texts, self._limits.pad)
        base: list[list[float]] = []
        if self.loaded.adapter is not None:
            with self.loaded.bare() as bare:
                base = log_probabilities(bare, prompts, texts, self._limits.pad)
        return prompter.fingerprint(pairs, (prompts, texts), model.dtype, card, base)

    @property
    def layers(self) -> int:
        return depth(self.loaded.activate())

    def hidden_states(self, questions: Sequence[str], layer: int, mean: bool) -> Array:
        """Embed the questions, prompted as for a document; see kcard.cards.models.transformers_backend."""
        model = self.loaded.activate()
        prompts = self._prompter.prompts(questions, prompting.PROBE_SAMPLING, self._start(model))
        return hidden_states(model, prompts, self._limits, layer, mean)

    def _start(self, model: Any) -> "Tensor | None":
        """Return the embedding of the prompts' first token, if they need it."""
        import torch

        token = self._prompter.start
        if token is None:
            return None
        table = model.get_input_embeddings()
        with torch.inference_mode():
            embedding: Tensor = table(torch.tensor([token], device=table.weight.device))[0]
        return embedding


# A card as a question encoder for gates: the entry point `card` of `kcard.representations`.


class CardStates:
    """card:FOLDER, prompted as for generation. `layer` and `pooling` (last, unless mean) as for hf:MODEL.

    Raises CardError if the folder is no card, UsageError for a card without a model, or for an unknown layer or
    pooling.
    """

    def __init__(self, where: str, layer: str = "-1", pooling: str = "auto") -> None:
        card = Card.open(where)
        if not card.manifest.method:
            raise UsageError(
                f"encoder card:{where}: a card of kind {card.manifest.kind} has no hidden states; name one of kind "
                "model or both"
            )
        self._card = CausalCard(card, Loader())
        self._layer, pooling_name = layer_and_pooling(layer, pooling, self._card.layers)
        self._mean = pooling_name == "mean"
        options = f"layer={self._layer},pooling={'mean' if self._mean else 'last'}"
        self.name = f"card:{card.folder.resolve()},{options}"
        what = (file_digest(card.folder / MANIFEST), self._layer % (self._card.layers + 1), self._mean)
        self.digest = hashlib.sha256(repr(what).encode()).hexdigest()

    def vectors(self, questions: Sequence[str]) -> Array:
        return self._card.hidden_states(questions, self._layer, self._mean)
