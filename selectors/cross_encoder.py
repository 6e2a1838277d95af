"""A cross-encoder: MiniLM reads evidence and claim together, a small head says supports, refutes or neither.

This file is the arithmetic that training and the shipped checker share; it knows no files and no windows.
A pair is one row of tokens, `[CLS] evidence [SEP] claim [SEP]`, with token type 1 on the claim.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.protocols import Pair

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HIDDEN", "LABELS", "EncodedPair", "logits", "rows"]

LABELS = ("supports", "refutes", "not enough information")
HIDDEN = 128
CLAIM_TOKENS = 96
CLS, SEP, PAD = 101, 102, 0


@dataclass(frozen=True)
class EncodedPair:
    """One pair as token ids; those from `claim_start` on are the claim's."""

    ids: tuple[int, ...]
    claim_start: int


def rows(
    encode: Callable[[Sequence[str]], list[list[int]]], pairs: Sequence[Pair], max_tokens: int
) -> list[EncodedPair]:
    """Tokenise pairs; the evidence is cut to what the claim (at most 96 tokens) leaves of `max_tokens`.

    `encode`: token ids of texts, without special tokens.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.claim, pair.evidence)))
    if not texts:
        return []
    ids = dict(zip(texts, encode(texts), strict=True))
    found = []
    for pair in pairs:
        claim = ids[pair.claim][:CLAIM_TOKENS]
        evidence = ids[pair.evidence][: max_tokens - len(claim) - 3]
        found.append(EncodedPair((CLS, *evidence, SEP, *claim, SEP), len(evidence) + 2))
    return found


def logits(
    encoder: Any,
    head: Mapping[str, "Tensor"],
    batch: Sequence[EncodedPair],
    dropout: float = 0.0,
    multiple: int = 1,
) -> "Tensor":
    """Scores of the three labels, shape (n, 3), float32.

    The head reads the state of [CLS], the mean state of the claim, and how far that lies from the mean
    state of the evidence: MiniLM's means were trained to be compared. Rows are padded to a `multiple` of tokens,
    and their number too; see kcard.encoder.embed for what that is good for.
    """
    import torch
    from torch.nn.functional import dropout as drop
    from torch.nn.functional import linear, pad

    width = -(-max(len(row.ids) for row in batch) // multiple) * multiple
    ids = torch.full((len(batch), width), PAD)
    types = torch.zeros_like(ids)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        types[i, row.claim_start : len(row.ids)] = 1
        mask[i, : len(row.ids)] = 1
    states = encoder(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state.float()
    claim, evidence = _mean(states, types), _mean(states, mask - types)
    features = torch.cat([states[:, 0], claim, (claim - evidence).abs()], dim=-1)
    with torch.autocast("cpu", enabled=False):
        features = drop(pad(features, (0, 0, 0, -len(batch) % multiple)), dropout, training=dropout > 0)
        hidden = torch.tanh(linear(features, head["hidden.weight"], head["hidden.bias"]))
        hidden = drop(hidden, dropout, training=dropout > 0)
        return linear(hidden, head["output.weight"], head["output.bias"])[: len(batch)]


def _mean(states: "Tensor", mask: "Tensor") -> "Tensor":
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
