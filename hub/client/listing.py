"""Lists the cards of a hub."""

from dataclasses import dataclass
from datetime import datetime

from kcard.hub.client.connection import connect

__all__ = ["Listed", "listed"]

CARD = "knowledge-card"  # a tag in the README.md of every card


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
    """The visible cards of a hub, last changed first; `text` searches names and tags."""
    with connect(url, token) as api:
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
