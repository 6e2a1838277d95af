"""The divergence of the student's next token from the teacher's, of which the most probable tokens are kept.

The rest of the vocabulary is one bucket, so the divergence is that of the distributions over k + 1 events: at most the
full one, equal to it where k is the vocabulary, and 0 where the student is the teacher.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.training.causal_loss import PartLoss
from kcard.training.example_batches import IGNORED, TrainingExample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

__all__ = ["LEAST", "DistilledExample", "TopTokens", "distilled_loss", "divergence", "top_tokens"]

LEAST = -1e4  # a log-probability below all that are told apart; its exponential is 0


@dataclass(frozen=True)
class TopTokens:
    """The teacher's distribution at each of n places: `ids` (n, k) and `logs` (n, k + 1), their log-probabilities and
    that of all others together, at the temperature of distillation."""

    ids: "npt.NDArray[np.uint32]"
    logs: "npt.NDArray[np.float32]"


@dataclass(frozen=True)
class DistilledExample(TrainingExample):
    """`teacher`: its distribution at each token of the target."""

    teacher: TopTokens | None = None


def top_tokens(logits: "Tensor", k: int, temperature: float) -> "tuple[Tensor, Tensor]":
    """Of logits (n, vocabulary) the ids (n, k) of the most probable tokens and their log-probabilities with that of the
    rest (n, k + 1); float32."""
    import torch

    logs = torch.log_softmax(logits.float() / temperature, dim=-1)
    top, ids = logs.topk(min(k, logs.shape[1]), dim=-1)
    return ids, torch.cat([top, _rest(logs, ids)], dim=1)


def divergence(logits: "Tensor", ids: "Tensor", logs: "Tensor", temperature: float) -> "Tensor":
    """KL(teacher || student) summed over n places, times temperature squared, which keeps gradients as large as at
    temperature 1 (Hinton et al., 2015, section 2).

    logits  the student's, (n, vocabulary)
    ids, logs  of the teacher, as top_tokens makes them
    """
    import torch

    own = torch.log_softmax(logits.float() / temperature, dim=-1)
    rest = _rest(own, ids)
    found = torch.cat([own.gather(1, ids), rest], dim=1)
    divergence: Tensor = (logs.exp() * (logs - found)).sum() * temperature**2
    return divergence


def distilled_loss(temperature: float) -> PartLoss:
    """The divergence at all places that have a label, times the part's weight."""
    return functools.partial(_distilled, temperature)


def _distilled(
    temperature: float, logits: "Tensor", following: "Tensor", part: Sequence[Any], share: float
) -> "Tensor":
    import numpy as np
    import torch

    chosen = logits[following != IGNORED]
    if not part:
        return chosen.sum()
    ids = np.concatenate([example.teacher.ids for example in part]).astype(np.int64)
    logs = np.concatenate([example.teacher.logs for example in part])
    teacher = (torch.from_numpy(ids).to(logits.device), torch.from_numpy(logs).to(logits.device))
    return divergence(chosen, *teacher, temperature) * share


def _rest(logs: "Tensor", ids: "Tensor") -> "Tensor":
    """The log of what all tokens but `ids` have together, (n, 1); LEAST where there are none."""
    import torch

    if ids.shape[1] == logs.shape[1]:
        return logs.new_full((len(logs), 1), LEAST)
    return logs.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)
