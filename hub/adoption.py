"""Cards of the local hub appear in the shared one: a repository for each, a commit and a tag for each version.

What `kcard publish` puts into the hub that is being served belongs to nobody there. Here it gets a namespace: version 2
of `rivers` becomes the tag v2 of library/rivers, an alias a branch. The version stays the one that it is: audits,
quarantine and removal go on as before. Every step looks first whether it was done, so what was interrupted is repeated.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection, and_, insert, or_, select, update

from kcard.errors import HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_file
from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.quarantine import EXAM, examined
from kcard.hub.refusals import NotThere, Refused
from kcard.hub.repositories.history import BRANCH, MAIN
from kcard.hub.repositories.refs import put_tag
from kcard.hub.repositories.values import Add, Delete, Entry, Operation, Repository
from kcard.hub.repository_tables import publications, refs, repositories
from kcard.hub.server.writing.git_oid import git_oid, pointer_oid
from kcard.hub.tables import aliases, cards, files, versions
from kcard.hub.utc import now

if TYPE_CHECKING:
    from kcard.hub.shared import SharedHub

__all__ = ["NAMESPACE", "Adoption"]

NAMESPACE = "library"
SECONDS = 5.0
TEXTS = frozenset(["text", "json", "jsonl", "yaml", "readme"])
LARGEST_TEXT = 4_000_000  # bytes; a larger one is a large file, as in an upload
KEPT = ".gitattributes"
LOCAL = cards.c.name.not_like("%/%")  # a card of the shared hub is namespace/name

log = logging.getLogger("kcard.hub.adoption")


@dataclass(frozen=True)
class _Version:
    """A row of `versions` that has no publication yet."""

    id: int
    card: str
    number: int
    sha256: str
    description: str


@dataclass(frozen=True)
class Adoption:
    """Adopts into `namespace`, an organisation, which is made where it is not there.

    `refused` has what can't be adopted, by version: it is told of once and not tried again.
    """

    hub: "SharedHub"
    namespace: str = NAMESPACE
    refused: dict[int, str] = field(default_factory=dict)

    def follow(self, stop: threading.Event, seconds: float = SECONDS) -> None:
        """Adopt what is there and, every few seconds, what came since, until `stop` is set."""
        told = ""
        while True:
            try:
                self.run()
            except HubError as error:  # a database that is busy or gone for a while: the next time may do
                if str(error) != told:
                    log.warning("cards of the local hub are not adopted: %s", error)
                told = str(error)
            if stop.wait(seconds):
                return

    def run(self) -> int:
        """Adopt every version and alias that is not adopted yet; how many versions were.

        Raises HubError where nobody administers the hub, or the database can't be reached.
        """
        adopted = 0
        for version in self._waiting():
            try:
                self._adopt(version)
                adopted += 1
            except Refused as error:
                self.refused[version.id] = str(error)
                log.warning("%s@v%s is not adopted: %s", version.card, version.number, error)
        self._point()
        return adopted

    def _waiting(self) -> list[_Version]:
        published = select(publications.c.id).where(publications.c.version_id == versions.c.id).exists()
        query = (
            select(versions.c.id, cards.c.name, versions.c.number, versions.c.sha256, versions.c.description)
            .join_from(versions, cards)
            .where(LOCAL, ~published)
            .order_by(cards.c.name, versions.c.number)
        )
        with self.hub.database.read() as connection:
            found = [_Version(*row) for row in connection.execute(query)]
        return [version for version in found if version.id not in self.refused]

    def _adopt(self, version: _Version) -> None:
        tree = self._tree(version)
        identity = self._identity()
        repository = self._repository(version.card, identity)
        sha = self._commit(repository, version, tree, identity)
        exam = tree.get(EXAM)
        factuality = None if exam is None else examined(self._bytes(exam))
        with self.hub.database.write() as connection:
            if connection.scalar(select(versions.c.id).where(versions.c.id == version.id)) is None:
                return  # removed just now
            tag = f"v{version.number}"
            put_tag(connection, repository, tag, sha, f"{version.card} {version.sha256}")
            values = {"repository_id": repository.id, "tag": tag, "sha": sha, "version_id": version.id}
            values |= {"author": identity.name, "at": now(), "factuality": factuality}
            connection.execute(insert(publications).values(values))
        self.hub.events.add(identity.name, "card.published", repository.name, tag=tag, adopted=True)

    def _tree(self, version: _Version) -> dict[str, Entry]:
        """The files of a version as a commit has them; Invalid or Dangerous for what a shared hub does not store."""
        query = select(files.c.path, files.c.sha256, files.c.size).where(files.c.version_id == version.id)
        with self.hub.database.read() as connection:
            rows = connection.execute(query.order_by(files.c.path)).tuples().all()
        for path, sha256, size in rows:
            check_file(path, size, lambda sha256=sha256: self.hub.blobs.open(sha256))  # type: ignore[misc]
        return {path: self._entry(path, sha256, size) for path, sha256, size in rows}

    def _entry(self, path: str, sha256: str, size: int) -> Entry:
        entry = Entry(path, pointer_oid(sha256, size), sha256, size, lfs=True)
        if kind_of(path, size).form in TEXTS and size <= LARGEST_TEXT:
            return Entry(path, git_oid(self._bytes(entry)), sha256, size, lfs=False)
        return entry

    def _bytes(self, entry: Entry) -> bytes:
        return b"".join(self.hub.blobs.read(entry.sha256, 0, entry.size))

    def _identity(self) -> Identity:
        """The administrator for whom it is done: the one that has been there longest."""
        found = [a for a in self.hub.accounts.list() if a.admin and not a.disabled and a.kind == "user"]
        if not found:
            raise HubError("nobody administers this hub: make someone an administrator first")
        first = min(found, key=lambda account: account.id)
        return Identity(first.id, first.name, admin=True, scope="admin")

    def _repository(self, card: str, identity: Identity) -> Repository:
        try:
            namespace = self.hub.accounts.get(self.namespace)
        except NotThere:
            namespace = self.hub.accounts.add_organisation(self.namespace, owner=identity.name)
        if namespace.kind != "organisation":
            raise HubError(
                f"{self.namespace} is a user: adopt into an organisation, with another --namespace"
            )
        name = f"{namespace.name}/{card}"
        try:
            return self.hub.repositories.get("model", name)
        except NotThere:
            return self.hub.repositories.create("model", namespace.id, name, by=identity)

    def _commit(
        self, repository: Repository, version: _Version, tree: Mapping[str, Entry], identity: Identity
    ) -> str:
        """The commit with this tree: the head of main where it was made before, and interrupted then."""
        head = self.hub.refs.resolve(repository, MAIN)
        there = {path: e for path, e in self.hub.commits.tree(repository, head).items() if path != KEPT}
        if there == tree:
            return head
        for entry in tree.values():
            self.hub.uploads.record(identity.account_id, entry.sha256, entry.size)
        operations: list[Operation] = [Delete(path) for path in there if path not in tree]
        operations += [Add(entry) for path, entry in tree.items() if there.get(path) != entry]
        return self.hub.commits.add(
            repository,
            MAIN,
            operations,
            parent=head,
            title=f"{version.card} v{version.number}",
            message=version.description,
            identity=identity,
        ).sha

    def _point(self) -> None:
        """Move the branches of aliases to where the aliases point."""
        named = and_(
            refs.c.repository_id == publications.c.repository_id,
            refs.c.kind == BRANCH,
            refs.c.name == aliases.c.alias,
        )
        query = (
            select(publications.c.repository_id, aliases.c.alias, publications.c.sha, refs.c.sha.label("at"))
            .select_from(
                aliases.join(publications, publications.c.version_id == aliases.c.version_id)
                .join(versions, versions.c.id == aliases.c.version_id)
                .join(cards, cards.c.id == versions.c.card_id)
                .join(repositories, repositories.c.id == publications.c.repository_id)
                .outerjoin(refs, named)
            )
            .where(
                LOCAL, aliases.c.alias != MAIN, or_(refs.c.sha.is_(None), refs.c.sha != publications.c.sha)
            )
        )
        with self.hub.database.read() as connection:
            if connection.execute(query.limit(1)).first() is None:
                return
        with self.hub.database.write() as connection:
            for row in connection.execute(query).all():
                _move(connection, row.repository_id, row.alias, row.sha, new=row.at is None)


def _move(connection: Connection, repository_id: int, branch: str, sha: str, *, new: bool) -> None:
    row = {"repository_id": repository_id, "kind": BRANCH, "name": branch}
    if new:
        connection.execute(insert(refs).values(sha=sha, message="", **row))
        return
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    connection.execute(update(refs).where(*here).values(sha=sha))
