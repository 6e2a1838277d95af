"""--hub: which hub is meant, for the commands that may speak to one elsewhere."""

from typing import TYPE_CHECKING, Annotated

import typer

from kcard.config import settings
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["LOCAL", "HubOption", "elsewhere", "here", "named"]

LOCAL = "local"

HubOption = Annotated[
    str | None,
    typer.Option(
        help="A hub's URL, or local. [default: the setting hub_url, else local]", show_default=False
    ),
]


def elsewhere(hub: str | None) -> str | None:
    """The URL of the hub that --hub or the setting names; None for the local one."""
    url = hub or settings().hub_url
    return None if url in {None, LOCAL} else url


def named(hub: str | None) -> str:
    """The URL of a hub elsewhere; UsageError where neither --hub nor the setting names one."""
    if (url := elsewhere(hub)) is None:
        raise UsageError("no hub given: use --hub URL, or set hub_url in your config.toml")
    return url


def here(database_url: str | None = None) -> "Hub":
    """The local hub."""
    from kcard.hub.registry import Hub

    return Hub(database_url=database_url)
