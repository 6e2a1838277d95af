"""One forward pass of a model of transformers over prompts: nothing is sampled. It knows no cards and no questions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.cards.lm.engine.batch import Prompts
from kcard.cards.lm.engine.prefix import Prefix
from kcard.cards.lm.fallback.generation import Limits
from kcard.cards.lm.fallback.past import started
from kcard.hidden_states import pooled
from kcard.protocols import Array

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["hidden_states", "log_probabilities"]


def log_probabilities(
    model: Any,
    prompts: Prompts,
    continuations: Sequence[Sequence[int]],
    pad: int,
    prefix: Prefix | None = None,
) -> list[list[float]]:
    """For each prompt the natural log-probability of every token of its continuation, 0 or less.

    prefix  what stands before every prompt

    All rows go through the model at once, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        inputs, mask = _inputs(model, prompts, continuations, pad)
        logits = model(**inputs, **started(model, prefix, mask), use_cache=False).logits
        found = []
        for row, ids in enumerate(continuations):
            # The logits at a place speak of the token after it.
            start = prompts.length(row) - 1
            scores = logits[row, start : start + len(ids)].float().log_softmax(dim=-1)
            wanted = torch.tensor(list(ids), device=scores.device)
            found.append([float(x) for x in scores.gather(1, wanted.unsqueeze(1)).squeeze(1)])
        return found


def hidden_states(
    model: Any, prompts: Prompts, limits: Limits, layer: int, mean: bool, prefix: Prefix | None = None
) -> Array:
    """One vector a prompt, shape (n, d): the state of the prompt's last token at that layer, or the mean of all."""
    import torch

    if not len(prompts):
        return np.zeros((0, model.config.hidden_size), dtype=np.float32)
    order = sorted(range(len(prompts)), key=prompts.length)
    found = []
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            some = prompts.pick(order[start : start + limits.rows])
            inputs, mask = _inputs(model, some, [()] * len(some), limits.pad)
            given = inputs | started(model, prefix, mask)
            states = model(**given, use_cache=False, output_hidden_states=True).hidden_states[layer]
            found.append(pooled(states, mask, mean).cpu().numpy())
    back: Array = np.concatenate(found)[np.argsort(order)]
    return back


def _inputs(
    model: Any, prompts: Prompts, continuations: Sequence[Sequence[int]], pad: int
) -> "tuple[dict[str, Tensor], Tensor]":
    """The model's arguments, padded on the right, so that positions count from the first token, and their mask."""
    import torch

    lengths = [prompts.length(row) + len(ids) for row, ids in enumerate(continuations)]
    mask = torch.tensor([[1] * n + [0] * (max(lengths) - n) for n in lengths], device=model.device)
    prompted = prompts.ids or ((),) * len(prompts)
    rows = [[*prompt, *ids] for prompt, ids in zip(prompted, continuations, strict=True)]
    longest = max(len(row) for row in rows)
    ids = torch.tensor(
        [row + [pad] * (longest - len(row)) for row in rows], dtype=torch.int64, device=model.device
    )
    if prompts.embeddings is None:
        return {"input_ids": ids}, mask
    embedded = torch.cat([prompts.embeddings.to(model.device), model.get_input_embeddings()(ids)], dim=1)
    return {"inputs_embeds": embedded}, mask
