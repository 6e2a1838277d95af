"""Log-probabilities that a model gives to texts it did not write: one forward pass, nothing is sampled.

It knows no cards and no questions: it takes prompts and token ids.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.generation import Prompts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["log_probabilities"]


def log_probabilities(
    model: Any, prompts: Prompts, continuations: Sequence[Sequence[int]], pad: int
) -> list[list[float]]:
    """For each prompt the natural log-probability of every token of its continuation, 0 or less.

    All rows go through the model at once, padded on the right, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        inputs, starts = _inputs(model, prompts, continuations, pad)
        logits = model(**inputs, use_cache=False).logits
        found = []
        for row, (start, ids) in enumerate(zip(starts, continuations, strict=True)):
            # The logits at a place speak of the token after it.
            scores = logits[row, start - 1 : start - 1 + len(ids)].float().log_softmax(dim=-1)
            wanted = torch.tensor(list(ids), device=scores.device)
            found.append([float(x) for x in scores.gather(1, wanted.unsqueeze(1)).squeeze(1)])
        return found


def _inputs(
    model: Any, prompts: Prompts, continuations: Sequence[Sequence[int]], pad: int
) -> "tuple[dict[str, Tensor], list[int]]":
    """The model's arguments, and where in each row the continuation begins."""
    import torch

    starts = [prompts.length(row) for row in range(len(prompts))]
    width = max(start + len(ids) for start, ids in zip(starts, continuations, strict=True))
    lengths = [start + len(ids) for start, ids in zip(starts, continuations, strict=True)]
    mask = torch.tensor([[1] * n + [0] * (width - n) for n in lengths], device=model.device)
    prompted = prompts.ids or ((),) * len(prompts)
    rows = [[*prompt, *ids] for prompt, ids in zip(prompted, continuations, strict=True)]
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=model.device)
    if prompts.embeddings is None:
        return {"input_ids": ids, "attention_mask": mask}, starts
    table = model.get_input_embeddings()
    embeddings = torch.cat([prompts.embeddings.to(model.device), table(ids)], dim=1)
    return {"inputs_embeds": embeddings, "attention_mask": mask}, starts
