"""What the processes of a training do together besides its steps: put weights together, part them, measure a loss."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from kcard.training.example_batches import TrainingExample
    from kcard.training.loop import Job

__all__ = ["free", "mean_loss", "share_of", "whole", "whole_weights"]


def whole(value: Any) -> Any:
    """The value with every divided tensor in it (FSDP) as a whole one in the main memory of rank 0."""
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(whole, value)]
    if not _divided(value):
        return value
    from torch.distributed import get_rank

    found = value.full_tensor()
    return found.cpu() if get_rank() == 0 else None


def share_of(saved: Any, like: "Tensor") -> Any:
    """This process' share of a tensor that belongs to the weight `like`, if that is divided; else the value itself."""
    if not _divided(like) or getattr(saved, "shape", None) != like.shape:
        return saved
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(saved.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def whole_weights(job: "Job") -> "dict[str, Tensor] | None":
    """The model's state, whole, where it is divided; else None, since the model has it."""
    model: Any = job.modules["model"]
    if not any(map(_divided, model.parameters())):
        return None
    tied = {*dict(model.named_parameters(remove_duplicate=False))} - {*dict(model.named_parameters())}
    return {name: whole(tensor) for name, tensor in model.state_dict().items() if name not in tied}


def free(job: "Job") -> None:
    """Give back the memory of weights, gradients and optimizer states once they are saved: the card is loaded next,
    on the same device."""
    import torch

    for optimizer in job.optimizers:
        optimizer.zero_grad(set_to_none=True)
        optimizer.param_groups.clear()
        vars(optimizer)["state"].clear()
    model: Any = job.modules["model"]
    if not any(map(_divided, model.parameters())):
        model.to("meta")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def mean_loss(job: "Job", batch: "Sequence[TrainingExample]") -> float:
    """The mean loss a token, without learning."""
    import torch

    job.modules["model"].eval()
    with torch.no_grad():
        loss = sum(part.item() for part, _ in job.losses(batch))
    return loss if job.processes is None else job.processes.total(loss)[0]


def _divided(value: Any) -> bool:
    import sys

    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(value, tensors.DTensor)
