"""The loss that is computed some rows at a time is torch's, and so is its gradient."""

import pytest
import torch

from kcard.training.epochs import IGNORED
from kcard.training.losses import AT_ONCE, cross_entropy


def make_logits(rows: int, words: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logits = (4 * torch.randn(rows, words)).to(dtype).requires_grad_()
    labels = torch.randint(0, words, (rows,))
    labels[::5] = IGNORED
    return logits, labels


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-3)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize("rows", [1, 7, 3 * AT_ONCE // 20_000 + 1])
def test_loss_and_gradient_are_torchs(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    logits, labels = make_logits(rows, 20_000, dtype)
    labels[0] = 3
    loss = cross_entropy(logits, labels, 0.25)
    loss.backward()
    assert logits.grad is not None
    gradient, logits.grad = logits.grad, None
    expected = 0.25 * torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-2, atol=tolerance)


def test_ignored_rows_have_no_gradient() -> None:
    logits, labels = make_logits(10, 50, torch.float32)
    cross_entropy(logits, labels).backward()
    assert logits.grad is not None
    assert not logits.grad[labels == IGNORED].any()
    assert logits.grad[labels != IGNORED].any(dim=1).all()


def test_a_gradient_from_above_is_passed_on() -> None:
    logits, labels = make_logits(10, 50, torch.float32)
    (once,) = torch.autograd.grad(cross_entropy(logits, labels), logits)
    (thrice,) = torch.autograd.grad(3 * cross_entropy(logits, labels), logits)
    torch.testing.assert_close(thrice, 3 * once)


def test_sure_logits_overflow_nothing() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
