"""--ray and what goes with it, for the commands whose work can be spread."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kcard.bulk.options import RayOptions
from kcard.cli.output import note
from kcard.option import declared

__all__ = ["cluster_of", "finished_kept"]


def cluster_of(given: dict[str, Any]) -> RayOptions | None:
    """Take the options of the cluster out of those of a command; None where the work is done here."""
    options = RayOptions(**{name: given.pop(name) for name in declared(RayOptions)})
    return None if options.ray is None else options


@contextmanager
def finished_kept(what: str) -> Iterator[None]:
    """Where the user interrupts bulk work, say how to go on. `what`: is done, such as "cards"."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"interrupted: finished {what} are kept; repeat the command with --resume to continue")
        sys.exit(130)
