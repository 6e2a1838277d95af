"""Who asked for the files of a gated repository, and what was answered."""

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
    """An account that asked for access; `asked` in UTC."""

    account: str
    state: State
    asked: datetime


def find(connection: Connection, repository: Repository, account_id: int) -> State | None:
    """What an account that asked was answered; None where it never asked."""
    here = (access.c.repository_id == repository.id, access.c.account_id == account_id)
    state: State | None = connection.scalar(select(access.c.state).where(*here))
    return state


def put(connection: Connection, repository: Repository, account_id: int, state: State) -> None:
    """Note an answer, in the place of the one before."""
    key = {"repository_id": repository.id, "account_id": account_id}
    asked = connection.scalar(select(access.c.asked).where(*(access.c[name] == key[name] for name in key)))
    connection.execute(delete(access).where(*(access.c[name] == key[name] for name in key)))
    connection.execute(insert(access).values(state=state, asked=asked or now(), **key))


def waiting(connection: Connection, repository: Repository) -> list[AccessRequest]:
    """Everyone who asked, in that order."""
    query = (
        select(accounts.c.name, access.c.state, access.c.asked)
        .join_from(access, accounts)
        .where(access.c.repository_id == repository.id)
        .order_by(access.c.asked, accounts.c.name)
    )
    return [AccessRequest(row.name, row.state, utc(row.asked)) for row in connection.execute(query)]
