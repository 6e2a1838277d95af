"""Steps on a GPU as one CUDA graph: recorded once a batch and then replayed, kernels and all.

A step of a small model is hundreds of short kernels, and launching each takes longer than running it.
"""

from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.block import take_step
from kcard.cards.lm.engine.cache import Cache
from kcard.cards.lm.engine.decoder import Decoder

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Graph"]


class Graph:
    """take_step of one batch, whose cache is static. The first step runs as it is, the second is recorded."""

    def __init__(self, decoder: Decoder, cache: Cache) -> None:
        self._decoder, self._cache = decoder, cache
        self._warm = False
        self._recorded: tuple[Any, Tensor, Tensor, Tensor] | None = None

    def __call__(self, new: "Tensor", positions: "Tensor") -> "Tensor":
        """Logits (rows, vocabulary), in a buffer that the next step overwrites."""
        import torch

        if not self._warm:
            self._warm = True
            return self._apart(new, positions)
        if self._recorded is None:
            kept = new.clone(), positions.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                logits = take_step(self._decoder, self._cache, *kept)
            self._recorded = (graph, *kept, logits)
        recorded, tokens, places, logits = self._recorded
        tokens.copy_(new)
        places.copy_(positions)
        recorded.replay()
        return logits

    def _apart(self, new: "Tensor", positions: "Tensor") -> "Tensor":
        """On a stream of its own, as recording wants what it warms up to have run."""
        import torch

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            logits = take_step(self._decoder, self._cache, new, positions)
        torch.cuda.current_stream().wait_stream(side)
        return logits
