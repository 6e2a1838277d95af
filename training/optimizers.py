"""The optimizer of fine-tuning: AdamW, or bitsandbytes' with states of 8 bits (Dettmers et al., 2022)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import MissingExtra

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OptimizerName", "adamw", "check_optimizer", "state_bytes"]

OptimizerName = Literal["adamw", "adamw8bit", "paged-adamw8bit"]
CLASSES = {"adamw8bit": "AdamW8bit", "paged-adamw8bit": "PagedAdamW8bit"}
SMALL = 4096  # weights with fewer values keep float32 states
BLOCK = 256  # values that share a scale


def check_optimizer(name: OptimizerName) -> None:
    """Raise MissingExtra where the optimizer's package is not installed."""
    from importlib.util import find_spec

    if name in CLASSES and find_spec("bitsandbytes") is None:
        raise MissingExtra(f"optimizer {name} needs bitsandbytes: pip install 'kcard[8bit]'")


def adamw(name: OptimizerName, weights: "Iterable[Tensor]", **settings: Any) -> Any:
    """The optimizer of that name. `settings`: lr, betas, eps and weight_decay, as torch.optim.AdamW takes them.

    Raises MissingExtra.
    """
    if name == "adamw":
        from torch.optim import AdamW

        return AdamW(weights, fused=True, **settings)
    check_optimizer(name)
    from bitsandbytes import optim

    return getattr(optim, CLASSES[name])(weights, min_8bit_size=SMALL, **settings)


def state_bytes(name: OptimizerName, values: int, width: int) -> int:
    """Bytes that the states of a weight of so many `values` take; `width`: bytes of one of its values."""
    if name == "adamw":
        return 2 * values * width
    if values < SMALL:
        return 2 * values * 4
    return 2 * (values + 4 * -(-values // BLOCK))
