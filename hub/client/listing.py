"""Lists the cards of a hub."""

from dataclasses import dataclass
from datetime import datetime

from kcard.hub.client.connection import connect

__all__ = ["Listed", "listed"]

CARD = "knowledge-card"  # a tag in the README.md of every card
MOST_TAGS = 100
LONGEST = 200  # characters of a name or tag


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
                repository=_cut(found.id),
                private=bool(found.private),
                downloads=int(found.downloads or 0),
                likes=int(found.likes or 0),
                modified=found.last_modified,
                tags=tuple(_cut(tag) for tag in (found.tags or ())[:MOST_TAGS]),
            )
            for found in api.list_models(
                filter=CARD, search=text, sort="last_modified", limit=limit, full=True
            )
        ]


def _cut(text: object) -> str:
    return str(text)[:LONGEST]
