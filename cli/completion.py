"""What the shell completes: names of cards."""

from kcard.errors import KcardError

__all__ = ["drafts", "published", "several"]


def published(incomplete: str) -> list[str]:
    """Names of published cards."""
    from kcard.hub.registry import Hub

    try:
        return [version.name for version in Hub() if version.name.startswith(incomplete)]
    except KcardError:
        return []


def several(incomplete: str) -> list[str]:
    """The last of several names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in published(last)]


def drafts(incomplete: str) -> list[str]:
    """Names of drafts and published cards."""
    from kcard.config import settings
    from kcard.manifest import MANIFEST

    try:
        own = [path.parent.name for path in settings().drafts.glob(f"*/{MANIFEST}")]
    except (KcardError, OSError):
        own = []
    return sorted({name for name in own if name.startswith(incomplete)} | set(published(incomplete)))
