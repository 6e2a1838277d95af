"""Adds measurements of versions to the queue."""

import secrets
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from kcard.hub.records.repository_tables import jobs
from kcard.hub.records.tables import settings
from kcard.hub.records.utc import now
from kcard.manifest import Manifest

__all__ = ["WAITING", "enqueue", "is_on", "measurable", "new_seed", "switch"]

WAITING = "waiting"
SETTING = "measure"  # whether a published version is measured
# Kinds whose model is not among the card's files.
ELSEWHERE = ("reference", "llm", "search")
SEEDS = 2**31


def measurable(manifest: Manifest) -> bool:
    """Whether a worker can measure the card without reaching other services or downloading a model."""
    return manifest.kind not in ELSEWHERE and not manifest.asks_elsewhere


def new_seed() -> int:
    """A seed that publishers can't predict, so that they can't train on the questions."""
    return secrets.randbelow(SEEDS)


def is_on(connection: Connection) -> bool:
    """Whether versions are measured when they are published."""
    return connection.scalar(select(settings.c.value).where(settings.c.name == SETTING)) is not None


def switch(connection: Connection, on: bool) -> None:
    """Set whether versions are measured when they are published."""
    connection.execute(delete(settings).where(settings.c.name == SETTING))
    if on:
        connection.execute(insert(settings).values(name=SETTING, value="on"))


def enqueue(connection: Connection, version_id: int, *, due: datetime | None = None) -> int:
    """Add a measurement of a version with a new seed, due now unless said otherwise; returns its number."""
    at = now()
    values = {
        "version_id": version_id,
        "seed": new_seed(),
        "state": WAITING,
        "attempts": 0,
        "created": at,
        "due": due or at,
    }
    return int(connection.execute(insert(jobs).values(values).returning(jobs.c.id)).scalar_one())
