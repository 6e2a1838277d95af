"""One thing that `kcard doctor` looked at."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """An error means that a bare `kcard ask` would not work; `remedy` says what to do."""

    name: str
    status: Status
    found: str
    remedy: str = ""
