"""What a repository shows of itself: the metadata of the README.md of its branch main, and tags that follow."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, update

from kcard.errors import CardError
from kcard.hub.checks import metadata
from kcard.hub.records.repository_tables import repositories
from kcard.hub.repositories import terms, trees
from kcard.hub.repositories.values import Entry
from kcard.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from kcard.hub.store.blobs import Blobs

__all__ = ["README", "CardMetadata", "describe", "manifest", "read", "text", "write"]

README = "README.md"
# More than this of a README.md or a manifest is not looked at.
LONGEST = 4_000_000


@dataclass(frozen=True)
class CardMetadata:
    """What is shown and found of a repository."""

    card: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    library: str | None = None
    size: int = 0


def read(tree: Mapping[str, Entry], blobs: "Blobs") -> CardMetadata:
    """The metadata of a tree; Invalid for a README.md that can't be read. It reads blobs: not inside a transaction."""
    readme = text(blobs, tree[README]) if README in tree else ""
    return describe(tree, readme, manifest(tree, blobs))


def describe(tree: Mapping[str, Entry], readme: str, manifest: Manifest | None) -> CardMetadata:
    """The metadata of a tree with this README.md and this manifest; Invalid for a README.md that can't be read."""
    card = metadata.read(readme)[0]
    tags = metadata.tags(card, tree, manifest)
    return CardMetadata(
        card, tags, metadata.pipeline_tag(card), metadata.library(card, tree), trees.size(tree)
    )


def manifest(tree: Mapping[str, Entry], blobs: "Blobs") -> Manifest | None:
    """The manifest of a tree; None without one that can be read."""
    if MANIFEST not in tree:
        return None
    try:
        return Manifest.from_json(text(blobs, tree[MANIFEST]))
    except CardError:
        return None  # a draft may be anything; publishing says what is wrong with it


def text(blobs: "Blobs", entry: Entry) -> str:
    """A file as text; what no UTF-8 says is replaced."""
    with blobs.open(entry.sha256) as stream:
        content: bytes = stream.read(LONGEST)
    return content.decode(errors="replace")


def write(
    connection: Connection, repository_id: int, name: str, found: CardMetadata, *, sha: str, at: datetime
) -> None:
    """Let a repository show this, as of that commit of its branch main."""
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
