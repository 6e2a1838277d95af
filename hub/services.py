"""A hub for several users: a Hub with accounts, repositories and permissions.

hub = HubServices.open(Path("~/.kcard").expanduser())
hub.accounts.add_user("ada")
hub.tokens.create("ada")
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from kcard.hub.accounts import Accounts, Events
from kcard.hub.db.models import HubSetting
from kcard.hub.db.session import Database
from kcard.hub.history import Commits, Refs
from kcard.hub.publications import Publications
from kcard.hub.quotas import Reservations
from kcard.hub.registry import Hub
from kcard.hub.repositories import Listing, Repositories
from kcard.hub.search import RepositorySearch
from kcard.hub.storage import Blobs
from kcard.hub.tokens import Sessions, TokenStore
from kcard.hub.uploads import Uploads, Verdicts

__all__ = ["HubServices"]

SECRET = "secret"


@dataclass(frozen=True)
class HubServices:
    """The services of a shared hub. `secret` signs short-lived tickets."""

    registry: Hub
    database: Database
    blobs: "Blobs"
    secret: bytes
    accounts: Accounts
    tokens: TokenStore
    sessions: Sessions
    events: Events
    repositories: Repositories
    commits: Commits
    refs: Refs
    listing: Listing
    search: RepositorySearch
    uploads: Uploads
    reservations: Reservations
    verdicts: Verdicts
    publications: Publications

    @classmethod
    def open(
        cls,
        home: Path | None = None,
        *,
        database_url: str | None = None,
        blobs_url: str | None = None,
        quota: int | None = None,
        exam_required: bool = True,
    ) -> "HubServices":
        """Open the hub, creating it if needed. Raises HubError if the database or the store is unavailable.

        quota          default quota of a namespace in bytes; None: no limit
        exam_required  whether a card with a model needs an exam to be published
        """
        # The local hub, on whose database and store everything works.
        registry = Hub(home, database_url=database_url, blobs_url=blobs_url, serving=True)
        database, blobs = registry.database, registry.blobs
        tokens = TokenStore(database)
        # The hub's secret, created on first use and shared by all workers.
        with database.read() as session:
            stored = session.get(HubSetting, SECRET)
        if stored is None:
            with database.write() as session:
                stored = session.get(HubSetting, SECRET)
                if stored is None:
                    stored = HubSetting(name=SECRET, value=secrets.token_hex(32))
                    session.add(stored)
        return cls(
            registry=registry,
            database=database,
            blobs=blobs,
            secret=bytes.fromhex(stored.value),
            accounts=Accounts(database),
            tokens=tokens,
            sessions=Sessions(database, tokens),
            events=Events(database),
            repositories=Repositories(database, blobs, quota=quota),
            commits=Commits(database, blobs, quota=quota),
            refs=Refs(database),
            listing=Listing(database),
            search=RepositorySearch(database),
            uploads=Uploads(database, blobs, quota=quota),
            reservations=Reservations(database, quota=quota),
            verdicts=Verdicts(database),
            publications=Publications(database, blobs, exam_required=exam_required),
        )
