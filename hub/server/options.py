"""Options of the server."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["ServerOptions"]


@dataclass(frozen=True)
class ServerOptions:
    """The options of `kcard hub serve` that the application uses.

    url             the hub's public URL, without a trailing slash; None: from each request
    max_file_size   bytes of the largest file
    max_regular     bytes of the largest file inside a commit
    max_commit      bytes of the largest commit request
    max_form        bytes of the largest form with files
    part_size       bytes of a part of a large file
    quota           default quota of a namespace in bytes; None: no limit
    exam            whether a card with a model needs an exam to be published
    rate            downloads a minute from one account or address, other requests cost more; 0: no limit
    metrics         the folder for the metrics of all workers; None: only this process
    counts          the file for the rate limit of all workers; None: only this process
    asking          the socket of the processes that answer questions; None: the pages answer none
    """

    url: str | None = None
    max_file_size: int = 50_000_000_000
    max_regular: int = 4_000_000
    max_commit: int = 64_000_000
    max_form: int = 1_000_000_000
    part_size: int = 1_000_000_000
    quota: int | None = None
    exam: Literal["required", "optional"] = "required"
    rate: int = 3000
    metrics: str | None = None
    counts: str | None = None
    asking: str | None = None
