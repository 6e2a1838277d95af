"""The event log: who changed what, and when. Events are only added and contain no secrets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, insert, select

from kcard.hub.records.account_tables import events
from kcard.hub.records.database import Database
from kcard.hub.records.utc import now, utc

__all__ = ["Action", "Event", "Events"]

Action: TypeAlias = Literal[
    "access.answered",
    "account.created",
    "account.updated",
    "card.measured",
    "card.published",
    "card.quarantined",
    "card.released",
    "job.failed",
    "member.changed",
    "quarantine.set",
    "repository.created",
    "repository.deleted",
    "repository.moved",
    "repository.updated",
    "session.opened",
    "tag.deleted",
    "token.created",
    "token.revoked",
]


@dataclass(frozen=True)
class Event:
    """A change.

    number  increases; see `before` of Events.list
    actor   the account that made the change; None: the command line
    target  the name of the changed account or repository, which may no longer exist
    """

    number: int
    at: datetime
    actor: str | None
    action: str
    target: str
    detail: Mapping[str, Any]


class Events:
    """The log of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        actor: str | None,
        action: Action,
        target: str,
        connection: Connection | None = None,
        **detail: object,
    ) -> None:
        """Write an event, within the given transaction or in its own."""
        if connection is not None:
            write(connection, actor, action, target, **detail)
            return
        with self._database.write() as own:
            write(own, actor, action, target, **detail)

    def list(
        self,
        limit: int = 100,
        before: int | None = None,
        action: str | None = None,
        actor: str | None = None,
        target: str | None = None,
    ) -> "list[Event]":
        """Events, newest first, at most `limit`; only those with numbers below `before`."""
        query = select(events).order_by(events.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(events.c.id < before)
        if action is not None:
            query = query.where(events.c.action == action)
        if actor is not None:
            query = query.where(events.c.actor == actor)
        if target is not None:
            query = query.where(events.c.target == target)
        with self._database.read() as connection:
            return [_event(row) for row in connection.execute(query)]


def write(connection: Connection, actor: str | None, action: Action, target: str, **detail: object) -> None:
    """Write an event within a transaction. `detail` must be JSON values."""
    given = {key: value for key, value in detail.items() if value is not None}
    text = json.dumps(given, sort_keys=True)
    connection.execute(
        insert(events).values(at=now(), actor=actor, action=action, target=target, detail=text)
    )


def _event(row: Row[Any]) -> Event:
    return Event(row.id, utc(row.at), row.actor, row.action, row.target, json.loads(row.detail))
