"""Documents from a causal language model: many rows at once, each with its own randomness.

Sampling is transformers' greedy search over logits to which each document's own noise was added
(kcard.cards.lm.engine.noise), so a document depends on its seed and its prompt, never on who shares its batch. It knows
no cards and no questions: it takes prompts and seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.noise import gumbel
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ROWS", "Limits", "Prompts", "generate", "until_eos"]

ROWS = 256


@dataclass(frozen=True)
class Prompts:
    """Prompts of one batch or many: `ids`, token ids a row, or `embeddings`, (rows, length, width)."""

    ids: tuple[tuple[int, ...], ...] = ()
    embeddings: "Tensor | None" = None

    def __len__(self) -> int:
        return len(self.ids) if self.embeddings is None else len(self.embeddings)

    def length(self, row: int) -> int:
        return len(self.ids[row]) if self.embeddings is None else self.embeddings.shape[1]

    def pick(self, rows: Sequence[int]) -> "Prompts":
        if self.embeddings is None:
            return replace(self, ids=tuple(self.ids[i] for i in rows))
        return replace(self, embeddings=self.embeddings[list(rows)])


@dataclass(frozen=True)
class Limits:
    """`rows`: most rows in one forward pass. `eos`, `pad`: token ids; generation of a row ends at any eos."""

    eos: tuple[int, ...]
    pad: int
    rows: int = ROWS


def generate(
    model: Any, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, limits: Limits
) -> list[tuple[list[int], bool]]:
    """For each prompt the new token ids, without eos, and whether the model itself ended the document.

    seeds: one a row, not used when the temperature is 0. Rows of like length share a batch, whose prompts are
    padded on the left; a batch stops when all its rows have ended.
    """
    import torch

    order = sorted(range(len(prompts)), key=prompts.length)
    found: list[tuple[list[int], bool]] = [([], False)] * len(prompts)
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            rows = order[start : start + limits.rows]
            new = _batch(model, prompts.pick(rows), [seeds[i] for i in rows], sampling, limits)
            for row, ids in zip(rows, new.tolist(), strict=True):
                found[row] = until_eos(ids, limits.eos)
    return found


def _batch(
    model: Any, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, limits: Limits
) -> "Tensor":
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    inputs, skip = _inputs(prompts, limits.pad, model.device)
    processors: list[Any] = []
    if sampling.temperature > 0:
        processors.append(_Noisy(torch.tensor(seeds, dtype=torch.int64, device=model.device), sampling, skip))
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


def _inputs(prompts: Prompts, pad: int, device: Any) -> "tuple[dict[str, Tensor], int]":
    """Arguments for transformers' generate, and how many columns of its result are prompt."""
    import torch

    if prompts.embeddings is not None:
        mask = torch.ones(prompts.embeddings.shape[:2], dtype=torch.long, device=device)
        return {"inputs_embeds": prompts.embeddings.to(device), "attention_mask": mask}, 0
    width = max(len(row) for row in prompts.ids)
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in prompts.ids], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts.ids], device=device)
    return {"input_ids": ids, "attention_mask": mask}, width


class _Noisy:
    """A LogitsProcessor: temperature, the top k, and Gumbel noise, so that argmax is an exact sample."""

    def __init__(self, seeds: "Tensor", sampling: Sampling, skip: int) -> None:
        self._seeds, self._sampling, self._skip = seeds, sampling, skip

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        import torch

        k = min(self._sampling.top_k, scores.shape[1]) if self._sampling.top_k > 0 else scores.shape[1]
        best, tokens = torch.topk(scores.double(), k, dim=-1)
        noise = gumbel(self._seeds, input_ids.shape[1] - self._skip, tokens)
        out = torch.full_like(scores, -torch.inf, dtype=torch.float64)
        return out.scatter(1, tokens, best / self._sampling.temperature + noise)


def until_eos(ids: Sequence[int], eos: Sequence[int]) -> tuple[list[int], bool]:
    """The ids before the first end of text, and whether there is one."""
    ends = [position for position, token in enumerate(ids) if token in eos]
    return (list(ids[: ends[0]]), True) if ends else (list(ids), False)
