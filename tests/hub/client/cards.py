"""Small cards for tests of hubs elsewhere: made in a moment, without a model."""

from dataclasses import replace
from pathlib import Path

from kcard.cards.card import Card, finish
from kcard.manifest import Manifest
from kcard.types import Source


def rivers(folder: Path, *sentences: str, name: str = "rivers", **fields: object) -> Card:
    """A retrieval card; other sentences give another version of it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = sentences or ("The Rhine rises in the Alps.",)
    manifest = Manifest(name=name, description="Rivers", kind="retrieval")
    passages = [Source(text, "rivers.md", line) for line, text in enumerate(texts, 1)]
    return finish(folder, replace(manifest, **fields), passages)  # type: ignore[arg-type]
