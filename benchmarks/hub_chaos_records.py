"""Whether the database of a hub is consistent after benchmarks/hub_chaos.py: jobs, usage, reservations, search."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, or_, select

__all__ = ["check_jobs", "check_search", "check_tags", "check_usage", "settled"]


def settled(home: Path, database: str | None, seconds: float) -> float:
    """Wait until no job is open and no reservation live, for so many seconds at most; how many it took."""
    from kcard.hub.records.repository_tables import jobs
    from kcard.hub.registry import Hub

    start = time.monotonic()
    hub = Hub(home, database_url=database)
    try:
        while True:
            with hub.database.read() as connection:
                open_jobs = select(func.count()).select_from(jobs).where(jobs.c.ended.is_(None))
                waiting = connection.scalar(open_jobs) or _reservations(connection)
            if not waiting or time.monotonic() - start > seconds:
                return time.monotonic() - start
            time.sleep(1)
    finally:
        hub.database.close()


def check_jobs(hub: Any, faults: list[str]) -> dict[str, int]:
    """Every version has one job, with one exam and one event where it is done; how many jobs are in each state."""
    from kcard.hub.records.account_tables import events
    from kcard.hub.records.repository_tables import audits, jobs, versions
    from kcard.hub.repositories.jobs import MOST_ATTEMPTS

    found = defaultdict(list)
    with hub.database.read() as connection:
        numbers = connection.scalars(select(versions.c.id)).all()
        for row in connection.execute(select(jobs)):
            found[row.version_id].append(row)
        taken = Counter(connection.scalars(select(audits.c.version_id).where(audits.c.kind == "exam")))
        told = connection.scalar(
            select(func.count()).select_from(events).where(events.c.action == "card.measured")
        )
    for number in numbers:
        if len(found[number]) != 1:
            faults.append(f"version {number} has {len(found[number])} jobs")
        done = sum(job.state == "done" for job in found[number])
        if taken[number] != done:
            faults.append(f"version {number} has {taken[number]} exams of {done} jobs done")
        for job in found[number]:
            if job.state == "failed" and job.attempts < MOST_ATTEMPTS:
                faults.append(f"job {job.id} failed after {job.attempts} attempts: {job.error}")
    if told != sum(taken.values()):
        faults.append(f"{told} events of {sum(taken.values())} exams")
    return dict(Counter(job.state for each in found.values() for job in each))


def check_tags(hub: Any, tags: Sequence[dict[str, str]], published: bool, faults: list[str]) -> None:
    """Every acknowledged tag names its commit, and where it published a version, the version is there."""
    from kcard.hub.records.repository_tables import publications, refs, repositories

    table = publications if published else refs
    name = table.c.tag if published else table.c.name
    query = select(repositories.c.name, name, table.c.sha).join_from(table, repositories)
    with hub.database.read() as connection:
        there = set(connection.execute(query if published else query.where(refs.c.kind == "tag")).tuples())
    what = "publication" if published else "tag"
    for row in tags:
        if (row["repository"], row["tag"], row["sha"]) not in there:
            faults.append(f"{what} {row} was acknowledged and is not there")


def check_usage(hub: Any, faults: list[str]) -> None:
    """The counters equal a recount, and no reservation is live."""
    from kcard.hub.accounts import quotas
    from kcard.hub.records.repository_tables import holdings, repositories
    from kcard.hub.repositories import usage

    trees = select(repositories.c.id, repositories.c.tree_bytes)
    owners = select(holdings.c.repository_id, holdings.c.sha256, holdings.c.namespace_id)

    def counters() -> list[Any]:
        rows = [dict(connection.execute(trees).tuples().all()), set(connection.execute(owners).tuples())]
        return [quotas.all_used(connection), *rows]

    with hub.database.write() as connection:
        before = counters()
        usage.recount(connection)
        after = counters()
        live = _reservations(connection)
    for what, old, new in zip(
        ("used bytes", "bytes of trees", "owners of blobs"), before, after, strict=True
    ):
        if old != new:
            faults.append(f"{what} are not those of a recount: {old} and {new}"[:500])
    if live:
        faults.append(f"{live} reservations are left")


def check_search(hub: Any, names: set[str], faults: list[str]) -> None:
    """The full-text search finds every repository by its name."""
    from kcard.hub.repositories.search import Search, SearchQuery

    search = Search(hub.database)
    for name in sorted(names):
        author, _, bare = name.partition("/")
        found = search.find(SearchQuery(text=bare, author=author))
        if name not in [repository.name for repository in found.repositories]:
            faults.append(f"the search does not find {name}")


def _reservations(connection: Any) -> int:
    from kcard.hub.records.upload_tables import reservations
    from kcard.hub.records.utc import now

    live = or_(reservations.c.expires.is_(None), reservations.c.expires > now())
    return int(connection.scalar(select(func.count()).select_from(reservations).where(live)))
