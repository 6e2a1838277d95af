"""Rows of the hub's tables as values, and the namespace of its own cards."""

import json
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from kcard.hub.accounts import OWN
from kcard.hub.db.models import accounts, commits, repositories, settings, utc
from kcard.hub.values import Commit, Repository

__all__ = [
    "COMMIT_COLUMNS",
    "DEFAULT",
    "INSTEAD",
    "PRIVATE",
    "PUBLIC",
    "REPOSITORY_COLUMNS",
    "SETTING",
    "OwnNamespace",
    "bare_name",
    "commit",
    "find_namespace",
    "full_name",
    "repository",
]


# The hub's own namespace: the organisation for cards that `kcard publish` adds to this hub.
#
# Locally its cards have bare names, such as `rivers`; for clients of a served hub that is the repository
# library/rivers. The first card creates the namespace.

SETTING = "namespace"
DEFAULT, INSTEAD = OWN  # the second one in a hub where somebody had the first name before it was reserved


class OwnNamespace(NamedTuple):
    """The account that owns the hub's own cards."""

    id: int
    name: str


def find_namespace(connection: Connection) -> OwnNamespace | None:
    """Return the namespace; None if the hub never had a card of its own."""
    name = select(settings.c.value).where(settings.c.name == SETTING).scalar_subquery()
    row = connection.execute(
        select(accounts.c.id, accounts.c.name).where(accounts.c.folded == name)
    ).one_or_none()
    return None if row is None else OwnNamespace(*row)


def full_name(own: OwnNamespace | None, name: str) -> str:
    """Return the name of a card's repository: namespace/name."""
    return name if "/" in name or own is None else f"{own.name}/{name}"


def bare_name(own: OwnNamespace | None, repository: str) -> str:
    """Return the name of a repository's card: without the hub's own namespace."""
    return repository if own is None else repository.removeprefix(f"{own.name}/")


# Converts rows of repositories and commits to values.

PRIVATE, PUBLIC = "private", "public"
REPOSITORY_COLUMNS = tuple(c for c in repositories.c if c.name not in {"namespace_id", "folded"})
COMMIT_COLUMNS = tuple(c for c in commits.c if c.name in Commit.__dataclass_fields__)


def repository(row: Row[Any]) -> Repository:
    """Return a row of REPOSITORY_COLUMNS as a value."""
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
    """Return a row of COMMIT_COLUMNS as a value."""
    return Commit(row.sha, row.parent, row.title, row.message, row.author, utc(row.date))
