"""Repositories: create, change, move, delete, like, grant access."""

import hashlib
from collections.abc import Mapping

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from kcard.hub import card_metadata, garbage, history, permissions, publications, quotas, search_index
from kcard.hub.accounts import Identity, check_repository_name, check_unambiguous, fold_name
from kcard.hub.db.models import (
    PRIVATE,
    PUBLIC,
    AccessRequest,
    AccessState,
    Account,
    Gate,
    Holding,
    Like,
    Repository,
    RepositoryType,
)
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, NotFound
from kcard.hub.permissions import GRANTED, readable
from kcard.hub.quotas import require_quota
from kcard.hub.storage import Blobs, partial_folder
from kcard.hub.trees import git_oid
from kcard.hub.values import MAIN, Entry

# For git-lfs users; the hub ignores it.
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
FIRST_TITLE = "initial commit"
ALL_REPOSITORIES = select(Repository)  # built once: that takes longer than executing it


class Repositories:
    """The repositories of a hub. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def create(
        self, type_: RepositoryType, namespace_id: int, name: str, *, private: bool = False, by: Identity
    ) -> Repository:
        """Create a repository namespace/name with branch main, whose first commit has a .gitattributes.

        Raises Invalid for an invalid name, Conflict, which has the `name`, if it exists, TooLarge over quota.
        """
        check_repository_name(name)
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        entry = Entry(".gitattributes", git_oid(ATTRIBUTES), sha256, len(ATTRIBUTES), lfs=False)
        tree = {entry.path: entry}
        metadata = card_metadata.read_metadata(tree, self._blobs)
        self.place_attributes()
        with self._database.write() as session:
            # The name must be free and unambiguous.
            _refuse_another(session, type_, name)
            check_unambiguous(name.partition("/")[2])
            self.place_attributes()  # gc may have deleted it meanwhile
            visibility = PRIVATE if private else PUBLIC
            repository = Repository(
                type=type_,
                namespace_id=namespace_id,
                name=name,
                folded=fold_name(name),
                visibility=visibility,
            )
            session.add(repository)
            session.flush()
            draft = history.draft_commit(repository.id, None, tree, FIRST_TITLE, "", by.name)
            history.write_commit(session, MAIN, draft)
            history.add_holdings(session, repository.id, {entry.sha256: entry})
            require_quota(session, namespace_id, self._quota)
            card_metadata.write_metadata(session, repository, metadata, draft.commit)
            return repository

    def place_attributes(self) -> None:
        """Store the content of .gitattributes, unless it is stored."""
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        if not self._blobs.holds(sha256):
            with partial_folder(self._blobs.partial) as scratch:
                (scratch / "blob").write_bytes(ATTRIBUTES)
                self._blobs.place(scratch / "blob", sha256, len(ATTRIBUTES))

    def get(self, type_: RepositoryType, name: str) -> Repository:
        """Return the repository of that name, in any case. Raises NotFound."""
        with self._database.read() as session:
            return _find(session, _named(type_, name), name)

    def readable(self, type_: RepositoryType, name: str, identity: Identity | None) -> Repository:
        """Return a repository that the identity may read. Raises NotFound otherwise, after the same work."""
        with self._database.read() as session:
            return _find(session, _named(type_, name) & readable(identity), name)

    def update(
        self, repository: Repository, *, private: bool | None = None, gated: Gate | None = None
    ) -> Repository:
        """Change visibility or gating; None: unchanged."""
        with self._database.write() as session:
            current = _reload(session, repository)
            if private is not None:
                current.visibility = PRIVATE if private else PUBLIC
            if gated is not None:
                current.gated = gated
            if private is not None or gated is not None:
                search_index.mark_changed(session, [repository.id])
            return current

    def move(self, repository: Repository, to: str) -> Repository:
        """Move or rename it to namespace/name; this renames its card too.

        Raises Conflict if that name is taken or had other cards under the same published tags, NotFound for an
        unknown account, TooLarge if it exceeds the quota.
        """
        check_repository_name(to)
        with self._database.write() as session:
            # The new name must be free and unambiguous.
            if fold_name(to) != fold_name(repository.name):
                _refuse_another(session, repository.type, to)
            own = to.partition("/")[2]
            if fold_name(own) != fold_name(repository.name.partition("/")[2]):
                check_unambiguous(own)
            # Its namespace is spelled as the account is.
            namespace = to.partition("/")[0]
            account = session.scalar(select(Account).where(Account.folded == fold_name(namespace)))
            if account is None:
                raise NotFound("account", f"can't move it to {to}: account {namespace!r} not found")
            to = f"{account.name}/{own}"
            # Move the repository, its quota, its published tags and its search terms.
            current = _reload(session, repository)
            before = current.namespace
            quotas.transfer_repository(session, current.id, account.id)
            current.namespace_id, current.name, current.folded = account.id, to, fold_name(to)
            session.flush()
            publications.record_tags(session, current)
            search_index.replace_terms(session, current.id, to, current.tags)
            search_index.update_rows(session, current.id)
            if before != current.namespace:
                require_quota(session, account.id, self._quota)
            return current

    def delete(self, repository: Repository) -> None:
        """Delete it with its history, all versions of its card, and the blobs that nothing else refers to."""
        files = select(Holding.sha256).where(Holding.repository_id == repository.id)
        with self._database.write() as session:
            _reload(session, repository)
            candidates = session.scalars(files).all()
            quotas.discount_repository(session, repository.id)
            session.execute(delete(Repository).where(Repository.id == repository.id))
            search_index.mark_removed(session)
        garbage.delete_unreferenced(self._database, self._blobs, candidates)

    def count_download(self, ids: Mapping[int, int]) -> None:
        """Add to the downloads of repositories, by id; deleted ones are ignored."""
        with self._database.write() as session:
            for id_, more in sorted(ids.items()):
                one = update(Repository).where(Repository.id == id_)
                session.execute(one.values(downloads=Repository.downloads + more))
            search_index.mark_changed(session, [*ids])

    def like(self, repository: Repository, account_id: int, *, liked: bool = True) -> None:
        """Like a repository, or remove the like; each account counts once."""
        with self._database.write() as session:
            current = _reload(session, repository)
            here = (Like.repository_id == repository.id, Like.account_id == account_id)
            session.execute(delete(Like).where(*here))
            if liked:
                session.add(Like(repository_id=repository.id, account_id=account_id))
            count = select(func.count()).where(Like.repository_id == repository.id)
            current.likes = session.scalar(count) or 0
            search_index.mark_changed(session, [repository.id])

    def request_access(self, repository: Repository, account_id: int, note: str = "") -> AccessState:
        """Request access to a gated repository, unless already done; `note`: why. Returns the state."""
        with self._database.write() as session:
            current = _reload(session, repository)
            request = session.get(AccessRequest, (repository.id, account_id))
            if request is not None:
                return request.state
            state: AccessState = "pending" if current.gated == "manual" else GRANTED
            permissions.put_request(session, repository, account_id, state, note)
            return state

    def grant(self, repository: Repository, account_id: int, state: AccessState = GRANTED) -> None:
        """Set the access of an account, with or without a request."""
        with self._database.write() as session:
            _reload(session, repository)
            permissions.put_request(session, repository, account_id, state)

    def access_state(self, repository: Repository, account_id: int | None) -> AccessState | None:
        """Return the state of an account's request; None without one."""
        if account_id is None:
            return None
        with self._database.read() as session:
            request = session.get(AccessRequest, (repository.id, account_id))
            return None if request is None else request.state

    def requests(self, repository: Repository) -> list[AccessRequest]:
        """Return all requests for access, oldest first."""
        query = select(AccessRequest).where(AccessRequest.repository_id == repository.id)
        with self._database.read() as session:
            return [*session.scalars(query.order_by(AccessRequest.asked, AccessRequest.account))]


def _named(type_: RepositoryType, name: str) -> ColumnElement[bool]:
    return (Repository.type == type_) & (Repository.folded == fold_name(name))


def _find(session: Session, condition: ColumnElement[bool], name: str) -> Repository:
    repository = session.scalar(ALL_REPOSITORIES.where(condition))
    if repository is None:
        raise NotFound("repository", f"repository {name[:200]!r} not found")
    return repository


def _reload(session: Session, repository: Repository) -> Repository:
    """Return the repository as it is now. Raises NotFound if it was deleted."""
    return _find(session, Repository.id == repository.id, repository.name)


def _refuse_another(session: Session, type_: RepositoryType, name: str) -> None:
    existing = session.scalar(select(Repository.name).where(_named(type_, name)))
    if existing is not None:
        raise Conflict(f"{type_} {existing!r} already exists: choose another name", name=existing)
