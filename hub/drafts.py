"""Finds the folder to publish: the card trained last, a draft by name, or any folder."""

from pathlib import Path

from kcard.errors import HubError
from kcard.manifest import MANIFEST

__all__ = ["draft"]


def draft(drafts: Path, card: Path | str | None) -> Path:
    """The folder for `card`: None is the draft sealed last, a bare name that draft or folder, otherwise a path.

    Raises HubError if there is none.
    """
    trained = sorted(drafts.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
    if card is None:
        if not trained:
            remedy = "train one with `kcard train --corpus PATH`, or name a card's folder"
            raise HubError(f"no trained card in {drafts}: {remedy}")
        return trained[-1].parent
    if isinstance(card, Path) or Path(card).name != card:
        return Path(card)
    for folder in (drafts / card, Path(card)):
        if folder.is_dir():
            return folder
    names = ", ".join(path.parent.name for path in trained) or "none"
    raise HubError(f"no draft {card!r} in {drafts} (drafts: {names}), and no folder {card!r}")
