"""Every point between two durable effects, by name, so that a test can kill the process at each of them.

Code that changes the disk or the database calls `reach` there. In normal use that is one comparison; a test
process sets `reached` which is called with the name of every point that is passed.
"""

from collections.abc import Callable

__all__ = ["POINTS", "reach", "reached"]

POINTS = (
    # a card folder is sealed; a trained card takes the place of the one before
    "seal.written",
    "seal.placed",
    "output.written",
    "output.aside",
    "output.placed",
    # a scratch folder is there
    "partial.made",
    # a file goes into the store
    "blob.copied",
    "blob.read-only",
    "blob.placed",
    # a version is published; rows are written in one transaction
    "publish.stored",
    "transaction.begun",
    "transaction.written",
    "transaction.committed",
    "rows.card",
    "rows.version",
    "rows.commit",
    "rows.publication",
    "rows.alias",
    "rows.removed",
    "rows.pool",
    "rows.member",
    "rows.audit",
    "rows.results",
    "rows.setting",
    "rows.table",
    # the database is made or migrated
    "migrate.logged",
    # a version becomes a folder, in the hub or outside it
    "snapshot.linked",
    "snapshot.aside",
    "snapshot.placed",
    "pull.copied",
    "pull.cleared",
    "pull.placed",
    # what no version needs is deleted
    "collect.file",
    "collect.snapshot",
    "collect.remains",
    # the hub goes into one file and comes back from it
    "backup.database",
    "backup.linked",
    "backup.member",
    "backup.written",
    "backup.placed",
    "restore.database",
    "restore.stored",
)

reached: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Say that everything before `point` is done and nothing after it is."""
    if reached is not None:
        reached(point)
