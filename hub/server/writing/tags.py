"""Tags. One on a commit with a card publishes a version."""

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.values import Publication, Repository
from kcard.hub.shared import SharedHub

__all__ = ["create_tag"]


def create_tag(
    hub: SharedHub, identity: Identity, repository: Repository, tag: str, sha: str, message: str = ""
) -> Publication | None:
    """Create a tag; returns the version that it published, if the commit has a card.

    Raises as Publications.publish and Refs.create_tag.
    """
    published = hub.publications.publish(repository, tag, sha, identity, message)
    if published is None:
        hub.refs.create_tag(repository, tag, sha, message)
        return None
    version, number = published.version, published.number
    hub.events.add(identity.name, "card.published", repository.name, tag=tag, version=version, number=number)
    return published
