"""Losses of causal language models: cross-entropy, and the divergence from a teacher."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.training.epochs import IGNORED

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

# Cross-entropy over a large vocabulary, a few rows at a time, with the gradient computed in the forward pass.
#
# The usual implementation copies all logits to float32 and traverses them repeatedly; for 2,048 tokens over 50,000
# words this takes a tenth of the model's time. Here the rows processed at a time fit into a core's cache, and the
# gradient has the precision of the logits.

LOGITS_AT_ONCE = 1 << 18  # logits, 1 MB


def cross_entropy(logits: "Tensor", labels: "Tensor", share: float = 1.0) -> "Tensor":
    """Return the cross-entropy, summed over the rows whose label is not IGNORED, times `share`.

    The result is float32 and differentiable once. logits (n, vocabulary), labels (n,)
    """
    import torch

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: "Tensor", labels: "Tensor") -> "Tensor":
            gradient, total = torch.empty_like(logits), logits.new_zeros((), dtype=torch.float32)
            rows = max(1, LOGITS_AT_ONCE // logits.shape[1])
            for part, into, targets in zip(
                logits.split(rows), gradient.split(rows), labels.split(rows), strict=True
            ):
                total += loss_and_gradient(part, into, targets, share)
            ctx.save_for_backward(gradient)
            return total

        @staticmethod
        def backward(ctx: Any, grad_output: "Tensor") -> "tuple[Tensor, None]":
            (gradient,) = ctx.saved_tensors
            return (gradient if float(grad_output) == 1 else gradient * grad_output.to(gradient.dtype)), None

    loss: Tensor = CrossEntropy.apply(logits, labels)  # type: ignore[no-untyped-call]
    return loss


def loss_and_gradient(logits: "Tensor", gradient: "Tensor", labels: "Tensor", share: float) -> "Tensor":
    """Return the loss of some rows and write its gradient, which is 0 for ignored labels."""
    counted = (labels != IGNORED).float() * share
    targets = labels.clamp(min=0).unsqueeze(1)
    values = logits.float()
    values = values - values.amax(dim=1, keepdim=True)
    right = values.gather(1, targets).squeeze(1)
    shares = values.exp_()
    mass = shares.sum(dim=1)
    shares.mul_((counted / mass).unsqueeze(1))
    shares.scatter_add_(1, targets, -counted.unsqueeze(1))
    gradient.copy_(shares)
    loss: Tensor = ((mass.log() - right) * counted).sum()
    return loss


# The divergence between the next-token distributions of student and teacher, of which the top k tokens are kept.
#
# All other tokens are merged into one, so the distributions are over k + 1 events. The divergence is the full one if k
# is the vocabulary size, at most the full one at temperature 1, and 0 if the student equals the teacher. The
# temperature applies to the k + 1 events. Applied to the whole vocabulary, it would move most of the probability to the
# merged tokens (.8 of it at temperature 2 and k 64, for SmolLM2-135M).

LEAST_LOG = -1e4  # a log-probability below all that occur; its exponential is 0


@dataclass(frozen=True)
class TopTokens:
    """The teacher's distribution at each of n places: `ids` (n, k), and `logs` (n, k + 1), the log-probabilities of
    these tokens and of all others together."""

    ids: "npt.NDArray[np.uint32]"
    logs: "npt.NDArray[np.float32]"


def top_tokens(logits: "Tensor", k: int) -> "tuple[Tensor, Tensor]":
    """Return of logits (n, vocabulary) the ids (n, k) of the most probable tokens, and their log-probabilities followed
    by that of all other tokens together (n, k + 1); float32."""
    import torch

    logs = torch.log_softmax(logits.float(), dim=-1)
    ids = logs.topk(min(k, logs.shape[1]), dim=-1).indices
    return ids, torch.cat([logs.gather(1, ids), _rest(logs, ids)], dim=1)


def divergence(logits: "Tensor", ids: "Tensor", logs: "Tensor", temperature: float) -> "Tensor":
    """Return KL(teacher || student) summed over n places, times temperature squared, which keeps gradients as large as
    at temperature 1 (Hinton et al., 2015, section 2).

    logits  the student's, (n, vocabulary)
    ids, logs  of the teacher, as top_tokens makes them
    """
    import torch

    own = torch.log_softmax(logits.float(), dim=-1)
    student = torch.cat([own.gather(1, ids), _rest(own, ids)], dim=1)
    teacher_logs, student_logs = (
        torch.log_softmax(events / temperature, dim=-1) for events in (logs, student)
    )
    divergence: Tensor = (teacher_logs.exp() * (teacher_logs - student_logs)).sum() * temperature**2
    return divergence


def _rest(logs: "Tensor", ids: "Tensor") -> "Tensor":
    """Return the log-probability of all tokens but `ids` together, (n, 1); LEAST_LOG if there are no others."""
    import torch

    if ids.shape[1] == logs.shape[1]:
        return logs.new_full((len(logs), 1), LEAST_LOG)
    return logs.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)
