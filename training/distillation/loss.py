"""The divergence of the student's next token from the teacher's, of which the most probable tokens are kept.

All other tokens are one, so the divergence is that of distributions over k + 1 events. It is the full one where k is
the vocabulary, at most the full one at temperature 1, and 0 where the student is the teacher. The temperature applies
to the k + 1 events. Applied to the whole vocabulary, it would move most of the probability to the others (.8 of it at
temperature 2 and k 64, by SmolLM2-135M).
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
    that of all others together."""

    ids: "npt.NDArray[np.uint32]"
    logs: "npt.NDArray[np.float32]"


@dataclass(frozen=True)
class DistilledExample(TrainingExample):
    """`teacher`: its distribution at each token of the target."""

    teacher: TopTokens | None = None


def top_tokens(logits: "Tensor", k: int) -> "tuple[Tensor, Tensor]":
    """Of logits (n, vocabulary) the ids (n, k) of the most probable tokens, and their log-probabilities with that of
    all others together (n, k + 1); float32."""
    import torch

    logs = torch.log_softmax(logits.float(), dim=-1)
    top, ids = logs.topk(min(k, logs.shape[1]), dim=-1)
    return ids, torch.cat([top, _rest(logs, ids)], dim=1)


def divergence(logits: "Tensor", ids: "Tensor", logs: "Tensor", temperature: float) -> "Tensor":
    """KL(teacher || student) summed over n places, times temperature squared, which keeps gradients as large as at
    temperature 1 (Hinton et al., 2015, section 2).

    logits  the student's, (n, vocabulary)
    ids, logs  of the teacher, as top_tokens makes them
    """
    import torch

    own = torch.log_softmax(logits.float(), dim=-1)
    student = torch.cat([own.gather(1, ids), _rest(own, ids)], dim=1)
    wanted, found = (torch.log_softmax(events / temperature, dim=-1) for events in (logs, student))
    divergence: Tensor = (wanted.exp() * (wanted - found)).sum() * temperature**2
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
