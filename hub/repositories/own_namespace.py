"""The hub's own namespace: the organisation for cards that `kcard publish` adds to this hub.

Locally its cards have bare names, such as `rivers`; for clients of a served hub that is the repository library/rivers.
The first card creates the namespace.
"""

from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update

from kcard.errors import HubError
from kcard.hub.accounts.names import check_namespace, folded
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import repositories
from kcard.hub.records.tables import settings
from kcard.hub.records.utc import now
from kcard.hub.repositories import terms

__all__ = ["DEFAULT", "OwnNamespace", "bare", "ensure", "find", "full", "rename"]

SETTING = "namespace"
DEFAULT = "library"
INSTEAD = "library-cards"  # if a user has the default name


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


def ensure(connection: Connection) -> OwnNamespace:
    """The namespace, created if needed."""
    if (own := find(connection)) is not None:
        return own
    taken = select(accounts.c.id).where(accounts.c.folded == DEFAULT, accounts.c.kind == "user")
    made = _organisation(connection, DEFAULT if connection.scalar(taken) is None else INSTEAD)
    connection.execute(insert(settings).values(name=SETTING, value=folded(made.name)))
    return made


def full(own: OwnNamespace | None, name: str) -> str:
    """The name of a card's repository: namespace/name."""
    return name if "/" in name or own is None else f"{own.name}/{name}"


def bare(own: OwnNamespace | None, repository: str) -> str:
    """The name of a repository's card: without the hub's own namespace."""
    return repository if own is None else repository.removeprefix(f"{own.name}/")


def rename(database: Database, name: str) -> None:
    """Move the hub's own cards to another organisation, created if needed.

    Raises Invalid for an invalid name, HubError if that account is a user or has a repository with a card's name.
    """
    with database.write() as connection:
        own = find(connection)
        if own is not None and folded(own.name) == folded(name):
            return
        new = _organisation(connection, check_namespace(name))
        if own is None:
            connection.execute(insert(settings).values(name=SETTING, value=folded(name)))
            return
        connection.execute(update(settings).where(settings.c.name == SETTING).values(value=folded(name)))
        _move(connection, own, new)


def _move(connection: Connection, own: OwnNamespace, new: OwnNamespace) -> None:
    from kcard.hub.repositories import rows

    columns = select(*rows.REPOSITORY_COLUMNS).where(repositories.c.namespace_id == own.id)
    for there in [rows.repository(row) for row in connection.execute(columns)]:
        to = f"{new.name}/{there.name.partition('/')[2]}"
        taken = (repositories.c.type == there.type, repositories.c.folded == folded(to))
        if connection.scalar(select(repositories.c.id).where(*taken)) is not None:
            raise HubError(
                f"can't move the hub's own cards to {new.name}: {to} already exists; choose another name"
            )
        values = {"namespace_id": new.id, "name": to, "folded": folded(to)}
        connection.execute(update(repositories).where(repositories.c.id == there.id).values(values))
        terms.put(connection, there.id, to, there.tags)


def _organisation(connection: Connection, name: str) -> OwnNamespace:
    query = select(accounts.c.id, accounts.c.name, accounts.c.kind).where(accounts.c.folded == folded(name))
    there = connection.execute(query).one_or_none()
    if there is not None:
        if there.kind != "organisation":
            raise HubError(
                f"can't move the hub's own cards to {there.name}: it is a user; choose another name"
            )
        return OwnNamespace(there.id, there.name)
    values: dict[str, object] = {"name": name, "folded": folded(name), "kind": "organisation", "fullname": ""}
    values |= {"email": "", "admin": False, "disabled": False, "created": now()}
    made = connection.execute(insert(accounts).values(values).returning(accounts.c.id)).scalar_one()
    return OwnNamespace(int(made), name)
