"""Muon in batches: the update of torch's own."""

import torch

from kcard.training.optimizers import Muon


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
