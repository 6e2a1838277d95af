"""Cards of the hub's own namespace: add, alias and remove versions.

A version is a commit of the card's repository, a tag and a row in `versions`. An alias is a branch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from kcard.errors import DamagedCard, HubError
from kcard.hub import history, publications, quotas, search_index, trees
from kcard.hub.accounts import (
    DEFAULT_NAMESPACE,
    FALLBACK_NAMESPACE,
    NAMESPACE_SETTING,
    OWN_NAMESPACES,
    OwnNamespace,
    check_namespace,
    check_unambiguous,
    find_own_namespace,
    fold_name,
    full_name,
)
from kcard.hub.card_metadata import README, CardMetadata, describe_card, read_metadata, write_metadata
from kcard.hub.db.models import (
    accounts,
    commits,
    memberships,
    now,
    refs,
    repositories,
    settings,
    utc,
    versions,
)
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Refused
from kcard.hub.figures import EXAM_FILE, read_exam
from kcard.hub.history import put_tag
from kcard.hub.repositories import REPOSITORY_COLUMNS, make_repository_row, repository_from_row
from kcard.hub.storage import Blob, Blobs
from kcard.hub.trees import Tree, file_entry
from kcard.hub.values import MAIN, TAG, DeclaredFigures, Repository
from kcard.hub.versions import Version, find_key, find_versions, is_card
from kcard.manifest import MANIFEST, Manifest

__all__ = ["LocalCards"]


class LocalCards:
    """Writes the cards of a hub's own namespace."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database, self._blobs = database, blobs

    def add(
        self,
        manifest: str,
        blobs: Mapping[str, Blob],
        aliases: Sequence[str],
        content: Callable[[str], bytes],
        locked: Callable[[], None],
    ) -> Version:
        """Add a version of one of the hub's own cards, unless it exists.

        `manifest` is the text of kcard.json, `blobs` has every file of the card by path, `content` returns the bytes of
        a path. `locked` is called once no other process can write, before any row is written.
        """
        parsed = Manifest.from_json(manifest)
        tree = {path: file_entry(path, blob, content) for path, blob in sorted(blobs.items())}
        readme = content(README).decode(errors="replace") if README in tree else ""
        try:
            metadata = describe_card(tree, readme, parsed)
        except Refused:  # an invalid README.md
            metadata = describe_card(tree, "", parsed)
        exam = read_exam(content(EXAM_FILE), parsed) if EXAM_FILE in tree else None
        card = _UnpublishedCard(parsed, tree, metadata, exam)
        with self._database.write() as connection:
            locked()
            # The namespace, created for the first card.
            own = find_own_namespace(connection)
            if own is None:
                taken = select(accounts.c.id).where(accounts.c.folded == DEFAULT_NAMESPACE)
                own = _find_or_create_organisation(
                    connection, DEFAULT_NAMESPACE if connection.scalar(taken) is None else FALLBACK_NAMESPACE
                )
                connection.execute(insert(settings).values(name=NAMESPACE_SETTING, value=fold_name(own.name)))
            # The repository of the card, likewise.
            name = parsed.name
            here = select(*REPOSITORY_COLUMNS).where(is_card(connection, name))
            if (row := connection.execute(here).one_or_none()) is None:
                new = make_repository_row("model", own.id, full_name(own, name))
                connection.execute(insert(repositories).values(new))
                row = connection.execute(here).one()
            repository = repository_from_row(row)
            # The version, unless it exists, and its aliases.
            same = (versions.c.repository_id == repository.id, versions.c.sha256 == blobs[MANIFEST].sha256)
            version = connection.scalar(select(versions.c.id).where(*same))
            if version is None:
                version = _write_version(connection, repository, manifest, card, own.name)
            for alias in aliases:
                _point_alias(connection, repository.id, alias, version)
            return find_versions(connection, versions.c.id == version)[0]

    def alias(self, version: Version, alias: str) -> Version | None:
        """Point an alias of the card at this version; None if the version was removed."""
        with self._database.write() as connection:
            row = find_key(connection, version)
            if row is None:
                return None
            _point_alias(connection, row.repository_id, alias, row.id)
            return find_versions(connection, versions.c.id == row.id)[0]

    def remove(self, gone: Iterable[Version]) -> None:
        """Delete versions. For the hub's own cards, also delete commits, tags and aliases, and cards without versions.

        Repositories in other namespaces stay, since they belong to their users.
        """
        with self._database.write() as connection:
            own = find_own_namespace(connection)
            for version in gone:
                row = find_key(connection, version)
                if row is None:
                    continue
                connection.execute(delete(versions).where(versions.c.id == row.id))
                search_index.update_rows(connection, row.repository_id)
                if own is not None and "/" not in version.name:
                    _delete_version_commit(connection, row.repository_id, row.sha, self._blobs)

    def rename(self, name: str) -> None:
        """Move the cards to another organisation, created if needed.

        Raises Invalid for an invalid name, HubError if that account is a user's or an organisation with members.
        """
        with self._database.write() as connection:
            own = find_own_namespace(connection)
            if own is not None and fold_name(own.name) == fold_name(name):
                return
            if fold_name(check_namespace(name)) not in OWN_NAMESPACES:
                check_unambiguous(name, account=True)
            new = _find_or_create_organisation(connection, name)
            if own is None:
                connection.execute(insert(settings).values(name=NAMESPACE_SETTING, value=fold_name(name)))
                return
            connection.execute(
                update(settings).where(settings.c.name == NAMESPACE_SETTING).values(value=fold_name(name))
            )
            # Move every repository, with its card.
            columns = select(*REPOSITORY_COLUMNS).where(repositories.c.namespace_id == own.id)
            for repository in [repository_from_row(row) for row in connection.execute(columns)]:
                to = f"{new.name}/{repository.name.partition('/')[2]}"
                taken = (repositories.c.type == repository.type, repositories.c.folded == fold_name(to))
                if connection.scalar(select(repositories.c.id).where(*taken)) is not None:
                    raise HubError(
                        f"can't move the hub's own cards to {new.name}: {to} already exists; choose another name"
                    )
                quotas.transfer_repository(connection, repository.id, new.id)
                values = {"namespace_id": new.id, "name": to, "folded": fold_name(to)}
                connection.execute(
                    update(repositories).where(repositories.c.id == repository.id).values(values)
                )
                publications.record_tags(connection, repository.id, to)
                search_index.replace_terms(connection, repository.id, to, repository.tags)
                search_index.update_rows(connection, repository.id)


@dataclass(frozen=True)
class _UnpublishedCard:
    """A card to be published."""

    manifest: Manifest
    tree: Tree
    metadata: CardMetadata
    declared: DeclaredFigures | None


def _write_version(
    connection: Connection, repository: Repository, text: str, card: _UnpublishedCard, author: str
) -> int:
    """Write the next version: a commit on main, the row, and its tag. Returns the version's id."""
    number = publications.next_number(connection, repository.id, card.tree[MANIFEST].sha256)
    tag, name = f"v{number}", card.manifest.name
    head = history.find_head(connection, repository.id, MAIN)
    before = None if head is None else history.read_commit_tree(connection, repository, head)
    description = card.manifest.description
    draft = history.draft_commit(str(repository.id), before, card.tree, f"{name} {tag}", description, author)
    sha, at = draft.commit.sha, draft.commit.date
    history.write_commit(connection, repository.id, MAIN, draft)
    history.add_holdings(connection, repository.id, {entry.sha256: entry for entry in card.tree.values()})
    write_metadata(connection, repository.id, repository.name, card.metadata, sha=sha, at=at)
    version = publications.add_version(
        connection, repository.id, text, card.manifest, card.tree, sha, card.declared
    )
    sha256 = card.tree[MANIFEST].sha256
    put_tag(connection, repository, tag, sha, f"{name} {sha256}", sha256)
    publications.add_publication(connection, repository.id, tag, sha, version, author)
    return version


def _point_alias(connection: Connection, repository_id: int, alias: str, version: int) -> None:
    """Point the branch of an alias at the commit of a version."""
    tag = (refs.c.repository_id == repository_id, refs.c.kind == TAG, refs.c.name == alias)
    if connection.scalar(select(refs.c.sha).where(*tag)) is not None:
        raise Conflict(f"alias {alias!r} conflicts with a tag of the card: choose another alias")
    sha = connection.execute(select(versions.c.sha).where(versions.c.id == version)).scalar_one()
    history.point_branch(connection, repository_id, alias, sha)


def _delete_version_commit(connection: Connection, repository_id: int, sha: str, blobs: Blobs) -> None:
    """Delete the commit of a removed version with its refs; after the last version, the whole repository."""
    here = repositories.c.id == repository_id
    left = select(versions.c.sha).where(versions.c.repository_id == repository_id)
    newest = connection.scalar(left.order_by(versions.c.number.desc()).limit(1))
    if newest is None:
        quotas.discount_repository(connection, repository_id)
        connection.execute(delete(repositories).where(here))
        search_index.mark_removed(connection)
        return
    main = history.find_head(connection, repository_id, MAIN)
    parent = history.delete_commit(connection, repository_id, sha) or newest
    if main != sha:
        return
    history.point_branch(connection, repository_id, MAIN, parent)
    commit = (commits.c.repository_id == repository_id, commits.c.sha == parent)
    date = connection.execute(select(commits.c.date).where(*commit)).scalar_one()
    repository = repository_from_row(connection.execute(select(*REPOSITORY_COLUMNS).where(here)).one())
    tree = history.read_tree(connection, repository, parent)
    try:
        metadata = read_metadata(tree, blobs)
    except (Refused, DamagedCard):  # an invalid or missing README.md
        metadata = CardMetadata(size=trees.total_size(tree))
    write_metadata(connection, repository_id, repository.name, metadata, sha=parent, at=utc(date))


def _find_or_create_organisation(connection: Connection, name: str) -> OwnNamespace:
    """Return an organisation of the hub's own, created if needed. Raises HubError if the account has members."""
    query = select(accounts.c.id, accounts.c.name, accounts.c.kind).where(
        accounts.c.folded == fold_name(name)
    )
    account = connection.execute(query).one_or_none()
    if account is not None:
        members = select(memberships.c.user_id).where(memberships.c.organisation_id == account.id).limit(1)
        if account.kind != "organisation" or connection.scalar(members) is not None:
            raise HubError(
                f"can't keep the hub's own cards in {account.name}: it belongs to its members or is a user; choose "
                "another name with `kcard hub serve --namespace`"
            )
        return OwnNamespace(account.id, account.name)
    values: dict[str, object] = {
        "name": name,
        "folded": fold_name(name),
        "kind": "organisation",
        "fullname": "",
    }
    values |= {"email": "", "admin": False, "disabled": False, "created": now()}
    account_id = connection.execute(insert(accounts).values(values).returning(accounts.c.id)).scalar_one()
    return OwnNamespace(int(account_id), name)
