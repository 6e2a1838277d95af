"""How a shared hub is served: what an operator may set."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["ServerOptions"]


@dataclass(frozen=True)
class ServerOptions:
    """The options of `kcard hub serve` that the application itself goes by.

    url             what clients reach the hub by, without a slash at its end; None: what each request says
    max_file_size   bytes of the largest file
    max_regular     bytes of the largest file that is sent inside a commit
    max_commit      bytes of the largest commit request
    part_size       bytes of a part of a large file that is sent in parts
    quota           bytes that a namespace may hold unless its account says otherwise; None: any
    exam            whether a card with a model must come with its exam to be published
    xet             whether large files are taken by Xet from clients that offer it
    rate            requests a minute from one account or address, in each worker; 0: any number
    metrics         the folder in which workers count together; None: this process counts for itself
    """

    url: str | None = None
    max_file_size: int = 50_000_000_000
    max_regular: int = 4_000_000
    max_commit: int = 64_000_000
    part_size: int = 1_000_000_000
    quota: int | None = None
    exam: Literal["required", "optional"] = "required"
    xet: bool = True
    rate: int = 0
    metrics: str | None = None
