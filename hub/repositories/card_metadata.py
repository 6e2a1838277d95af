"""The metadata of a repository: from the README.md of its branch main, with derived tags."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, update

from kcard.errors import CardError
from kcard.hub.checks import metadata
from kcard.hub.checks.front_matter import MOST_NODES
from kcard.hub.records.repository_tables import repositories
from kcard.hub.repositories import search_rows, terms, trees
from kcard.hub.repositories.values import Entry
from kcard.hub.store.blobs import Blobs
from kcard.manifest import MANIFEST, Manifest

__all__ = ["README", "CardMetadata", "describe", "manifest", "read", "text", "write"]

README = "README.md"
# Bytes that are read of a README.md or a manifest.
LONGEST = 4_000_000


@dataclass(frozen=True)
class CardMetadata:
    """What a repository shows and is found by."""

    card: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    library: str | None = None
    size: int = 0


def read(tree: Mapping[str, Entry], blobs: Blobs, before: Mapping[str, Entry] | None = None) -> CardMetadata:
    """The metadata of a tree. Raises Invalid for an unreadable README.md. Reads blobs: not for transactions.

    With the tree of its parent, `before`, raises TooLarge if README.md or the manifest is new and exceeds the limits;
    older ones are read whatever their size.
    """
    readme = text(blobs, tree[README]) if README in tree else ""
    found = manifest(tree, blobs)
    if found is not None and before is not None and tree[MANIFEST] != before.get(MANIFEST):
        metadata.check_manifest(found)
    limited = before is not None and tree.get(README) != before.get(README)
    return describe(tree, readme, found, MOST_NODES if limited else None)


def describe(
    tree: Mapping[str, Entry], readme: str, manifest: Manifest | None, most: int | None = None
) -> CardMetadata:
    """The metadata of a tree with this README.md and manifest. Raises Invalid for an unreadable README.md.

    `most`: keys and values of its metadata; None: any number.
    """
    card = metadata.read(readme, most)[0]
    tags = metadata.tags(card, tree, manifest)
    return CardMetadata(
        card, tags, metadata.pipeline_tag(card), metadata.library(card, tree), trees.size(tree)
    )


def manifest(tree: Mapping[str, Entry], blobs: Blobs) -> Manifest | None:
    """The manifest of a tree; None if missing or invalid."""
    if MANIFEST not in tree:
        return None
    try:
        return Manifest.from_json(text(blobs, tree[MANIFEST]))
    except CardError:
        return None  # drafts may be invalid; publishing reports the error


def text(blobs: Blobs, entry: Entry) -> str:
    """A file as text; invalid UTF-8 is replaced."""
    with blobs.open(entry.sha256) as stream:
        content: bytes = stream.read(LONGEST)
    return content.decode(errors="replace")


def write(
    connection: Connection, repository_id: int, name: str, found: CardMetadata, *, sha: str, at: datetime
) -> None:
    """Set the metadata of a repository, as of that commit of main."""
    values = {
        "head": sha,
        "modified": at,
        "card": json.dumps(found.card, default=str, ensure_ascii=False),
        "tags": json.dumps(found.tags, ensure_ascii=False),
        "pipeline_tag": found.pipeline_tag,
        "library": found.library,
        "size": found.size,
    }
    connection.execute(update(repositories).where(repositories.c.id == repository_id).values(values))
    terms.put(connection, repository_id, name, found.tags)
    search_rows.put(connection, repository_id)
