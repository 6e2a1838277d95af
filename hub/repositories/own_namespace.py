"""The hub's own namespace: an organisation that holds what `kcard publish` puts into this hub.

A card there goes by its bare name, `rivers`; for clients of a served hub it is the repository library/rivers. The
namespace is made with the first card.
"""

from typing import NamedTuple

from sqlalchemy import Connection, select

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.tables import settings

__all__ = ["SETTING", "OwnNamespace", "bare", "find", "full"]

SETTING = "namespace"


class OwnNamespace(NamedTuple):
    """The account that owns the hub's own cards."""

    id: int
    name: str


def find(connection: Connection) -> OwnNamespace | None:
    """The namespace; None in a hub that never held a card of its own."""
    name = select(settings.c.value).where(settings.c.name == SETTING).scalar_subquery()
    row = connection.execute(
        select(accounts.c.id, accounts.c.name).where(accounts.c.folded == name)
    ).one_or_none()
    return None if row is None else OwnNamespace(*row)


def full(own: OwnNamespace | None, name: str) -> str:
    """The name of the repository of a card: namespace/name."""
    return name if "/" in name or own is None else f"{own.name}/{name}"


def bare(own: OwnNamespace | None, repository: str) -> str:
    """The name of the card of a repository: without the namespace where that is the hub's own."""
    return repository if own is None else repository.removeprefix(f"{own.name}/")
