"""What a search looks in: rows of words and facets.

Each process has its own. The search clock tells what changed since it was read: only those rows are read again.
"""

import json
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, Select, delete, func, insert, select, text, update

from kcard.hub import figures
from kcard.hub.db.models import repositories, search, search_clock, terms, utc, versions
from kcard.hub.rows import PUBLIC

__all__ = [
    "AUTHOR",
    "FACETS",
    "LONGEST",
    "TAG",
    "WORD",
    "Array",
    "Facets",
    "SearchIndex",
    "Snapshot",
    "bases",
    "domain",
    "facets",
    "kind",
    "matches",
    "of",
    "put_rows",
    "put_terms",
    "query_words",
    "removed",
    "row_words",
    "scores",
    "touch",
]


# Search terms of a repository: its author, its tags, and the words of its name and tags.
#
# A word is a run of letters and digits, in lower case: gpt2-large has the words gpt2 and large.

AUTHOR, TAG, WORD = "author", "tag", "word"
LONGEST = 200
WORDS = re.compile(r"[^\W_]+")


def query_words(*texts: str) -> set[str]:
    """The words of texts, in lower case."""
    return {word[:LONGEST] for text in texts for word in WORDS.findall(text.lower())}


def of(name: str, tags: Iterable[str]) -> set[tuple[str, str]]:
    """Kind and text of all terms of a repository with this name and these tags."""
    kept = [tag.lower()[:LONGEST] for tag in tags]
    author = name.partition("/")[0].lower()
    return {
        (AUTHOR, author),
        *((TAG, tag) for tag in kept),
        *((WORD, word) for word in query_words(name, *kept)),
    }


def put_terms(connection: Connection, repository_id: int, name: str, tags: Iterable[str]) -> None:
    """Replace the terms of a repository."""
    connection.execute(delete(terms).where(terms.c.repository_id == repository_id))
    rows = [
        {"kind": kind, "term": term, "repository_id": repository_id} for kind, term in sorted(of(name, tags))
    ]
    connection.execute(insert(terms), rows)


# What repositories are filtered by: values from their tags and the metadata of their README.md.

# Tags of a card. The longest domain is the card's own, the others contain it.
KIND, DOMAIN, BASE, LICENCE = "kcard:kind:", "domain:", "base_model:", "license:"


@dataclass(frozen=True)
class Facets:
    """The values of a repository; "" if it has none. Of several base models or languages, the first."""

    domain: str
    base: str
    kind: str
    language: str
    licence: str


def facets(tags: Sequence[str], library: str | None, card: Mapping[str, Any]) -> Facets:
    """The facets of a repository with these tags, this library and this metadata of README.md."""
    return Facets(
        domain=domain(tags),
        base=next(iter(bases(tags)), ""),
        kind=kind(tags, library),
        language=_language(card.get("language")),
        licence=next(iter(_after(LICENCE, tags)), ""),
    )


def kind(tags: Sequence[str], library: str | None) -> str:
    """The kind of a knowledge card, otherwise the library."""
    return next(iter(_after(KIND, tags)), "") or library or ""


def domain(tags: Sequence[str]) -> str:
    """The domain of a knowledge card."""
    return max(_after(DOMAIN, tags), key=len, default="")


def bases(tags: Sequence[str]) -> list[str]:
    """The base models."""
    return [name for name in _after(BASE, tags) if ":" not in name]


def _language(value: object) -> str:
    first = next(iter(value), "") if isinstance(value, list) else value
    if first is False:  # YAML reads the language code `no` as a boolean
        return "no"
    return first if isinstance(first, str) and len(first) <= 100 else ""


def _after(prefix: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]


# Full-text search: FTS5 in SQLite, a tsvector in PostgreSQL. Each word must be the prefix of a word of the text.

# Thousands of ids are read fastest as one text.
MATCHES = {
    "sqlite": "SELECT group_concat(rowid) FROM search_text WHERE search_text MATCH :words",
    "postgresql": (
        "SELECT string_agg(repository_id::text, ',') FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}
# Both weigh words of the name most, then those of the domain, the description and the tags.
SCORES = {
    "sqlite": (
        "SELECT rowid, -bm25(search_text, 10.0, 5.0, 2.0, 1.0) FROM search_text "
        "WHERE search_text MATCH :words"
    ),
    "postgresql": (
        "SELECT repository_id, ts_rank('{0.1, 0.2, 0.5, 1.0}', vector, to_tsquery('simple', :words)) "
        "FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}


def matches(connection: Connection, words: Sequence[str]) -> NDArray[np.int64]:
    """The ids of the repositories that have all words, as normalised by search_rows.words."""
    database = connection.dialect.name
    found: str | None = connection.scalar(text(MATCHES[database]), {"words": _query(database, words)})
    return np.fromstring(found, dtype=np.int64, sep=",") if found else np.empty(0, np.int64)


def scores(connection: Connection, words: Sequence[str]) -> dict[int, float]:
    """The same with how well each fits; more is better."""
    database = connection.dialect.name
    found = connection.execute(text(SCORES[database]), {"words": _query(database, words)})
    return {id_: float(score) for id_, score in found.tuples()}


def _query(database: str, words: Sequence[str]) -> str:
    """The words in the database's query language, which letters and digits can't break out of."""
    if database == "postgresql":
        return " & ".join(f"{word}:*" for word in words)
    return " ".join(f'"{word}"*' for word in words)


# Writes what repositories are searched by, in the transactions that change it.

AT_ONCE = 1000
LONGEST_TEXT = 20_000  # characters
# Parts of the tags that all cards have.
COMMON = frozenset({"kcard", "kind", "domain", "base", "model", "license", "knowledge", "card", "dataset"})


def row_words(text: str) -> list[str]:
    """The words of a text in order: runs of letters and digits, in lower case and without accents."""
    plain = text[:LONGEST_TEXT].casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return [word[:LONGEST] for word in WORDS.findall(plain)]


def put_rows(connection: Connection, *repository_ids: int) -> None:
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
        figures.audited().label("audited"),
    ).select_from(repositories.outerjoin(versions, of_newest))


def _values(row: Row[Any]) -> dict[str, Any]:
    tags = json.loads(row.tags)
    card = json.loads(row.card)
    found = facets(tags, row.library, card if isinstance(card, dict) else {})
    domains = row_words(found.domain)
    others = [word for tag in tags if not tag.startswith("dataset:corpus-") for word in row_words(tag)]
    known = COMMON.union(domains)
    return {
        "repository_id": row.id,
        "name_words": " ".join(row_words(row.name)),
        "domain_words": " ".join(domains),
        "description_words": " ".join(row_words(row.description or "")),
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


Array: TypeAlias = NDArray[Any]
FACETS = ("domain", "base", "kind", "language", "licence")
TYPES = ("model", "dataset")
COLUMNS = (
    repositories.c.id,
    repositories.c.type,
    repositories.c.visibility,
    repositories.c.namespace_id,
    repositories.c.modified,
    repositories.c.downloads,
    search.c.verified,
    search.c.factuality,
    *(search.c[name] for name in FACETS),
)
KINDS = (np.int64, np.int8, np.bool_, np.int32, np.float64, np.int64, np.bool_, np.float64, *[np.int32] * 5)


@dataclass(frozen=True)
class Snapshot:
    """One entry a repository in each array, by ascending id.

    changed, removed  the search clock when it was read
    factuality        NaN: not measured
    codes             of each facet: the place of its value in `values`
    """

    changed: int
    removed: int
    columns: tuple[Array, ...]
    values: Mapping[str, Sequence[str]]

    @property
    def ids(self) -> Array:
        return self.columns[0]

    @property
    def public(self) -> Array:
        return self.columns[2]

    @property
    def namespaces(self) -> Array:
        return self.columns[3]

    @property
    def verified(self) -> Array:
        return self.columns[6]

    @property
    def factuality(self) -> Array:
        return self.columns[7]

    def of_type(self, type_: str) -> Array:
        """Whether each repository is of the type."""
        found: Array = self.columns[1] == TYPES.index(type_)
        return found

    def codes(self, facet: str) -> Array:
        return self.columns[8 + FACETS.index(facet)]

    def having(self, ids: Sequence[int] | Array) -> Array:
        """Whether each repository is one of these."""
        found: Array = np.zeros(len(self.ids), dtype=np.bool_)
        wanted = np.asarray(ids, dtype=np.int64)
        places = np.searchsorted(self.ids, wanted)
        inside = places < len(self.ids)
        places, wanted = places[inside], wanted[inside]
        found[places[self.ids[places] == wanted]] = True
        return found

    @cached_property
    def by_date(self) -> Array:
        """The places of all repositories, the last changed first."""
        return self._ordered(self.columns[4])

    @cached_property
    def by_downloads(self) -> Array:
        return self._ordered(self.columns[5])

    @cached_property
    def by_factuality(self) -> Array:
        """Verified ones come first, unmeasured ones last."""
        return self._ordered(np.nan_to_num(self.factuality, nan=-1.0) + 2 * self.verified)

    def _ordered(self, key: Array) -> Array:
        order: Array = np.lexsort((-self.ids, -key))
        return order


class SearchIndex:
    """The current snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, dict[str, int]] = {facet: {} for facet in FACETS}
        self._snapshot = Snapshot(-1, -1, _arrays([]), {})

    def at(self, connection: Connection) -> Snapshot:
        """The snapshot with all changes that the connection sees, and perhaps later ones."""
        clock = connection.execute(select(search_clock.c.changed, search_clock.c.removed)).tuples().one()
        found = self._snapshot
        if not _is_behind(found, *clock):
            return found
        with self._lock:
            found = self._snapshot
            if _is_behind(found, *clock):
                self._snapshot = found = self._read(connection, found, *clock)
            return found

    def _read(self, connection: Connection, last: Snapshot, changed: int, removed: int) -> Snapshot:
        query = select(*COLUMNS).join_from(repositories, search).where(search.c.changed > last.changed)
        fresh = _arrays([self._coded(row) for row in connection.execute(query)])
        keep = ~np.isin(last.ids, fresh[0])
        if removed != last.removed and len(last.ids):
            keep &= np.isin(last.ids, np.asarray(connection.scalars(select(search.c.repository_id)).all()))
        columns = [np.concatenate([old[keep], new]) for old, new in zip(last.columns, fresh, strict=True)]
        order = np.argsort(columns[0])
        values = {facet: tuple(codes) for facet, codes in self._codes.items()}
        return Snapshot(changed, removed, tuple(column[order] for column in columns), values)

    def _coded(self, row: Any) -> tuple[Any, ...]:
        id_, type_, visibility, namespace, modified, downloads, verified, factuality, *facets = row
        coded = [
            self._codes[facet].setdefault(value, len(self._codes[facet]))
            for facet, value in zip(FACETS, facets, strict=True)
        ]
        measured = np.nan if factuality is None else factuality
        at = utc(modified).timestamp()
        return (
            id_,
            TYPES.index(type_),
            visibility == PUBLIC,
            namespace,
            at,
            downloads,
            verified,
            measured,
            *coded,
        )


def _is_behind(snapshot: Snapshot, changed: int, removed: int) -> bool:
    # A reader that began earlier may see an older clock than the snapshot's.
    return snapshot.changed < changed or snapshot.removed < removed


def _arrays(rows: Sequence[tuple[Any, ...]]) -> tuple[Array, ...]:
    """An array for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(KINDS)
    return tuple(np.asarray(column, kind) for column, kind in zip(columns, KINDS, strict=True))
