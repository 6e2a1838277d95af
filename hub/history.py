"""The history of repositories: commits, branches and tags."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import ColumnElement, bindparam, delete, func, insert, literal, select, update
from sqlalchemy.orm import Session

from kcard.errors import HubError
from kcard.hub import quotas, search_index, trees, uploads
from kcard.hub.accounts import Identity
from kcard.hub.card_metadata import read_metadata, write_metadata
from kcard.hub.db.models import Commit, Holding, Publication, PublishedTag, Ref, Repository, Version, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge, WrongParent
from kcard.hub.permissions import find_usable_blobs, is_administrator, require_write_now
from kcard.hub.storage import Blobs
from kcard.hub.trees import CommitTree, EncodedTree, Tree
from kcard.hub.values import BRANCH, MAIN, TAG, Add, Entry, Operation

# Rows of commits, branches and holdings, within a transaction of the caller.


@dataclass(frozen=True)
class CommitDraft:
    """An unwritten commit, and older commits to rewrite: see trees.choose_storage."""

    commit: Commit
    rewritten: Mapping[str, EncodedTree]


def draft_commit(
    repository_id: int,
    before: CommitTree | None,
    files: Mapping[str, Entry],
    title: str,
    message: str,
    author: str,
) -> CommitDraft:
    """Make a commit of these files after the commit `before`; its sha is the sha1 of its canonical JSON.

    The id of the repository makes equal commits of two repositories differ.
    """
    parent, date = None if before is None else before.sha, now()
    content = [str(repository_id), parent, trees.dump_tree(files), title, message, author, date.isoformat()]
    sha = hashlib.sha1(json.dumps(content).encode(), usedforsecurity=False).hexdigest()
    stored, rewritten = trees.choose_storage(before, files)
    commit = Commit(
        repository_id=repository_id,
        sha=sha,
        parent=parent,
        title=title,
        message=message,
        author=author,
        date=date,
        tree=stored.content,
        delta=stored.delta,
    )
    return CommitDraft(commit, rewritten)


def find_head(session: Session, repository_id: int, branch: str) -> str | None:
    """Return the commit of a branch; None if there is no such branch."""
    here = (Ref.repository_id == repository_id, Ref.kind == BRANCH, Ref.name == branch)
    return session.scalar(select(Ref.sha).where(*here))


def read_tree(session: Session, repository: Repository, sha: str) -> Tree:
    """Return the files of a commit by path, sorted. Raises NotFound, and HubError if they are damaged."""
    return read_commit_tree(session, repository, sha).tree


def read_commit_tree(session: Session, repository: Repository, sha: str) -> CommitTree:
    """Return the tree of a commit with the chain that it is stored in, which `draft_commit` needs of the parent."""
    commit_tree = trees.find_tree(session, repository.id, sha)
    if commit_tree is None:
        raise unknown_commit(repository, sha)
    return commit_tree


def unknown_commit(repository: Repository, sha: str) -> NotFound:
    """Return the error for an unknown commit."""
    return NotFound("revision", f"commit {sha[:64]!r} not found in {repository.name}")


def write_commit(session: Session, branch: str, draft: CommitDraft) -> None:
    """Write a commit and point the branch at it, creating the branch if needed."""
    commit, repository_id = draft.commit, draft.commit.repository_id
    session.add(commit)
    point_branch(session, repository_id, branch, commit.sha)
    grown = [_rewrite(session, repository_id, sha, stored) for sha, stored in draft.rewritten.items()]
    texts = quotas.text_bytes(commit.title, commit.message)
    quotas.count_history(session, repository_id, len(commit.tree) + texts + sum(grown))


def _rewrite(session: Session, repository_id: int, sha: str, stored: EncodedTree) -> int:
    """Store the tree of a commit in another way; returns the bytes by which it grew."""
    here = (Commit.repository_id == repository_id, Commit.sha == sha)
    before = session.scalar(select(func.length(Commit.tree)).where(*here))
    if before is None:  # removed since
        return 0
    session.execute(update(Commit).where(*here).values(tree=stored.content, delta=stored.delta))
    return len(stored.content) - int(before)


def point_branch(session: Session, repository_id: int, branch: str, sha: str) -> None:
    """Point a branch at a commit, creating the branch if needed."""
    session.merge(Ref(repository_id=repository_id, kind=BRANCH, name=branch, sha=sha))
    session.flush()


def delete_commit(session: Session, repository_id: int, sha: str) -> str | None:
    """Delete a commit with its refs and the holdings that no other commit needs.

    Its children become children of its parent, which is returned.
    """
    mine = Commit.repository_id == repository_id
    columns = (Commit.parent, Commit.title, Commit.message, func.length(Commit.tree).label("size"))
    row = session.execute(select(*columns).where(mine, Commit.sha == sha)).one_or_none()
    if row is None:  # two versions may have had one commit
        return None
    parent: str | None = row.parent
    messages = session.scalars(select(Ref.message).where(Ref.repository_id == repository_id, Ref.sha == sha))
    freed = int(row.size) + quotas.text_bytes(row.title, row.message, *messages)
    # Store the trees of its children without reference to it.
    children = session.scalars(select(Commit.sha).where(mine, Commit.parent == sha, Commit.delta))
    before = None if parent is None else trees.find_tree(session, repository_id, parent)
    grown = 0
    for child in list(children):
        child_tree = trees.find_tree(session, repository_id, child)
        assert child_tree is not None  # as just read
        grown += _rewrite(session, repository_id, child, trees.choose_storage(before, child_tree.tree)[0])
    quotas.count_history(session, repository_id, grown - freed)
    # Delete the commit.
    session.execute(update(Commit).where(mine, Commit.parent == sha).values(parent=parent))
    session.execute(delete(Ref).where(Ref.repository_id == repository_id, Ref.sha == sha))
    session.execute(delete(Commit).where(mine, Commit.sha == sha))
    # Delete the holdings of files that are in no other commit.
    named: set[str] = set()
    for row in session.execute(select(Commit.tree, Commit.delta).where(mine)):
        files, _ = trees.decode_tree(EncodedTree(*row))
        named.update(entry.sha256 for entry in files.values())
    here = Holding.repository_id == repository_id
    unneeded = set(session.scalars(select(Holding.sha256).where(here))) - named
    quotas.discount_blobs(session, repository_id, unneeded)
    session.execute(delete(Holding).where(here, Holding.sha256.in_(unneeded)))
    return parent


def add_holdings(session: Session, repository_id: int, entries: Mapping[str, Entry]) -> None:
    """Add the blobs of these entries, by sha256, to the repository's holdings."""
    here = (Holding.repository_id == repository_id, Holding.sha256.in_(entries))
    existing = set(session.scalars(select(Holding.sha256).where(*here)))
    owner = quotas.require_owner(session, repository_id)
    whose = {"repository_id": repository_id, "namespace_id": owner}
    new = {sha256: entry.size for sha256, entry in entries.items() if sha256 not in existing}
    if new:
        session.execute(
            insert(Holding), [{"sha256": sha256, "size": size, **whose} for sha256, size in new.items()]
        )
        quotas.count_blobs(session, repository_id, new.keys())


# Commits.

CommitList: TypeAlias = list[Commit]  # `list` is a method below
MAX_TITLE_CHARACTERS, MAX_MESSAGE_CHARACTERS = 500, 20_000  # characters, the latter also of tags
MAX_COMMIT_ATTEMPTS = 100  # of a commit without a parent, which is retried after a concurrent one


class Commits:
    """The commits of a hub's repositories. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def add(
        self,
        repository: Repository,
        branch: str,
        operations: Sequence[Operation],
        *,
        parent: str | None,
        title: str,
        message: str,
        identity: Identity,
    ) -> Commit:
        """Commit the operations to a branch, all of them or none.

        `parent` is the expected head of the branch; None: any. Every added entry must be an upload of this account,
        or in a repository whose files it may download. Raises WrongParent, NotFound (branch, or an entry to delete),
        Invalid (paths, a large file that was not uploaded), TooLarge (files, quota, metadata), and what
        `require_write_now` does.
        """
        if not title.strip():
            raise Invalid("a commit needs a title: summarise the change in one line")
        if len(title) > MAX_TITLE_CHARACTERS or len(message) > MAX_MESSAGE_CHARACTERS:
            raise Invalid(
                f"commit text too long: a title has at most {MAX_TITLE_CHARACTERS} characters, a message "
                f"{MAX_MESSAGE_CHARACTERS}"
            )
        for _ in range(MAX_COMMIT_ATTEMPTS):
            # The head of the branch, which must be the expected one.
            with self._database.read() as session:
                head = find_head(session, repository.id, branch)
            if head is None:
                raise NotFound(
                    "revision", f"branch {branch!r} not found in {repository.name}: create it first"
                )
            if parent is not None and not head.startswith(parent):
                raise WrongParent(
                    f"branch {branch!r} of {repository.name} is at {head}, not {parent}: fetch the new commits, "
                    "then retry"
                )
            # The new tree and its metadata, outside of the write transaction, since both take long.
            before = self._read_stored_tree(repository, head)
            tree = trees.apply_operations(before.tree, operations, head)
            draft = draft_commit(repository.id, before, tree, title, message, identity.name)
            metadata_of_main = read_metadata(tree, self._blobs, before.tree) if branch == MAIN else None
            with self._database.write() as session:
                if find_head(session, repository.id, branch) != head:
                    continue  # a concurrent commit: try again
                identity = require_write_now(session, identity, repository.id)
                # Every added file must be available to the account.
                added = {o.entry.sha256: o.entry for o in operations if isinstance(o, Add)}
                unavailable = added.keys() - find_usable_blobs(session, identity, added).keys()
                for entry in (added[sha256] for sha256 in sorted(unavailable)):
                    if entry.lfs:  # the same message if other accounts have it
                        raise Invalid(
                            f"{entry.path}: no upload with sha256 {entry.sha256}: upload the file first"
                        )
                    if not self._blobs.holds(entry.sha256):
                        raise HubError(f"{entry.path} expired before it was committed: commit it again")
                # Write the commit, and charge the namespace for it.
                write_commit(session, branch, draft)
                add_holdings(session, repository.id, added)
                uploads.delete_committed(session, identity.account_id, repository.id, added)
                quotas.require_quota(session, quotas.require_owner(session, repository.id), self._quota)
                if metadata_of_main is not None:
                    current = session.get_one(Repository, repository.id)  # it may have been moved
                    write_metadata(session, current, metadata_of_main, draft.commit)
            return draft.commit
        raise WrongParent(f"too many concurrent commits to branch {branch!r} of {repository.name}: try again")

    def get(self, repository: Repository, sha: str) -> Commit:
        """Return the commit of that sha. Raises NotFound."""
        with self._database.read() as session:
            commit = session.scalar(select(Commit).where(*_is_commit(repository, sha)))
        if commit is None:
            raise unknown_commit(repository, sha)
        return commit

    def list(self, repository: Repository, sha: str, size: int = 50) -> CommitList:
        """Return the newest commits of a commit's history, the commit first. Raises NotFound."""
        columns = (Commit.sha, Commit.parent)
        start = select(*columns, literal(0).label("depth")).where(*_is_commit(repository, sha))
        ancestry = start.cte("ancestry", recursive=True)
        above = (Commit.repository_id == repository.id, Commit.sha == ancestry.c.parent)
        more = select(*columns, ancestry.c.depth + 1).where(*above, ancestry.c.depth + 1 < size)
        ancestry = ancestry.union_all(more)
        query = (
            select(Commit)
            .join(ancestry, Commit.sha == ancestry.c.sha)
            .where(Commit.repository_id == repository.id)
            .order_by(ancestry.c.depth)
        )
        with self._database.read() as session:
            ancestors = [*session.scalars(query)]
        if not ancestors:
            raise unknown_commit(repository, sha)
        return ancestors

    def tree(self, repository: Repository, sha: str) -> dict[str, Entry]:
        """Return the files of a commit by path, sorted. Raises NotFound."""
        return self._read_stored_tree(repository, sha).tree

    def _read_stored_tree(self, repository: Repository, sha: str) -> CommitTree:
        with self._database.read() as session:
            return read_commit_tree(session, repository, sha)


def _is_commit(repository: Repository, sha: str) -> tuple[ColumnElement[bool], ...]:
    return Commit.repository_id == repository.id, Commit.sha == sha


# Branches and tags.

RefList: TypeAlias = list[Ref]
MAX_REF_CHARACTERS = 250
MAX_REFS = 10_000  # branches and tags of a repository, which clients list at once
# A subset of git's rules that is safe in URLs.
NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._/+@-]*[A-Za-z0-9_+-])?")
SHA = re.compile(r"[0-9a-f]{40}")
SHA_START = re.compile(r"[0-9a-f]{7,40}")


REFS_NAMED = select(Ref.kind, Ref.sha).where(
    Ref.repository_id == bindparam("repository"), Ref.name == bindparam("name")
)


class Refs:
    """The branches and tags of a hub's repositories. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, *, quota: int | None = None) -> None:
        self._database, self._quota = database, quota

    def resolve(self, repository: Repository, revision: str) -> str:
        """Return the commit sha of a revision: a branch, a tag or a commit, in this order.

        A commit may be abbreviated to 7 digits. Raises NotFound, also for an ambiguous abbreviation.
        """
        with self._database.read() as session:
            named = {"repository": repository.id, "name": revision}
            by_kind = dict(session.execute(REFS_NAMED, named).tuples().all())
            sha = by_kind.get(BRANCH) or by_kind.get(TAG)
            if sha:
                return str(sha)
            if SHA_START.fullmatch(revision):
                of = (Commit.repository_id == repository.id, Commit.sha.between(revision, revision + "g"))
                shas = list(session.scalars(select(Commit.sha).where(*of).limit(2)))
                if len(shas) == 1:
                    return str(shas[0])
        raise NotFound(
            "revision",
            f"branch, tag or commit {revision[:MAX_REF_CHARACTERS]!r} not found in {repository.name}",
        )

    def branches(self, repository: Repository) -> RefList:
        """Return all branches: main, then the others by name."""
        return sorted(self._list(repository, BRANCH), key=lambda ref: (ref.name != MAIN, ref.name))

    def tags(self, repository: Repository) -> RefList:
        """Return all tags by name."""
        return self._list(repository, TAG)

    def _list(self, repository: Repository, kind: str) -> RefList:
        query = select(Ref).where(Ref.repository_id == repository.id, Ref.kind == kind)
        with self._database.read() as session:
            return sorted(session.scalars(query), key=lambda ref: ref.name)

    def create_branch(self, repository: Repository, name: str, sha: str, exist_ok: bool = False) -> None:
        """Create a branch at a commit of the repository.

        Raises Conflict if it exists, unless `exist_ok`; Invalid for an invalid name, NotFound for an unknown sha,
        TooLarge over MAX_REFS branches and tags.
        """
        check_ref(name, BRANCH)
        with self._database.write() as session:
            if exist_ok and session.get(Ref, (repository.id, BRANCH, name)) is not None:
                return
            _put_ref(session, repository, BRANCH, name, sha, "")

    def delete_branch(self, repository: Repository, name: str) -> None:
        """Delete a branch; its commits stay. Raises NotFound, Invalid for main."""
        if name == MAIN:
            raise Invalid("can't delete the branch 'main'")
        with self._database.write() as session:
            _delete_ref(session, repository, BRANCH, name)

    def create_tag(self, repository: Repository, name: str, sha: str, message: str = "") -> None:
        """Create a tag. Raises Conflict if the name is taken, TooLarge over MAX_REFS branches and tags or the quota.

        For a commit with a card, use Publications.publish, which also creates the version.
        """
        with self._database.write() as session:
            put_tag(session, repository, name, sha, message)
            quotas.require_quota(session, quotas.require_owner(session, repository.id), self._quota)

    def delete_tag(self, repository: Repository, name: str, identity: Identity | None = None) -> None:
        """Delete a tag. Raises NotFound, Forbidden.

        Only administrators of the hub may delete a tag that published a version; the last tag deletes the version.
        """
        with self._database.write() as session:
            here = (Publication.repository_id == repository.id, Publication.tag == name)
            version = session.scalar(select(Publication.version_id).where(*here))
            if version is not None and not is_administrator(identity):
                raise Forbidden(
                    f"can't delete tag {name!r}: it published a version of {repository.name}; publish a newer one, or "
                    "ask an administrator of the hub"
                )
            _delete_ref(session, repository, TAG, name)
            if version is not None:
                session.execute(delete(Publication).where(*here))
                # The last tag deletes the version.
                left = select(Publication.id).where(Publication.version_id == version)
                if session.scalar(left) is None:
                    session.execute(delete(Version).where(Version.id == version))
                search_index.update_rows(session, repository.id)


def check_ref(name: str, what: str) -> str:
    """Return the name, if it is valid for a branch or a tag. Raises Invalid."""
    parts = name.split("/")
    odd = (
        ".." in name
        or "@{" in name
        or any(not part or part.startswith(".") or part.endswith((".", ".lock")) for part in parts)
    )
    if (
        len(name) > MAX_REF_CHARACTERS
        or not NAME.fullmatch(name)
        or odd
        or parts[0] == "refs"
        or SHA.fullmatch(name)
    ):
        raise Invalid(
            f"invalid {what} name {name[:MAX_REF_CHARACTERS]!r}: use at most {MAX_REF_CHARACTERS} letters, digits, "
            "'.', '_', '-', '+', '@' and '/', by git's rules, and not the sha of a commit"
        )
    return name


def put_tag(
    session: Session, repository: Repository, name: str, sha: str, message: str, card: str | None = None
) -> None:
    """Create a tag inside a transaction; raises as `Refs.create_tag`. `card`: the sha256 of the card it publishes."""
    check_ref(name, TAG)
    if len(message) > MAX_MESSAGE_CHARACTERS:
        raise Invalid(f"tag message too long: the limit is {MAX_MESSAGE_CHARACTERS} characters")
    _put_ref(session, repository, TAG, name, sha, message, card)


def _put_ref(
    session: Session,
    repository: Repository,
    kind: str,
    name: str,
    sha: str,
    message: str,
    card: str | None = None,
) -> None:
    require_unpublished(session, repository, {name: card})
    # A branch with the name of a tag would hide the tag.
    for other in (BRANCH, TAG):
        if session.get(Ref, (repository.id, other, name)) is not None:
            raise Conflict(f"{other} {name!r} already exists in {repository.name}: choose another name")
    count = select(func.count()).select_from(Ref).where(Ref.repository_id == repository.id)
    if (session.scalar(count) or 0) >= MAX_REFS:
        raise TooLarge(f"{repository.name} has {MAX_REFS} branches and tags, the limit: delete some")
    of = (Commit.repository_id == repository.id, Commit.sha == sha)
    if session.scalar(select(Commit.id).where(*of)) is None:
        raise unknown_commit(repository, sha)
    session.add(Ref(repository_id=repository.id, kind=kind, name=name, sha=sha, message=message))
    quotas.count_history(session, repository.id, quotas.text_bytes(message))


def require_unpublished(
    session: Session, repository: Repository, revisions: Mapping[str, str | None]
) -> None:
    """Raise Conflict if a revision, with the sha256 of the card that it publishes, was another published tag.

    The card of a name and a tag is recorded permanently, even if the repository is deleted or renamed.
    """
    if repository.type != "model":
        return
    for before in session.scalars(select(PublishedTag).where(PublishedTag.name == repository.folded)):
        if before.tag in revisions and revisions[before.tag] != before.sha256:
            raise Conflict(
                f"{repository.name}@{before.tag} was the card {before.sha256[:12]}…, and published tags are "
                "permanent: choose another name"
            )


def _delete_ref(session: Session, repository: Repository, kind: str, name: str) -> None:
    ref = session.get(Ref, (repository.id, kind, name))
    if ref is None:
        raise NotFound("revision", f"{kind} {name[:MAX_REF_CHARACTERS]!r} not found in {repository.name}")
    quotas.count_history(session, repository.id, -quotas.text_bytes(ref.message))
    session.delete(ref)
