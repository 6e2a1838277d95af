"""Metadata of repositories: from the README.md and the kcard.json of branch main, with derived tags."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy.orm import Session

from kcard.errors import CardError
from kcard.hub import search_index, trees
from kcard.hub.checks import metadata
from kcard.hub.checks.metadata import MAX_YAML_NODES
from kcard.hub.db.models import Commit, Repository
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry
from kcard.manifest import MANIFEST, Manifest

README = "README.md"
MAX_README_BYTES = 4_000_000  # bytes of a README.md or a manifest that are read


@dataclass(frozen=True)
class CardMetadata:
    """The metadata that a repository shows and that searches read."""

    card: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    library: str | None = None
    size: int = 0


def read_metadata(
    tree: Mapping[str, Entry], blobs: Blobs, before: Mapping[str, Entry] | None = None
) -> CardMetadata:
    """Return the metadata of a tree. Raises Invalid for an unreadable README.md.

    With the tree of the parent commit, `before`, it also raises TooLarge if README.md or the manifest is new and
    exceeds the limits; older ones are read whatever their size. It reads blobs, so call it outside of transactions.
    """
    readme = read_text(blobs, tree[README]) if README in tree else ""
    manifest = read_manifest(tree, blobs)
    if manifest is not None and before is not None and tree[MANIFEST] != before.get(MANIFEST):
        metadata.check_manifest(manifest)
    limited = before is not None and tree.get(README) != before.get(README)
    return describe_card(tree, readme, manifest, MAX_YAML_NODES if limited else None)


def describe_card(
    tree: Mapping[str, Entry], readme: str, manifest: Manifest | None, most: int | None = None
) -> CardMetadata:
    """Return the metadata of a tree with this README.md and manifest. Raises Invalid for an unreadable README.md.

    `most`: limit of keys and values in the front matter; None: any number.
    """
    card = metadata.parse_readme(readme, most)[0]
    return CardMetadata(
        card,
        tags=metadata.derive_tags(card, tree, manifest),
        pipeline_tag=metadata.find_pipeline_tag(card),
        library=metadata.find_library(card, tree),
        size=trees.total_size(tree),
    )


def read_manifest(tree: Mapping[str, Entry], blobs: Blobs) -> Manifest | None:
    """Return the manifest of a tree; None if missing or invalid."""
    if MANIFEST not in tree:
        return None
    try:
        return Manifest.from_json(read_text(blobs, tree[MANIFEST]))
    except CardError:
        return None  # drafts may be invalid; publishing reports the error


def read_text(blobs: Blobs, entry: Entry) -> str:
    """Return a file as text, cut at MAX_README_BYTES bytes; invalid UTF-8 is replaced."""
    with blobs.open(entry.sha256) as stream:
        content: bytes = stream.read(MAX_README_BYTES)
    return content.decode(errors="replace")


# What kcard writes into the README.md of a card from its manifest and its exam, and pages show beside it.
GENERATED_SECTION = re.compile(
    r"^## (?:What it is|How it was trained)\n+\| \| \|\n\|---\|---\|\n(?:\|[^\n]*(?:\n|\Z))*"
    r"|<!-- exam -->.*?<!-- end of exam -->",
    re.DOTALL | re.MULTILINE,
)


def abridge_readme(text: str, manifest: Manifest) -> str:
    """Return a card's README.md without the title, the description and the tables that its page shows elsewhere."""
    rest = GENERATED_SECTION.sub("", text).lstrip()
    for repeated in (f"# {manifest.name}", manifest.description):
        if rest == repeated or rest.startswith(f"{repeated}\n"):
            rest = rest.removeprefix(repeated).lstrip()
    return rest


def write_metadata(session: Session, repository: Repository, metadata: CardMetadata, commit: Commit) -> None:
    """Set the metadata of a repository, as of that commit of main, and update the search index."""
    repository.head, repository.modified = commit.sha, commit.date
    for each in fields(metadata):
        setattr(repository, each.name, getattr(metadata, each.name))
    session.flush()
    search_index.replace_terms(session, repository.id, repository.name, metadata.tags)
    search_index.update_rows(session, repository.id)
