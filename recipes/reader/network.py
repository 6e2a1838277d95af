"""The reader's network in torch, as it is trained: all-MiniLM-L6-v2 with heads for what it says of a passage.

recipes.graphs exports the same arithmetic for the shipped reader; a test holds one to the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.embedded import minilm
from kcard.embedded.reader import FILE, Encoded, Outputs
from recipes.padding import padded
from recipes.quantisation import layers_of, restored, round_products

if TYPE_CHECKING:
    from torch import Tensor

IMPOSSIBLE = -1e4  # a logit of what can't be chosen


@dataclass(frozen=True)
class TrainedOutputs:
    """What the heads give for n pairs of t tokens, padded.

    text                   (n, t), bool: the tokens of the texts
    starts, ends, evidence (n, t), see kcard.embedded.reader.Outputs
    relevance              (n,)
    """

    text: "Tensor"
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

    def __call__(self, pairs: Sequence[Encoded]) -> TrainedOutputs:
        from torch.nn.functional import linear

        states, text = self._states(pairs)
        outside = ~text.unsqueeze(-1)
        each = linear(states, self.heads["tokens.weight"], self.heads["tokens.bias"])
        each = each.masked_fill(outside, IMPOSSIBLE)
        relevance = self.relevance(_first_and_most(states, text))
        return TrainedOutputs(text, each[..., 0], each[..., 1], each[..., 2], relevance)

    def features(self, pairs: Sequence[Encoded]) -> "Tensor":
        """Return what relevance is judged by, (n, 768): the state of [CLS] and the highest ones of each text."""
        return _first_and_most(*self._states(pairs))

    def relevance(self, features: "Tensor") -> "Tensor":
        """Return log-odds, (n,)."""
        from torch.nn.functional import linear

        pooled = linear(features, self.heads["pooled.weight"], self.heads["pooled.bias"]).tanh()
        return linear(pooled, self.heads["pair.weight"], self.heads["pair.bias"])[:, 0]

    def _states(self, pairs: Sequence[Encoded]) -> "tuple[Tensor, Tensor]":
        """Token states, (n, t, 384), and which tokens are the text's, (n, t), bool."""
        import torch

        ids, mask, types = padded([(pair.ids, pair.begin) for pair in pairs])
        text = torch.zeros_like(ids, dtype=torch.bool)
        for row, pair in enumerate(pairs):
            text[row, pair.text] = True
        return self.model(ids, mask, types).last_hidden_state, text

    def read(self, pairs: Sequence[Encoded]) -> list[Outputs]:
        """Read without training: a ReaderNetwork, as kcard.embedded.reader wants one."""
        import torch

        outputs = []
        with torch.inference_mode():
            for pair in pairs:
                each = self([pair])
                starts, ends, evidence = (
                    part[0, pair.text].numpy() for part in (each.starts, each.ends, each.evidence)
                )
                outputs.append(Outputs(starts, ends, evidence, float(each.relevance)))
        return outputs


def _first_and_most(states: "Tensor", text: "Tensor") -> "Tensor":
    import torch

    most = states.masked_fill(~text.unsqueeze(-1), IMPOSSIBLE).amax(1)
    return torch.cat([states[:, 0], most], -1)


def untrained(start: Path | None, dropout: float) -> TrainedNetwork:
    """The encoder, to be trained but for its embeddings, and untrained heads; or what is in a folder, to go on from."""
    import torch
    from safetensors.torch import load_file

    # torch's fused attention is slower than its parts on a processor, and so is drawing what attention drops.
    model = minilm.model("eager")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0 if name.endswith("attention.self.dropout") else dropout
    model.embeddings.requires_grad_(False)
    round_products(model)
    shapes = {"tokens": (3, minilm.DIMENSIONS), "pooled": (minilm.DIMENSIONS, 2 * minilm.DIMENSIONS)}
    shapes["pair"] = (1, minilm.DIMENSIONS)
    heads: dict[str, Tensor] = {}
    for name, (rows, columns) in shapes.items():
        layer = torch.nn.Linear(columns, rows)
        heads |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    if start:
        trained = load_file(start / FILE)
        model.load_state_dict(restored(trained), strict=False)
        heads = {name: torch.nn.Parameter(trained[f"heads.{name}"].float()) for name in heads}
    return TrainedNetwork(model, heads)


def save(network: TrainedNetwork, folder: Path) -> None:
    """Write the layers in steps of 7 bits, and the heads, as kcard.embedded.reader reads them."""
    import torch
    from safetensors.torch import save_file

    saved = layers_of(network.model)
    for name, value in network.heads.items():
        half = value.detach().to(torch.float16 if name == "pooled.weight" else torch.float32)
        saved[f"heads.{name}"] = half.contiguous()
    save_file(saved, folder / FILE, {"format": "pt"})
