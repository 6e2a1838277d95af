"""The loss that is computed some rows at a time is torch's, and so is its gradient."""

import pytest
import torch

from kcard.training.epochs import IGNORED
from kcard.training.losses import AT_ONCE, cross_entropy
from kcard.training.optimizers import Muon


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


def test_it_makes_the_same_weights_as_torchs_own() -> None:
    torch.manual_seed(0)
    shapes = [(16, 16), (16, 16), (64, 16), (16, 64), (16, 64)]
    ours = [torch.nn.Parameter(torch.randn(*shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    begun = [weight.detach().clone() for weight in ours]
    one = Muon(ours, lr=0.02, momentum=0.95, weight_decay=0.01, steps=4)
    two = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.01, ns_steps=4)
    for _ in range(5):
        for weight, other in zip(ours, theirs, strict=True):
            weight.grad = torch.randn_like(weight)
            other.grad = weight.grad.clone()
        one.step()
        two.step()
    for weight, other, before in zip(ours, theirs, begun, strict=True):
        moved = (other - before).norm()
        assert moved > 0.1
        assert (weight - other).norm() < 0.02 * moved  # bf16 products


def test_its_state_can_be_saved_and_restored() -> None:
    weight = torch.nn.Parameter(torch.eye(4))
    weight.grad = torch.ones(4, 4)
    optimizer = Muon([weight], lr=0.1)
    optimizer.step()
    other = Muon([torch.nn.Parameter(torch.eye(4))], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    (buffer,) = other.state_dict()["buffers"]
    assert torch.equal(buffer, optimizer.state_dict()["buffers"][0])
    assert buffer.abs().sum() > 0
