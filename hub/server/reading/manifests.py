"""Manifests as pages show them: without their lists of files, and with texts of limited length."""

from collections.abc import Mapping
from dataclasses import replace

from kcard.hub.checks.metadata import LONGEST_DESCRIPTION, check_manifest
from kcard.hub.refusals import TooLarge
from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.values import Entry
from kcard.hub.server.reading.sized_cache import SizedCache
from kcard.hub.store.blobs import Blobs
from kcard.manifest import MANIFEST, Manifest

__all__ = ["Manifests"]

MOST = 1000


class Manifests:
    """The manifests that were shown last, by their sha256. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._kept: SizedCache[str, tuple[Manifest | None]] = SizedCache(MOST)

    def of(self, tree: Mapping[str, Entry]) -> Manifest | None:
        """The manifest of a tree; None if missing or invalid. A long description is cut."""
        if MANIFEST not in tree:
            return None
        key = tree[MANIFEST].sha256
        found = self._kept.get(key)
        if found is None:
            found = (_shortened(card_metadata.manifest(tree, self._blobs)),)
            self._kept.put(key, found, 1)
        return found[0]


def _shortened(manifest: Manifest | None) -> Manifest | None:
    if manifest is None:
        return None
    short = replace(manifest, files={}, description=manifest.description[:LONGEST_DESCRIPTION])
    try:
        check_manifest(short)
    except TooLarge:
        return None
    return short
