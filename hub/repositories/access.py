"""Requests for access to gated repositories."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import Connection, delete, insert, select

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import access
from kcard.hub.records.utc import now, utc
from kcard.hub.repositories.values import Repository

__all__ = ["GRANTED", "AccessRequest", "State", "find", "put", "waiting"]

State: TypeAlias = Literal["pending", "granted", "rejected"]
GRANTED: Literal["granted"] = "granted"


@dataclass(frozen=True)
class AccessRequest:
    """A request of an account; `asked` in UTC."""

    account: str
    state: State
    asked: datetime


def find(connection: Connection, repository: Repository, account_id: int) -> State | None:
    """The state of an account's request; None without one."""
    here = (access.c.repository_id == repository.id, access.c.account_id == account_id)
    state: State | None = connection.scalar(select(access.c.state).where(*here))
    return state


def put(connection: Connection, repository: Repository, account_id: int, state: State) -> None:
    """Set the state of an account's request, creating it if needed."""
    key = {"repository_id": repository.id, "account_id": account_id}
    asked = connection.scalar(select(access.c.asked).where(*(access.c[name] == key[name] for name in key)))
    connection.execute(delete(access).where(*(access.c[name] == key[name] for name in key)))
    connection.execute(insert(access).values(state=state, asked=asked or now(), **key))


def waiting(connection: Connection, repository: Repository) -> list[AccessRequest]:
    """All requests, oldest first."""
    query = (
        select(accounts.c.name, access.c.state, access.c.asked)
        .join_from(access, accounts)
        .where(access.c.repository_id == repository.id)
        .order_by(access.c.asked, accounts.c.name)
    )
    return [AccessRequest(row.name, row.state, utc(row.asked)) for row in connection.execute(query)]
