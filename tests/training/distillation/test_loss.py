"""The divergence over the teacher's most probable tokens, against torch's over the whole vocabulary."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kcard.training.distillation import DistilledExample, TopTokens, distilled_loss, divergence, top_tokens
from kcard.training.epochs import IGNORED

PLACES, VOCABULARY = 5, 40


def logits(seed: int) -> torch.Tensor:
    return 3 * torch.randn(PLACES, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def whole(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """The full divergence, by torch."""
    own = torch.log_softmax(student / temperature, -1)
    target = torch.log_softmax(teacher / temperature, -1)
    return torch.nn.functional.kl_div(own, target, log_target=True, reduction="sum") * temperature**2


def bucketed(student: torch.Tensor, teacher: torch.Tensor, temperature: float, k: int) -> torch.Tensor:
    """The divergence of the distributions over k tokens and all others, by torch, of probabilities."""
    order = teacher.argsort(dim=1, descending=True)

    def shares(values: torch.Tensor) -> torch.Tensor:
        ordered = torch.softmax(values, -1).gather(1, order)
        events = torch.cat([ordered[:, :k], ordered[:, k:].sum(1, keepdim=True)], 1) ** (1 / temperature)
        return events / events.sum(1, keepdim=True)

    own, target = shares(student).log(), shares(teacher)
    return torch.nn.functional.kl_div(own, target, reduction="sum") * temperature**2


def graded(loss: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    student = logits(1).requires_grad_()
    result = loss(student)
    result.backward()
    assert student.grad is not None
    return result.detach(), student.grad


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_with_the_whole_vocabulary_it_is_the_full_divergence_with_its_gradient(temperature: float) -> None:
    teacher = logits(0)
    top = top_tokens(teacher, VOCABULARY)
    loss = graded(lambda student: divergence(student, *top, temperature))
    expected = graded(lambda student: whole(student, teacher, temperature))
    torch.testing.assert_close(loss, expected)
    assert top[0].shape == (PLACES, VOCABULARY)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_with_fewer_tokens_it_is_the_divergence_over_them_and_a_bucket(k: int, temperature: float) -> None:
    teacher = logits(0)
    top = top_tokens(teacher, k)
    loss = graded(lambda student: divergence(student, *top, temperature))
    torch.testing.assert_close(loss, graded(lambda student: bucketed(student, teacher, temperature, k)))
    if temperature == 1:
        assert loss[0] < whole(logits(1), teacher, temperature)


@pytest.mark.parametrize("k", [1, 7, VOCABULARY, 10 * VOCABULARY])
def test_a_student_like_its_teacher_has_no_loss_and_no_gradient(k: int) -> None:
    top = top_tokens(logits(1), k)
    loss, gradient = graded(lambda student: divergence(student, *top, 2.0))
    assert abs(loss) < 1e-5
    assert gradient.abs().max() < 1e-5


def test_its_gradient_is_that_of_finite_differences() -> None:
    top = top_tokens(logits(0).double(), 4)
    student = logits(1)[:2].double().requires_grad_()
    pair = (top[0][:2], top[1][:2])
    # Float32 inside: steps must be large.
    assert torch.autograd.gradcheck(lambda x: divergence(x, *pair, 2.0), (student,), eps=1e-2, atol=2e-2)


def test_logits_in_bfloat16_give_the_divergence_in_float32() -> None:
    top = top_tokens(logits(0), 8)
    loss = divergence(logits(1).bfloat16(), *top, 2.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, divergence(logits(1), *top, 2.0), rtol=0.02, atol=0.02)


def test_a_part_is_compared_where_its_targets_stand() -> None:
    """Two rows: targets of two tokens and of one, at other places."""
    teacher, student = logits(0), logits(1)
    ids, logs = (tensor.numpy() for tensor in top_tokens(teacher[:3], 6))
    part = [
        DistilledExample((1,), (2, 3), teacher=TopTokens(ids[:2].astype(np.uint32), logs[:2])),
        DistilledExample((1, 1), (2,), teacher=TopTokens(ids[2:].astype(np.uint32), logs[2:])),
    ]
    following = torch.tensor([[2, 3, IGNORED], [IGNORED, 2, IGNORED]])
    rows = torch.full((2, 3, VOCABULARY), 9.0)
    rows[0, :2], rows[1, 1] = student[:2], student[2]
    expected = bucketed(student[:3], teacher[:3], 2.0, 6) / 4
    torch.testing.assert_close(distilled_loss(2.0)(rows, following, part, 0.25), expected)


def test_a_process_without_a_part_has_a_loss_of_zero_that_can_be_differentiated() -> None:
    rows = torch.randn(1, 3, VOCABULARY, requires_grad=True)
    loss = distilled_loss(2.0)(rows, torch.full((1, 3), IGNORED), [], 0.5)
    loss.backward()
    assert loss.item() == 0
    assert rows.grad is not None
    assert not rows.grad.any()
