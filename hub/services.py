"""A hub for several users: a Hub with accounts, repositories and permissions.

hub = HubServices(Path("~/.kcard").expanduser())
hub.accounts.add_user("ada")
hub.tokens.create("ada")
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from kcard.hub.accounts import Accounts, Events
from kcard.hub.history import Commits, Refs
from kcard.hub.listing import Listing
from kcard.hub.publications import Publications
from kcard.hub.quotas import Reservations
from kcard.hub.registry import Hub
from kcard.hub.repositories import Repositories
from kcard.hub.search import RepositorySearch, SearchIndex
from kcard.hub.storage import Blobs, open_private, partial_folder
from kcard.hub.tokens import Sessions, TokenStore
from kcard.hub.uploads import Uploads, Verdicts

SECRET_BYTES = 32


class HubServices:
    """The services of a shared hub. `secret` signs short-lived tickets."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        database_url: str | None = None,
        blobs_url: str | None = None,
        quota: int | None = None,
        exam_required: bool = True,
    ) -> None:
        """Open the hub, creating it if needed. Raises HubError if the database or the store is unavailable.

        quota          default quota of a namespace in bytes; None: no limit
        exam_required  whether a card with a model needs an exam to be published
        """
        # The local hub, on whose database and store everything works.
        self.registry = Hub(home, database_url=database_url, blobs_url=blobs_url, serving=True)
        self.database, self.blobs = database, blobs = self.registry.database, self.registry.blobs
        self.secret = read_secret(self.registry.home / "hub", blobs)
        self.accounts, self.events = Accounts(database), Events(database)
        self.tokens = TokenStore(database)
        self.sessions = Sessions(database, self.tokens)
        self.repositories = Repositories(database, blobs, quota=quota)
        index = SearchIndex()
        self.listing, self.search = Listing(database, index), RepositorySearch(database, index)
        self.commits, self.refs = Commits(database, blobs, quota=quota), Refs(database, quota=quota)
        self.uploads, self.verdicts = Uploads(database, blobs, quota=quota), Verdicts(database)
        self.reservations = Reservations(database, quota=quota)
        self.publications = Publications(database, blobs, exam_required=exam_required, quota=quota)


def read_secret(folder: Path, blobs: Blobs) -> bytes:
    """Return the secret in a hub's folder, which all workers share, creating it on first use.

    It is no row, so that nobody can sign anything with a copy of the database.
    """
    path = folder / "secret"
    if not path.exists():
        with partial_folder(blobs.partial) as scratch:
            new = scratch / "secret"
            with open(new, "x", encoding="ascii", opener=open_private) as stream:
                stream.write(secrets.token_hex(SECRET_BYTES))
            with suppress(FileExistsError):  # another process was first
                os.link(new, path)
    return bytes.fromhex(path.read_text(encoding="ascii"))
