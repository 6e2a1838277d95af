"""Hidden states of a causal model at the end of prompts: what it would write from, as vectors.

It knows no cards and no questions: it takes prompts.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.cards.lm.generation import Limits, Prompts
from kcard.hidden_states import pooled
from kcard.protocols import Array

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["hidden_states"]


def hidden_states(model: Any, prompts: Prompts, limits: Limits, layer: int, mean: bool) -> Array:
    """One vector a prompt, shape (n, d): the state of the prompt's last token at that layer, or the mean of all."""
    import torch

    if not len(prompts):
        return np.zeros((0, model.config.hidden_size), dtype=np.float32)
    order = sorted(range(len(prompts)), key=prompts.length)
    found = []
    with torch.inference_mode():
        for start in range(0, len(order), limits.rows):
            inputs = _inputs(prompts.pick(order[start : start + limits.rows]), limits.pad, model.device)
            states = model(**inputs, use_cache=False, output_hidden_states=True).hidden_states[layer]
            found.append(pooled(states, inputs["attention_mask"], mean).cpu().numpy())
    back: Array = np.concatenate(found)[np.argsort(order)]
    return back


def _inputs(prompts: Prompts, pad: int, device: Any) -> "dict[str, Tensor]":
    """The model's arguments, padded on the right, so that positions count from the first token."""
    import torch

    if prompts.embeddings is not None:
        mask = torch.ones(prompts.embeddings.shape[:2], dtype=torch.long, device=device)
        return {"inputs_embeds": prompts.embeddings.to(device), "attention_mask": mask}
    width = max(len(row) for row in prompts.ids)
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in prompts.ids], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in prompts.ids], device=device)
    return {"input_ids": ids, "attention_mask": mask}
