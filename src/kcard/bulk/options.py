"""The options of work on a Ray cluster: every command that can be spread takes these."""

from dataclasses import dataclass
from typing import Annotated

from kcard.option import Option, check_values, documented

__all__ = ["RayOptions"]


@documented
@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Where bulk work is done, and what each piece of it needs there.

    Raises UsageError for a value that is out of range.
    """

    ray: Annotated[
        str | None,
        Option(
            "Do the work on a Ray cluster: HOST:PORT of its head, auto (the cluster of this machine) or local (start "
            "one here for this command)."
        ),
    ] = None
    ray_cpus: Annotated[float, Option("CPU cores for each piece of work on the cluster.", least=0.1)] = 1.0
    ray_gpus: Annotated[
        float | None,
        Option(
            "GPUs for each piece of work on the cluster; may be a fraction.",
            default="1 with --device cuda, else 0",
            least=0,
        ),
    ] = None
    ray_retries: Annotated[
        int, Option("How often a piece is tried again when its worker or node is lost.", least=0)
    ] = 3

    def __post_init__(self) -> None:
        check_values(RayOptions, vars(self))

    def gpus(self, device: str) -> float:
        """GPUs for each piece whose models are on that device."""
        return float(device.startswith("cuda")) if self.ray_gpus is None else self.ray_gpus
