"""A hub that several people share: the local one with accounts, repositories and rights beside its cards.

    hub = SharedHub.open(Path("~/.kcard").expanduser())
    hub.accounts.add_user("ada")
    hub.tokens.create("ada")

It puts the rooms together and decides nothing itself.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from kcard.hub.accounts.accounts import Accounts
from kcard.hub.accounts.events import Events
from kcard.hub.accounts.tokens import Tokens
from kcard.hub.records.database import Database
from kcard.hub.records.tables import settings
from kcard.hub.registry import Hub
from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.listing import Listing
from kcard.hub.repositories.publications import Publications
from kcard.hub.repositories.refs import Refs
from kcard.hub.repositories.repositories import Repositories
from kcard.hub.repositories.uploads import Uploads
from kcard.hub.xet.ingest import Ingest

if TYPE_CHECKING:
    from kcard.hub.store.blobs import Blobs

__all__ = ["SharedHub"]

SECRET = "secret"


@dataclass(frozen=True)
class SharedHub:
    """Everything that the server answers from. `secret` signs what it gives out for a short time."""

    local: Hub
    database: Database
    blobs: "Blobs"
    secret: bytes
    accounts: Accounts
    tokens: Tokens
    events: Events
    repositories: Repositories
    commits: Commits
    refs: Refs
    listing: Listing
    uploads: Uploads
    ingest: Ingest
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
    ) -> "SharedHub":
        """Open or create it; HubError where the database or the store can't be reached.

        quota          bytes that a namespace may hold where its account says nothing; None: any number
        exam_required  whether a card with a model must come with its exam to be published
        """
        local = Hub(home, database_url=database_url, blobs_url=blobs_url, pooled=True)
        database, blobs = local.database, local.blobs
        uploads = Uploads(database, blobs)
        return cls(
            local=local,
            database=database,
            blobs=blobs,
            secret=_secret(database),
            accounts=Accounts(database),
            tokens=Tokens(database),
            events=Events(database),
            repositories=Repositories(database, blobs, quota=quota),
            commits=Commits(database, blobs, quota=quota),
            refs=Refs(database),
            listing=Listing(database),
            uploads=uploads,
            ingest=Ingest(database, blobs, uploads),
            publications=Publications(database, blobs, local.quarantine, exam_required=exam_required),
        )


def _secret(database: Database) -> bytes:
    """The key of this hub, made when it is first needed; every worker has the same one."""
    query = select(settings.c.value).where(settings.c.name == SECRET)
    with database.read() as connection:
        found = connection.scalar(query)
    if found is None:
        with database.write() as connection:
            found = connection.scalar(query)
            if found is None:
                found = secrets.token_hex(32)
                connection.execute(insert(settings).values(name=SECRET, value=found))
    return bytes.fromhex(found)
