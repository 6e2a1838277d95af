"""Stored verdicts, so that no content is checked twice for the same form by the same rules."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from sqlalchemy import Connection, and_, delete, insert, select

from kcard.hub.checks.content import RULES, ContentVerdict
from kcard.hub.db.models import holdings, uploads, verdicts
from kcard.hub.db.session import Database

__all__ = ["Key", "Verdicts", "forget"]

# The sha256 of the content, and the form that was required.
Key: TypeAlias = tuple[str, str]
BATCH = 500


class Verdicts:
    """The verdicts of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Collection[Key]) -> dict[Key, ContentVerdict]:
        """Return the stored verdicts for these keys."""
        digests, results = sorted({sha256 for sha256, _ in keys}), dict[Key, ContentVerdict]()
        with self._database.read() as connection:
            for batch in _batches(digests):
                there = (verdicts.c.sha256.in_(batch), verdicts.c.rules == RULES)
                for row in connection.execute(select(verdicts).where(*there)):
                    results[row.sha256, row.form] = ContentVerdict(row.refusal, row.reason)
        return results

    def keep(self, new: Mapping[Key, ContentVerdict]) -> None:
        """Store verdicts, replacing earlier ones."""
        with self._database.write() as connection:
            for batch in _batches(sorted(new)):
                for sha256, form in batch:
                    here = and_(verdicts.c.sha256 == sha256, verdicts.c.form == form)
                    connection.execute(delete(verdicts).where(here))
                rows = [{"sha256": key[0], "form": key[1], "rules": RULES} | vars(new[key]) for key in batch]
                connection.execute(insert(verdicts), rows)


def forget(connection: Connection) -> None:
    """Delete the verdicts on content that no repository and no upload has."""
    named = select(holdings.c.sha256).union(select(uploads.c.sha256))
    connection.execute(delete(verdicts).where(verdicts.c.sha256.not_in(named)))


def _batches(items: list[str] | list[Key]) -> Iterable[list]:  # type: ignore[type-arg]
    return (items[at : at + BATCH] for at in range(0, len(items), BATCH))
