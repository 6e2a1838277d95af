"""Fill the database of a served hub with synthetic cards, to measure how it scales.

A card is a repository with a README.md, a model of four files, one commit, one tag and a published version. Names, tags
and words are synthetic, with realistic frequencies proportional to 1/rank: one card in eight has the most common topic,
and most topics have a few cards. Rows are inserted in bulk. Of the files, only adapter_config.json exists, one for each
base model; of the others, the database has what a commit lists.
"""

import hashlib
import io
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, islice
from typing import Any

from sqlalchemy import Connection, Table, insert, text

from kcard.batching import batched
from kcard.hub import search_index, trees
from kcard.hub.checks import metadata
from kcard.hub.db.columns import Row
from kcard.hub.db.session import Database
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry
from kcard.manifest import MANIFEST, Base, Manifest

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
NAMESPACES, TOPICS, RARE = 500, 2000, 20_000
SYLLABLES = (
    "an",
    "ba",
    "co",
    "di",
    "el",
    "fo",
    "gra",
    "hi",
    "ka",
    "lo",
    "mu",
    "ne",
    "pi",
    "ro",
    "sta",
    "ver",
    "xe",
)
OWNERS = [f"lab{n}" for n in range(1, NAMESPACES + 1)]
BASES = [
    f"lab{n // 4}/base-{size}"
    for n, size in enumerate(("135m", "350m", "500m", "1b", "2b", "3b", "7b", "8b"))
]
LICENCES = ["apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "llama3", "gemma"]
LANGUAGES = ["en", "de", "fr", "es", "zh", "ja", "hi", "pt"]
KINDS = ["both", "model", "retrieval"]
TASKS = ["text-generation", "question-answering", "feature-extraction"]
AT_ONCE = 2000
NUMBERED = tuple(
    Row.metadata.tables[name] for name in ("accounts", "repositories", "commits", "versions", "publications")
)
TABLES = (*NUMBERED, *(Row.metadata.tables[name] for name in ("refs", "holdings", "terms")))


@dataclass(frozen=True)
class Seeded:
    """What was put in: the names of some public cards, and words and tags by how many cards have them."""

    names: Sequence[str]
    common: Sequence[str]
    rare: Sequence[str]
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class _Card:
    number: int
    name: str
    topic: str
    manifest: str
    sha256: str
    card: dict[str, Any]
    tags: tuple[str, ...]
    tree: bytes
    entries: Sequence[Entry]
    at: datetime
    downloads: int


def seed(database: Database, blobs: Blobs, count: int, *, draw: random.Random | None = None) -> Seeded:
    """Put so many cards into an empty hub."""
    draw = draw or random.Random(0)
    topics, rare = _words(draw, TOPICS, 3), _words(draw, RARE, 4)
    names: list[str] = []
    configs = {base: _config(blobs, base) for base in BASES}
    # Rows go in fastest in the order of their key, with the indexes made afterwards.
    indexes = [index for table in TABLES for index in table.indexes]
    with database.write() as session:
        connection = session.connection()
        for index in indexes:
            index.drop(connection)
        _put(connection, "accounts", (_account(number) for number in range(1, NAMESPACES + 1)))
    versions: list[tuple[str, str, int]] = []
    for first in range(1, count + 1, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count + 1))
        some = [_card(draw, number, topics, rare, configs) for number in numbers]
        names.extend(card.name for card in some if not _is_private(card))
        versions.extend(
            (kind, term, card.number)
            for card in some
            for kind, term in {*search_index.exact_terms(card.tags, card.name.partition("/")[0])}
        )
        with database.write() as session:
            connection = session.connection()
            for table, rows in _rows(some):
                _put(connection, table, rows)
    versions.sort()
    with database.write() as session:
        connection = session.connection()
        _put(connection, "terms", ({"kind": k, "term": t, "repository_id": r} for k, t, r in versions))
        for index in indexes:
            index.create(connection)
        if connection.dialect.name == "postgresql":
            _count_on(connection)
        for some_ids in batched(range(1, count + 1), 1000):
            search_index.update_rows(session, *some_ids)
        connection.execute(text("ANALYZE"))
    pairs = [
        (f"license:{a}", b)
        for a in LICENCES[:4]
        for b in (*LANGUAGES[:3], TASKS[0], f"kcard:kind:{KINDS[0]}")
    ]
    pairs += [(f"domain:{topics[n]}", f"base_model:{BASES[n % 4]}") for n in range(20)]
    sample = draw.sample(names, min(len(names), 1000))
    return Seeded(sample, topics[:10], [name.rpartition("-")[2] for name in sample[:200]], pairs)


def _count_on(connection: Connection) -> None:
    """Let PostgreSQL give the next rows the numbers after those that were put in."""
    for table in NUMBERED:
        last = f"(SELECT coalesce(max(id), 1) FROM {table.name})"
        connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {last})"))


def _words(draw: random.Random, count: int, syllables: int) -> list[str]:
    distinct: dict[str, None] = {}
    while len(distinct) < count:
        distinct["".join(draw.choices(SYLLABLES, k=syllables))] = None
    return list(distinct)


def _account(number: int) -> dict[str, Any]:
    empty = {"fullname": "", "email": "", "admin": False, "disabled": False, "quota": None, "created": BEGAN}
    return {"id": number, "name": f"lab{number}", "folded": f"lab{number}", "kind": "user", **empty}


def _often(draw: random.Random, values: Sequence[str]) -> str:
    """One of the values, the earlier the likelier: as 1/rank."""
    return draw.choices(values, cum_weights=_weights(len(values)))[0]


@cache
def _weights(count: int) -> Sequence[float]:
    return [*accumulate(1 / rank for rank in range(1, count + 1))]


def _card(
    draw: random.Random,
    number: int,
    topics: Sequence[str],
    rare: Sequence[str],
    configs: Mapping[str, Entry],
) -> _Card:
    topic, base, kind = _often(draw, topics), _often(draw, BASES), _often(draw, KINDS)
    owner = _often(draw, OWNERS)
    own = f"{topic}-{base.rpartition('-')[2]}-{draw.choice(rare)}{number}"
    at = BEGAN + timedelta(seconds=600 * number)
    entries = [configs[base], *(_entry(draw, path, size) for path, size in _listing(draw))]
    digests = {entry.path: entry.sha256 for entry in entries}
    manifest = Manifest(
        name=own,
        description=f"What is known of {topic}",
        domain=topic,
        kind=kind,
        method="lora",
        base=Base(base),
        files=digests,
    )
    text_ = manifest.to_json()
    sha256 = hashlib.sha256(text_.encode()).hexdigest()
    entries.append(Entry(MANIFEST, sha256[:40], sha256, len(text_), lfs=False))
    card = {
        "license": _often(draw, LICENCES),
        "language": _often(draw, LANGUAGES),
        "base_model": base,
        "library_name": "peft",
        "pipeline_tag": _often(draw, TASKS),
        "tags": ["kcard", topic, _often(draw, topics)],
    }
    tags = metadata.derive_tags(card, [entry.path for entry in entries], manifest)
    tree = trees.encode_full({entry.path: entry for entry in entries}).content
    downloads = int(draw.paretovariate(0.7))
    return _Card(
        number, f"{owner}/{own}", topic, text_, sha256, card, tags, tree, entries, at, min(downloads, 10**9)
    )


def _is_private(card: _Card) -> bool:
    return card.number % 50 == 0


def _listing(draw: random.Random) -> list[tuple[str, int]]:
    weights = draw.randrange(10**6, 10**9)
    return [
        (".gitattributes", 50),
        ("README.md", draw.randrange(500, 9000)),
        ("adapter_model.safetensors", weights),
        ("exam.json", 20_000),
    ]


def _config(blobs: Blobs, base: str) -> Entry:
    content = json.dumps(
        {"base_model_name_or_path": base, "peft_type": "LORA", "task_type": "CAUSAL_LM"}
    ).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    blobs.put_stream(io.BytesIO(content), sha256, "adapter_config.json")
    return Entry("adapter_config.json", sha256[:40], sha256, len(content), lfs=False)


def _entry(draw: random.Random, path: str, size: int) -> Entry:
    sha256 = draw.randbytes(32).hex()
    return Entry(path, sha256[:40], sha256, size, lfs=path.endswith(".safetensors"))


def _rows(some: Sequence[_Card]) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """The rows of cards, table by table. A card has the same number as repository, commit and version."""
    sha = {card.number: hashlib.sha1(card.name.encode(), usedforsecurity=False).hexdigest() for card in some}
    yield "repositories", (_repository(card, sha[card.number]) for card in some)
    yield "commits", (_commit(card, sha[card.number]) for card in some)
    pointing = (("branch", "main"), ("tag", "v1"))
    yield (
        "refs",
        (
            {"repository_id": card.number, "kind": kind, "name": name, "sha": sha[card.number], "message": ""}
            for card in some
            for kind, name in pointing
        ),
    )
    yield (
        "holdings",
        (
            {"repository_id": card.number, "sha256": entry.sha256, "size": entry.size}
            for card in some
            for entry in card.entries
        ),
    )
    yield "versions", (_version(card, sha[card.number]) for card in some)
    yield "publications", (_publication(card, sha[card.number]) for card in some)


def _repository(card: _Card, sha: str) -> dict[str, Any]:
    return {
        "id": card.number,
        "type": "model",
        "namespace_id": int(card.name.partition("/")[0].removeprefix("lab")),
        "name": card.name,
        "folded": card.name.lower(),
        "visibility": "private" if _is_private(card) else "public",
        "gated": "no",
        "created": card.at,
        "modified": card.at + timedelta(seconds=card.number * 7919 % 10**6),
        "downloads": card.downloads,
        "likes": card.downloads % 1000,
        "head": sha,
        "card": card.card,
        "tags": card.tags,
        "pipeline_tag": card.card["pipeline_tag"],
        "library": card.card["library_name"],
        "size": sum(entry.size for entry in card.entries),
        "newest": 1,
    }


def _commit(card: _Card, sha: str) -> dict[str, Any]:
    message = {"title": "Upload", "message": "", "author": card.name.partition("/")[0], "date": card.at}
    key = {"id": card.number, "repository_id": card.number, "sha": sha, "parent": None}
    return {**key, **message, "tree": card.tree, "delta": False}


def _version(card: _Card, sha: str) -> dict[str, Any]:
    return {
        "id": card.number,
        "repository_id": card.number,
        "number": 1,
        "sha256": card.sha256,
        "sha": sha,
        "manifest": card.manifest,
        "description": f"What is known of {card.topic}",
        "domain": card.topic,
        "base": card.card["base_model"],
        "size": sum(entry.size for entry in card.entries),
        "published": card.at,
        "weights": False,
        "examined": False,
        "factuality": (card.number * 37 % 100) / 100,
        "fault": "",
    }


def _publication(card: _Card, sha: str) -> dict[str, Any]:
    return {
        "id": card.number,
        "repository_id": card.number,
        "tag": "v1",
        "sha": sha,
        "version_id": card.number,
        "author": card.name.partition("/")[0],
        "at": card.at,
    }


def _put(connection: Connection, name: str, rows: Iterable[dict[str, Any]]) -> None:
    source, table = iter(rows), Row.metadata.tables[name]
    while some := [*islice(source, 50_000)]:
        if connection.dialect.name == "postgresql":
            _copy(connection, table, some)
        else:
            connection.execute(insert(table), some)


def _copy(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    columns = [*rows[0]]
    cursor: Any = connection.connection.cursor()
    with cursor, cursor.copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            values = (row[column] for column in columns)
            copy.write_row([json.dumps(v) if isinstance(v, dict | tuple) else v for v in values])
