"""Documents from a model of transformers: many rows at once, each with its own randomness.

transformers searches greedily among the tokens that each row's own sampler drew (kcard.cards.lm.engine.sampler), so a
document depends on its seed and its prompt, never on who shares its batch. It knows no cards and no questions: it
takes prompts and seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.batch import Prompts
from kcard.cards.lm.engine.loop import until_eos
from kcard.cards.lm.engine.prefix import Prefix
from kcard.cards.lm.engine.sampler import Sampler
from kcard.cards.lm.fallback.past import started
from kcard.cards.lm.loader import ROWS
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Limits", "generate"]


@dataclass(frozen=True)
class Limits:
    """`rows`: most rows in one forward pass. `eos`, `pad`: token ids; generation of a row ends at any eos."""

    eos: tuple[int, ...]
    pad: int
    rows: int = ROWS


def generate(
    model: Any,
    prompts: Prompts,
    seeds: Sequence[int],
    sampling: Sampling,
    limits: Limits,
    prefix: Prefix | None = None,
) -> list[tuple[list[int], bool]]:
    """For each prompt the new token ids, without eos, and whether the model itself ended the document.

    seeds: one a row, not used when the temperature is 0; prefix: what stands before every prompt of tokens. Rows of
    like length share a batch, whose prompts are padded on the left; a batch stops when all its rows have ended.
    """
    import torch

    order = sorted(range(len(prompts)), key=prompts.length)
    found: list[tuple[list[int], bool]] = [([], False)] * len(prompts)
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            rows = order[start : start + limits.rows]
            new = _batch(model, prompts.pick(rows), [seeds[i] for i in rows], sampling, limits, prefix)
            for row, ids in zip(rows, new.tolist(), strict=True):
                found[row] = until_eos(ids, limits.eos)
    return found


def _batch(
    model: Any,
    prompts: Prompts,
    seeds: Sequence[int],
    sampling: Sampling,
    limits: Limits,
    prefix: Prefix | None,
) -> "Tensor":
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    inputs, skip = _inputs(prompts, limits.pad, model.device)
    if prefix is not None:
        # transformers leaves out as many of the ids as its cache has, whatever they are.
        inputs |= started(model, prefix, inputs["attention_mask"])
        inputs["input_ids"] = torch.nn.functional.pad(
            inputs["input_ids"], (prefix.tokens, 0), value=limits.pad
        )
        skip += prefix.tokens
    processors: list[Any] = []
    if sampling.temperature > 0:
        given = torch.tensor(seeds, dtype=torch.int64, device=model.device)
        processors.append(_Drawn(Sampler(given, sampling.temperature, sampling.top_k), skip))
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


def _inputs(prompts: Prompts, pad: int, device: Any) -> "tuple[dict[str, Any], int]":
    """Arguments for transformers' generate, and how many columns of its result are prompt."""
    import torch

    if prompts.embeddings is not None:
        mask = torch.ones(prompts.embeddings.shape[:2], dtype=torch.long, device=device)
        return {"inputs_embeds": prompts.embeddings.to(device), "attention_mask": mask}, 0
    width = max(len(row) for row in prompts.ids)
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in prompts.ids], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts.ids], device=device)
    return {"input_ids": ids, "attention_mask": mask}, width


class _Drawn:
    """A LogitsProcessor: leaves only the token that each row's sampler draws, so that argmax is an exact sample."""

    def __init__(self, sampler: Sampler, skip: int) -> None:
        self._sampler, self._skip = sampler, skip

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        import torch

        drawn = self._sampler.draw(scores, input_ids.shape[1] - self._skip).unsqueeze(1)
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)
