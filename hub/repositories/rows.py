"""Converts rows of repositories and commits to values."""

import json
from typing import Any

from sqlalchemy import Row

from kcard.hub.records.repository_tables import commits, repositories
from kcard.hub.records.utc import utc
from kcard.hub.repositories.values import Commit, Repository

__all__ = ["COMMIT_COLUMNS", "PRIVATE", "PUBLIC", "REPOSITORY_COLUMNS", "commit", "repository"]

PRIVATE, PUBLIC = "private", "public"
REPOSITORY_COLUMNS = tuple(c for c in repositories.c if c.name not in {"namespace_id", "folded"})
COMMIT_COLUMNS = tuple(c for c in commits.c if c.name in Commit.__dataclass_fields__)


def repository(row: Row[Any]) -> Repository:
    """A row of REPOSITORY_COLUMNS as a value."""
    return Repository(
        id=row.id,
        type=row.type,
        name=row.name,
        private=row.visibility == PRIVATE,
        gated=row.gated,
        created=utc(row.created),
        modified=utc(row.modified),
        downloads=row.downloads,
        likes=row.likes,
        head=row.head,
        card=json.loads(row.card),
        tags=tuple(json.loads(row.tags)),
        pipeline_tag=row.pipeline_tag,
        library=row.library,
        size=row.size,
    )


def commit(row: Row[Any]) -> Commit:
    """A row of COMMIT_COLUMNS as a value."""
    return Commit(row.sha, row.parent, row.title, row.message, row.author, utc(row.date))
