"""Finds what varies by name, through entry points: built-ins register exactly as a user's own would."""

from importlib.metadata import entry_points
from typing import Any

from kcard.errors import UsageError

__all__ = ["load", "names"]


def names(group: str) -> list[str]:
    """Every name registered in an entry-point group such as `kcard.gates`, sorted."""
    return sorted({point.name for point in entry_points(group=group)})


def load(group: str, name: str) -> Any:
    """The class or function registered as `name` in `group`; UsageError lists the names there are."""
    for point in entry_points(group=group, name=name):
        return point.load()
    kind = group.removeprefix("kcard.").rstrip("s").replace("_", " ")
    known = ", ".join(names(group)) or "none"
    raise UsageError(f"unknown {kind} {name!r}: choose one of {known}")
