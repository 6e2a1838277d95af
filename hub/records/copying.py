"""Copies all rows of a hub from one database to another, of any kind."""

from sqlalchemy import Connection, Integer, Table, delete, func, insert, select, text, update

from kcard.hub.records.account_tables import accounts, events, sessions
from kcard.hub.records.repository_tables import published_tags, repositories, uploads, versions
from kcard.hub.records.run_tables import runs
from kcard.hub.records.search_tables import search, search_clock
from kcard.hub.records.tables import metadata, pools, settings
from kcard.hub.records.upload_tables import reservations, verdicts

__all__ = ["copy_rows", "filled", "numbers"]

CHUNK = 200  # rows; one may have a tree of thousands of files
# Sessions of browsers; uploads in progress, whose bytes are in no backup; verdicts, which a hub trusts only
# if it made them itself; and the clock, which only goes forward.
LEFT_OUT = {sessions, uploads, reservations, verdicts, search_clock}


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy every table to a database that `filled` has nothing of.

    Its settings, events and what remains of cards that were removed are replaced.
    """
    for table in (settings, events, accounts, published_tags):
        target.execute(delete(table))
    for table in metadata.sorted_tables:
        if table not in LEFT_OUT:
            _copy(table, source, target)
    target.execute(update(search_clock).values(changed=search_clock.c.changed + 1))
    target.execute(update(search).values(changed=select(search_clock.c.changed).scalar_subquery()))


def _copy(table: Table, source: Connection, target: Connection) -> None:
    found = source.execute(select(table).execution_options(yield_per=CHUNK)).mappings()
    for rows in found.partitions():
        target.execute(insert(table), [dict(row) for row in rows])
    if target.dialect.name == "postgresql" and "id" in table.c:
        _advance_ids(table, target)


def _advance_ids(table: Table, target: Connection) -> None:
    """Make new rows get ids after the copied ones."""
    assert isinstance(table.c.id.type, Integer)
    highest = func.coalesce(func.max(table.c.id), 0) + 1
    sequence = func.pg_get_serial_sequence(table.name, "id")
    target.execute(select(func.setval(sequence, select(highest).scalar_subquery(), text("false"))))


def numbers(connection: Connection) -> dict[str, int]:
    """The numbers of cards with their versions, and of repositories."""
    counts = {
        "cards": select(func.count(versions.c.repository_id.distinct())),
        "versions": select(func.count()).select_from(versions),
        "repositories": select(func.count()).select_from(repositories),
    }
    return {name: connection.scalar(count) or 0 for name, count in counts.items()}


def filled(connection: Connection) -> dict[str, int]:
    """The numbers of cards, pools, users, unpublished repositories and runs, without zeros."""
    published = select(versions.c.repository_id)
    counts = {
        "cards": select(func.count(versions.c.repository_id.distinct())),
        "pools": select(func.count()).select_from(pools),
        "users": select(func.count()).where(accounts.c.kind == "user"),
        "repositories": select(func.count()).where(repositories.c.id.not_in(published)),
        "runs": select(func.count()).select_from(runs),
    }
    counted = {name: connection.scalar(count) or 0 for name, count in counts.items()}
    return {name: count for name, count in counted.items() if count}
