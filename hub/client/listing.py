"""The cards that a hub lists."""

from dataclasses import dataclass
from datetime import datetime

from kcard.hub.client.talk import talk

__all__ = ["Listed", "listed"]

CARD = "knowledge-card"  # the tag that a card's README.md has


@dataclass(frozen=True)
class Listed:
    """A repository in a hub's listing; `modified` is in UTC."""

    repository: str
    private: bool
    downloads: int
    likes: int
    modified: datetime | None
    tags: tuple[str, ...]


def listed(url: str, token: str | None, text: str | None = None, *, limit: int = 100) -> list[Listed]:
    """The cards of a hub that the user may see, the newest change first; `text` in their name or tags."""
    with talk(url, token) as api:
        return [
            Listed(
                repository=found.id,
                private=bool(found.private),
                downloads=found.downloads or 0,
                likes=found.likes or 0,
                modified=found.last_modified,
                tags=tuple(found.tags or ()),
            )
            for found in api.list_models(
                filter=CARD, search=text, sort="last_modified", limit=limit, full=True
            )
        ]
