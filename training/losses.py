"""Losses of causal language models: cross-entropy, and the divergence from a teacher."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kcard.training.epochs import IGNORED, TrainingExample, collate
from kcard.training.execution import Execution, Processes, autocast
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "LEAST",
    "BatchLosses",
    "PartLoss",
    "TopTokens",
    "causal_losses",
    "cross_entropy",
    "distilled_loss",
    "divergence",
    "token_loss",
    "top_tokens",
]


# Cross-entropy over a large vocabulary, a few rows at a time, with the gradient computed in the forward pass.
#
# The usual implementation copies all logits to float32 and traverses them repeatedly; for 2,048 tokens over 50,000
# words this takes a tenth of the model's time. Here the rows processed at a time fit into a core's cache, and the
# gradient has the precision of the logits.

AT_ONCE = 1 << 18  # logits, 1 MB


def cross_entropy(logits: "Tensor", labels: "Tensor", share: float = 1.0) -> "Tensor":
    """Return the cross-entropy, summed over the rows whose label is not IGNORED, times `share`.

    The result is float32 and differentiable once. logits (n, vocabulary), labels (n,)
    """
    import torch

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: "Tensor", labels: "Tensor") -> "Tensor":
            gradient, total = torch.empty_like(logits), logits.new_zeros((), dtype=torch.float32)
            rows = max(1, AT_ONCE // logits.shape[1])
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


# (logits (rows, length, vocabulary), following tokens (rows, length), examples, the part's weight) -> loss
PartLoss = Callable[["Tensor", "Tensor", Sequence[Any], float], "Tensor"]
BatchLosses = Callable[[Sequence[TrainingExample]], "Iterator[tuple[Tensor, int]]"]


def token_loss(logits: "Tensor", following: "Tensor", part: Sequence[Any], share: float) -> "Tensor":
    """Return the cross-entropy of the next tokens."""
    del part
    return cross_entropy(logits.flatten(0, 1), following.flatten(), share)


# The divergence between the next-token distributions of student and teacher, of which the top k tokens are kept.
#
# All other tokens are merged into one, so the distributions are over k + 1 events. The divergence is the full one if k
# is the vocabulary size, at most the full one at temperature 1, and 0 if the student equals the teacher. The
# temperature applies to the k + 1 events. Applied to the whole vocabulary, it would move most of the probability to the
# merged tokens (.8 of it at temperature 2 and k 64, for SmolLM2-135M).

LEAST = -1e4  # a log-probability below all that occur; its exponential is 0


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
    top, ids = logs.topk(min(k, logs.shape[1]), dim=-1)
    return ids, torch.cat([top, _rest(logs, ids)], dim=1)


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


def distilled_loss(temperature: float) -> PartLoss:
    """Return a loss: the divergence at all places that have a label, times the part's weight."""
    import torch

    def loss(logits: "Tensor", following: "Tensor", part: Sequence[Any], share: float) -> "Tensor":
        chosen = logits[following != IGNORED]
        if not part:
            return chosen.sum()
        ids = np.concatenate([example.teacher.ids for example in part]).astype(np.int64)
        logs = np.concatenate([example.teacher.logs for example in part])
        teacher = (torch.from_numpy(ids).to(logits.device), torch.from_numpy(logs).to(logits.device))
        return divergence(chosen, *teacher, temperature) * share

    return loss


def _rest(logs: "Tensor", ids: "Tensor") -> "Tensor":
    """Return the log-probability of all tokens but `ids` together, (n, 1); LEAST if there are no others."""
    import torch

    if ids.shape[1] == logs.shape[1]:
        return logs.new_full((len(logs), 1), LEAST)
    return logs.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)


def causal_losses(
    model: Any,
    pad: int,
    execution: Execution,
    processes: Processes | None = None,
    part_loss: PartLoss = token_loss,
) -> BatchLosses:
    """Return a function from a batch to (loss, number of tokens) of its parts, each loss weighted by its share of the
    learned tokens.

    With several processes, each has its own parts, and all have equally many, since FSDP gathers a whole model's layers
    from all of them for each part. A process with no part left passes one row through the model without learning.
    """
    import torch
    from torch.nn.functional import pad as pad_rows

    def losses(batch: Sequence[TrainingExample]) -> "Iterator[tuple[Tensor, int]]":
        seed = torch.initial_seed()
        total = sum(example.learned for example in batch)
        # The parts of this process, with their numbers among those of all processes.
        count, rank = (1, 0) if processes is None else (processes.count, processes.rank)
        rows = min(execution.rows(max(map(len, batch))), -(-len(batch) // count))
        for first in range(0, len(batch), rows * count):
            start = first + rank * rows
            number, part = start // rows, batch[start : start + rows]
            ids, labels = (tensor.to(model.device) for tensor in collate(part or batch[:1], pad))
            if not part:
                labels.fill_(IGNORED)
            if number and model.training:  # so that noise does not depend on which process has the part
                torch.manual_seed(derive_seed(seed, "part", number))
            with autocast(model.device.type), warnings.catch_warnings():
                # FSDP warns of layers that return views, such as OPT's, since these must not be changed in place; no
                # layer of transformers changes its input so.
                warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
                # Pass no mask if there is no padding, since attention is then faster.
                longest = ids.shape[1]
                mask = (
                    None
                    if all(len(example) == longest for example in part)
                    else ids.new_tensor(
                        [[1] * len(example) + [0] * (longest - len(example)) for example in part]
                    )
                )
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            # The last place predicts nothing; ignoring its label here saves a copy of all logits.
            following = pad_rows(labels[:, 1:], (0, 1), value=IGNORED)
            loss = part_loss(logits, following, part, 1 / total)
            del logits
            yield loss, sum(len(example) for example in part)

    return losses
