"""Writes what repositories are searched by, in the transactions that change it."""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from kcard.hub.records.repository_tables import repositories, versions
from kcard.hub.records.search_tables import search, search_clock
from kcard.hub.repositories import figure_rows
from kcard.hub.repositories.facets import facets
from kcard.hub.repositories.terms import LONGEST, WORDS

__all__ = ["put", "removed", "touch", "words"]

AT_ONCE = 1000
LONGEST_TEXT = 20_000  # characters
# Parts of the tags that all cards have.
COMMON = frozenset({"kcard", "kind", "domain", "base", "model", "license", "knowledge", "card", "dataset"})


def words(text: str) -> list[str]:
    """The words of a text in order: runs of letters and digits, in lower case and without accents."""
    plain = text[:LONGEST_TEXT].casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return [word[:LONGEST] for word in WORDS.findall(plain)]


def put(connection: Connection, *repository_ids: int) -> None:
    """Replace the rows of repositories by what other tables have now."""
    at = _tick(connection, "changed")
    connection.execute(delete(search).where(search.c.repository_id.in_(repository_ids)))
    rows = connection.execute(_described().where(repositories.c.id.in_(repository_ids)))
    if values := [_values(row) | {"changed": at} for row in rows]:
        connection.execute(insert(search), values)


def touch(connection: Connection, repository_ids: Sequence[int]) -> None:
    """Let readers notice that the downloads of repositories changed."""
    at = _tick(connection, "changed")
    for ids in _batches(repository_ids):
        connection.execute(update(search).where(search.c.repository_id.in_(ids)).values(changed=at))


def removed(connection: Connection) -> None:
    """Let readers notice that repositories were deleted."""
    _tick(connection, "removed")


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))


def _tick(connection: Connection, what: str) -> int:
    column = search_clock.c[what]
    connection.execute(update(search_clock).values({column: column + 1}))
    return int(connection.execute(select(column)).scalar_one())


def _described() -> Select[Any]:
    """Repositories with their newest version and its latest audit."""
    other = versions.alias()
    newest = select(func.max(other.c.number)).where(other.c.repository_id == repositories.c.id)
    of_newest = (versions.c.repository_id == repositories.c.id) & (
        versions.c.number == newest.scalar_subquery()
    )
    return select(
        repositories.c.id,
        repositories.c.name,
        repositories.c.card,
        repositories.c.tags,
        repositories.c.library,
        versions.c.description,
        versions.c.manifest,
        versions.c.factuality,
        figure_rows.audited().label("audited"),
    ).select_from(repositories.outerjoin(versions, of_newest))


def _values(row: Row[Any]) -> dict[str, Any]:
    tags = json.loads(row.tags)
    card = json.loads(row.card)
    found = facets(tags, row.library, card if isinstance(card, dict) else {})
    domains = words(found.domain)
    others = [word for tag in tags if not tag.startswith("dataset:corpus-") for word in words(tag)]
    known = COMMON.union(domains)
    return {
        "repository_id": row.id,
        "name_words": " ".join(words(row.name)),
        "domain_words": " ".join(domains),
        "description_words": " ".join(words(row.description or "")),
        "tag_words": " ".join(dict.fromkeys(word for word in others if word not in known)),
        **asdict(found),
        "updates": _updates(row.manifest),
        "verified": row.audited is not None,
        "factuality": row.factuality if row.audited is None else row.audited,
    }


def _updates(manifest: str | None) -> str | None:
    """The version that a card was trained on from."""
    found = json.loads(manifest).get("updates") if manifest else None
    return found if isinstance(found, str) and len(found) <= 64 else None
