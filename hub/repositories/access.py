"""Requests for access to gated repositories."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import Connection, insert, select, update

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import access
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.values import Repository

__all__ = ["GRANTED", "LONGEST_NOTE", "AccessRequest", "State", "find", "put", "waiting"]

State: TypeAlias = Literal["pending", "granted", "rejected"]
GRANTED: Literal["granted"] = "granted"
LONGEST_NOTE = 2000  # characters


@dataclass(frozen=True)
class AccessRequest:
    """A request of an account; `asked` in UTC, `note` is the reason given."""

    account: str
    state: State
    asked: datetime
    note: str = ""


def find(connection: Connection, repository: Repository, account_id: int) -> State | None:
    """The state of an account's request; None without one."""
    here = (access.c.repository_id == repository.id, access.c.account_id == account_id)
    state: State | None = connection.scalar(select(access.c.state).where(*here))
    return state


def put(
    connection: Connection, repository: Repository, account_id: int, state: State, note: str = ""
) -> None:
    """Set the state of an account's request, creating it with the note if needed. Raises Invalid for a long note."""
    if len(note) > LONGEST_NOTE or "\0" in note:
        raise Invalid(f"invalid note: use at most {LONGEST_NOTE} characters, without NUL")
    key = {"repository_id": repository.id, "account_id": account_id}
    there = update(access).where(*(access.c[name] == key[name] for name in key))
    if not connection.execute(there.values(state=state)).rowcount:
        connection.execute(insert(access).values(state=state, asked=now(), note=note, **key))


def waiting(connection: Connection, repository: Repository) -> list[AccessRequest]:
    """All requests, oldest first."""
    query = (
        select(accounts.c.name, access.c.state, access.c.asked, access.c.note)
        .join_from(access, accounts)
        .where(access.c.repository_id == repository.id)
        .order_by(access.c.asked, accounts.c.name)
    )
    return [AccessRequest(row.name, row.state, utc(row.asked), row.note) for row in connection.execute(query)]
