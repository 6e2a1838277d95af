"""The reader's network in torch, as it is trained: all-MiniLM-L6-v2 with heads for what it says of a passage.

recipes.graphs exports the same arithmetic for the shipped reader; a test holds one to the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import encoder
from kcard.reader.network import Encoded, Outputs, trained_weights

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TrainedNetwork", "TrainedOutputs", "untrained"]

IMPOSSIBLE = -1e4  # a logit of what can't be chosen


@dataclass(frozen=True)
class TrainedOutputs:
    """See kcard.reader.network.Outputs; tensors."""

    starts: "Tensor"
    ends: "Tensor"
    evidence: "Tensor"
    relevance: "Tensor"


@dataclass(frozen=True)
class TrainedNetwork:
    """The transformer and its heads: `tokens` (3, 384) for start, end and evidence; `pooled` (384, 768) and
    `pair` (1, 384) for relevance."""

    model: Any
    heads: "Mapping[str, Tensor]"

    def __call__(self, pairs: Encoded) -> TrainedOutputs:
        import torch
        from torch.nn.functional import linear

        heads = self.heads
        ids, mask, types = (torch.from_numpy(part).long() for part in (pairs.ids, pairs.mask, pairs.types))
        states = self.model(ids, mask, types).last_hidden_state
        outside = torch.from_numpy(pairs.text == 0).unsqueeze(-1)
        each = linear(states, heads["tokens.weight"], heads["tokens.bias"]).masked_fill(outside, IMPOSSIBLE)
        most = states.masked_fill(outside, IMPOSSIBLE).amax(1)
        pooled = linear(
            torch.cat([states[:, 0], most], -1), heads["pooled.weight"], heads["pooled.bias"]
        ).tanh()
        relevance = linear(pooled, heads["pair.weight"], heads["pair.bias"])
        return TrainedOutputs(each[..., 0], each[..., 1], each[..., 2], relevance[:, 0])

    def read(self, batches: Sequence[Encoded]) -> list[Outputs]:
        """Read without training: a ReaderNetwork, as kcard.reader.reading wants one."""
        import torch

        with torch.inference_mode():
            outputs = [self(pairs) for pairs in batches]
        return [
            Outputs(*(part.numpy() for part in (o.starts, o.ends, o.evidence, o.relevance))) for o in outputs
        ]


def untrained(start: Path | None, dropout: float) -> TrainedNetwork:
    """The encoder, to be trained but for its embeddings, and untrained heads; or what is in a folder, to go on from."""
    import torch

    model = encoder.model()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    model.embeddings.requires_grad_(False)
    shapes = {"tokens": (3, encoder.DIMENSIONS), "pooled": (encoder.DIMENSIONS, 2 * encoder.DIMENSIONS)}
    shapes["pair"] = (1, encoder.DIMENSIONS)
    heads: dict[str, Tensor] = {}
    for name, (rows, columns) in shapes.items():
        layer = torch.nn.Linear(columns, rows)
        heads |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    if start:
        changes, trained = trained_weights(start)
        weights = model.state_dict()
        model.load_state_dict(
            {name: weights[name] + torch.from_numpy(c) for name, c in changes.items()}, strict=False
        )
        heads = {name: torch.nn.Parameter(torch.from_numpy(trained[name])) for name in heads}
    return TrainedNetwork(model, heads)
