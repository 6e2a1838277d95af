"""The hub's own namespace: the organisation for cards that `kcard publish` adds to this hub.

Locally its cards have bare names, such as `rivers`; for clients of a served hub that is the repository library/rivers.
The first card creates the namespace.
"""

from typing import NamedTuple

from sqlalchemy import Connection, select

from kcard.hub.accounts.names import OWN
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.tables import settings

__all__ = ["DEFAULT", "INSTEAD", "SETTING", "OwnNamespace", "bare", "find", "full"]

SETTING = "namespace"
DEFAULT, INSTEAD = OWN  # the second one in a hub where somebody had the first name before it was reserved


class OwnNamespace(NamedTuple):
    """The account that owns the hub's own cards."""

    id: int
    name: str


def find(connection: Connection) -> OwnNamespace | None:
    """The namespace; None if the hub never had a card of its own."""
    name = select(settings.c.value).where(settings.c.name == SETTING).scalar_subquery()
    row = connection.execute(
        select(accounts.c.id, accounts.c.name).where(accounts.c.folded == name)
    ).one_or_none()
    return None if row is None else OwnNamespace(*row)


def full(own: OwnNamespace | None, name: str) -> str:
    """The name of a card's repository: namespace/name."""
    return name if "/" in name or own is None else f"{own.name}/{name}"


def bare(own: OwnNamespace | None, repository: str) -> str:
    """The name of a repository's card: without the hub's own namespace."""
    return repository if own is None else repository.removeprefix(f"{own.name}/")
