"""The checker's network in torch, for training: MiniLM reads evidence and claim together, and a small head classifies.

recipes.graphs exports the same computation for the shipped checker; a test compares the two.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kcard.selectors.minilm_checker import EncodedPair
from recipes.padding import padded

if TYPE_CHECKING:
    from torch import Tensor

LABELS = ("supports", "refutes", "not enough information")
HIDDEN = 128


def logits(
    encoder: Any, head: Mapping[str, "Tensor"], batch: Sequence[EncodedPair], dropout: float = 0.0
) -> "Tensor":
    """Score the three labels, shape (n, 3), float32.

    The head reads the state of [CLS], the mean state of the claim, and how far that lies from the mean
    state of the evidence: MiniLM's means were trained to be compared.
    """
    import torch
    from torch.nn.functional import dropout as drop
    from torch.nn.functional import linear

    ids, mask, types = padded([(row.ids, row.claim_start) for row in batch])
    states = encoder(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state.float()
    claim, evidence = _mean(states, types), _mean(states, mask - types)
    features = torch.cat([states[:, 0], claim, (claim - evidence).abs()], dim=-1)
    with torch.autocast("cpu", enabled=False):
        features = drop(features, dropout, training=dropout > 0)
        hidden = torch.tanh(linear(features, head["hidden.weight"], head["hidden.bias"]))
        hidden = drop(hidden, dropout, training=dropout > 0)
        return linear(hidden, head["output.weight"], head["output.bias"])


def _mean(states: "Tensor", mask: "Tensor") -> "Tensor":
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
