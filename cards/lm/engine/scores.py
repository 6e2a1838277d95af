"""Log-probabilities that a decoder gives to texts it did not write: one forward pass, nothing is drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.loop import Batch, read
from kcard.cards.lm.generation import Prompts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["batched", "log_probabilities"]


def log_probabilities(
    decoder: Decoder, prompts: Prompts, continuations: Sequence[Sequence[int]]
) -> list[list[float]]:
    """As kcard.cards.lm.likelihood does it of a model: for each prompt, of every token of its continuation.

    The decoder is that of one card; all rows go through it at once, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        states = read(decoder, batched(decoder, prompts, 1, continuations), None)
        found = []
        for row, ids in zip(states, continuations, strict=True):
            # The state at a place speaks of the token after it.
            logits = decoder.head(decoder.final_norm(row[-len(ids) - 1 : -1].contiguous()))
            wanted = torch.tensor(list(ids), device=logits.device).unsqueeze(1)
            scores = logits.float().log_softmax(dim=-1).gather(1, wanted)
            found.append([float(x) for x in scores.squeeze(1)])
        return found


def batched(
    decoder: Decoder, prompts: Prompts, documents: int, continuations: Sequence[Sequence[int]] = ()
) -> Batch:
    """Prompts, each with its continuation where there are any, padded on the left to one length."""
    import torch

    device = decoder.embed.table.device
    more = continuations or ((),) * len(prompts)
    lengths = [prompts.length(row) + len(ids) for row, ids in enumerate(more)]
    longest = max(lengths)
    mask: Tensor | None = None
    if min(lengths) < longest:
        places = torch.arange(longest, device=device)
        mask = places >= longest - torch.tensor(lengths, device=device).unsqueeze(1)
    if prompts.embeddings is None:
        rows = [[*prompt, *ids] for prompt, ids in zip(prompts.ids, more, strict=True)]
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=device)
        return Batch(ids, mask, documents)
    width = prompts.embeddings.shape[-1]
    embedded = prompts.embeddings.new_zeros((len(prompts), longest, width))
    for row, tokens in enumerate(more):
        embedded[row, longest - lengths[row] : longest - len(tokens)] = prompts.embeddings[row]
        if tokens:
            embedded[row, longest - len(tokens) :] = decoder.embed(torch.tensor(list(tokens), device=device))
    return Batch(torch.empty((0, 0), dtype=torch.int64, device=device), mask, documents, embedded)
