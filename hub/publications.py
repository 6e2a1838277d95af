"""Publication of versions of cards: of commits that clients push, and of folders by `kcard publish`.

The card is called like its repository, namespace/name; the sha256 of its manifest names the version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from kcard.errors import CardError, DamagedCard
from kcard.hub import history, quotas, search_index, trees
from kcard.hub.accounts import OWN_NAMESPACE, Identity, fold_name, full_name
from kcard.hub.card_metadata import README, CardMetadata, describe_card, read_metadata, write_metadata
from kcard.hub.checks.content import check_content, check_name
from kcard.hub.checks.metadata import check_manifest
from kcard.hub.db.models import (
    Account,
    Commit,
    Publication,
    PublishedTag,
    Ref,
    Repository,
    Version,
    now,
)
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Invalid, Refused, TooLarge
from kcard.hub.figures import EXAM_FILE, has_weights, read_exam
from kcard.hub.history import put_tag, require_unpublished
from kcard.hub.permissions import require_write_now
from kcard.hub.storage import Blob, Blobs
from kcard.hub.trees import Tree, file_entry
from kcard.hub.uploads import Verdicts
from kcard.hub.values import MAIN, TAG, DeclaredFigures, Entry
from kcard.hub.versions import (
    ALL_VERSIONS,
    IS_NEWEST,
    find_row,
    find_versions,
    is_card,
    load_versions,
)
from kcard.manifest import MANIFEST, Manifest, check_counts

# The one way to a new version, of the hub's own cards and of those that clients push.
#
# A published tag is permanent: what a name and a tag meant is recorded, and stays when the repository is deleted or
# renamed, so that another card can't take its place.


@dataclass(frozen=True)
class CheckedCard:
    """A card to publish: the text of its kcard.json, its files, and the figures of its exam."""

    text: str
    manifest: Manifest
    files: Tree
    declared: DeclaredFigures | None

    @classmethod
    def read(
        cls, text: str, manifest: Manifest, files: Tree, content: Callable[[str], bytes]
    ) -> "CheckedCard":
        """Return the card of these files, which match its manifest; `content` returns the bytes of a path."""
        exam = read_exam(content(EXAM_FILE), manifest) if EXAM_FILE in files else None
        return cls(text, manifest, files, exam)

    @property
    def sha256(self) -> str:
        return self.files[MANIFEST].sha256


def next_number(session: Session, repository: Repository, sha256: str) -> int:
    """Return the number of the repository's next version, whose manifest has this sha256.

    Numbers are never reused. In a repository that was deleted and created again, the same card gets its old number.
    """
    of = select(func.max(PublishedTag.number)).where(PublishedTag.name == repository.folded)
    same = session.scalar(of.where(PublishedTag.sha256 == sha256)) or 0
    return same if same > repository.newest else max(repository.newest, session.scalar(of) or 0) + 1


def publish_commit(
    session: Session,
    repository: Repository,
    card: CheckedCard,
    commit: str,
    tag: str,
    message: str,
    author: str,
) -> Publication:
    """Create the tag of a commit with a card, and the version, unless another tag has published it."""
    put_tag(session, repository, tag, commit, message, card.sha256)
    repository = session.get_one(Repository, repository.id)
    query = select(Version).filter_by(repository_id=repository.id, sha256=card.sha256)
    version = session.scalar(query)
    if version is None:
        declared, manifest = card.declared, card.manifest
        repository.newest = next_number(session, repository, card.sha256)
        version = Version(
            repository_id=repository.id,
            number=repository.newest,
            sha256=card.sha256,
            commit=commit,
            text=card.text,
            description=manifest.description,
            domain=manifest.domain,
            base=manifest.base.name,
            size=trees.total_size(card.files),
            published=now(),
            weights=has_weights(manifest),
            examined=declared is not None,
            declared_recall=declared and declared.recall,
            declared_factuality=declared and declared.factuality,
            declared_coverage=declared and declared.coverage,
            fault=declared.fault if declared else "",
        )
        session.add(version)
        session.flush()
        search_index.update_rows(session, repository.id)
    publication = Publication(
        repository_id=repository.id, tag=tag, commit=commit, version_id=version.id, author=author, at=now()
    )
    session.add(publication)
    record_tags(session, repository)
    return session.get_one(Publication, publication.id, populate_existing=True)


def record_tags(session: Session, repository: Repository) -> None:
    """Record the published tags of a repository permanently, under the repository's name.

    Raises Conflict if a tag or branch of it named another card before.
    """
    published = {
        p.tag: p for p in session.scalars(select(Publication).filter_by(repository_id=repository.id))
    }
    revisions = dict.fromkeys(session.scalars(select(Ref.name).where(Ref.repository_id == repository.id)))
    require_unpublished(session, repository, revisions | {tag: p.version for tag, p in published.items()})
    recorded = select(PublishedTag.tag).where(PublishedTag.name == repository.folded)
    for tag in published.keys() - set(session.scalars(recorded)):
        version = published[tag].published
        values = {"sha256": version.sha256, "number": version.number}
        session.add(PublishedTag(name=repository.folded, tag=tag, **values))


# Kinds of cards without a trained model, which need no exam.
UNTRAINED_KINDS = ("reference", "llm")
MAX_DOCUMENT_BYTES = 16_000_000  # bytes of a manifest or an exam


class Publications:
    """The publications of a hub.

    exam_required  whether a card with a trained model needs an exam
    quota          the default quota of a namespace in bytes
    """

    def __init__(
        self, database: Database, blobs: Blobs, *, exam_required: bool = True, quota: int | None = None
    ) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota
        self._exam_required = exam_required

    def publish(
        self, repository: Repository, tag: str, sha: str, identity: Identity, message: str = ""
    ) -> Publication | None:
        """Create the tag and the version of the commit's card, both or neither.

        Returns None, without a tag, if the commit has no card or the repository is a dataset. The same card under
        another tag is the same version. Raises Invalid or Dangerous for an incomplete or malformed card, and what
        Refs.create_tag and `require_write_now` raise.
        """
        tree: Mapping[str, Entry] = {}
        if repository.type == "model":
            with self._database.read() as session:
                tree = history.read_tree(session, repository, sha)
        if MANIFEST not in tree:
            return None
        # The manifest, and the files that it lists.
        try:
            text = self._read(tree[MANIFEST]).decode()
            manifest = Manifest.from_json(text)
            check_manifest(manifest)
        except (CardError, UnicodeDecodeError) as error:
            raise Invalid(f"can't publish the card: {error}") from error
        files = self._check_files(tree, manifest)
        try:
            check_counts(manifest.name, files, lambda path: self._blobs.open(files[path].sha256))
        except CardError as error:
            raise Invalid(f"can't publish the card: {error}") from error
        # The exam, which must be plausible if the card needs one.
        card = CheckedCard.read(text, manifest, files, lambda path: self._read(files[path]))
        exam = card.declared
        needed = self._exam_required and manifest.has_model and manifest.kind not in UNTRAINED_KINDS
        if needed and (exam is None or exam.fault):
            fault = "missing" if exam is None else f"not plausible ({exam.fault})"
            raise Invalid(
                f"can't publish the card: {EXAM_FILE} is {fault}; run `kcard exam CARD` and commit the card again"
            )
        # The tag and the version, unless another tag has published it.
        with self._database.write() as session:
            require_write_now(session, identity, repository.id)
            publication = publish_commit(session, repository, card, sha, tag, message, identity.name)
            quotas.require_quota(session, quotas.require_owner(session, repository.id), self._quota)
            return publication

    def list(self, repository: Repository) -> "list[Publication]":
        """Return the publications of a repository, oldest first."""
        query = select(Publication).where(Publication.repository_id == repository.id)
        with self._database.read() as session:
            return [*session.scalars(query.order_by(Publication.id))]

    def summarize(self, ids: Iterable[int]) -> dict[int, Version]:
        """Return the newest version of each of these repositories, if it has one, with its figures."""
        repository_ids = list(ids)
        if not repository_ids:
            return {}
        query = ALL_VERSIONS.where(IS_NEWEST, Version.repository_id.in_(repository_ids))
        with self._database.read() as session:
            return {row.repository_id: row for row in load_versions(session, query)}

    def _check_files(self, tree: Mapping[str, Entry], manifest: Manifest) -> dict[str, Entry]:
        """Return the files of the card. Raises Invalid unless all match the manifest and have allowed content."""
        # Every file that the manifest lists is in the commit, with the same sha256.
        files = {MANIFEST: tree[MANIFEST]}
        for path, sha256 in manifest.files.items():
            entry = tree.get(path)
            if entry is None:
                raise Invalid(f"can't publish the card: {path}, listed in {MANIFEST}, is not in the commit")
            if entry.sha256 != sha256:
                raise Invalid(
                    f"can't publish the card: {path} has sha256 {entry.sha256[:12]}…, but {sha256[:12]}… in "
                    f"{MANIFEST}: seal the card again, and commit all of its files"
                )
            files[path] = entry
        # Its content is allowed, by the stored verdict of the commit, else by a new check.
        forms = {path: check_name(path, entry.size) for path, entry in files.items()}
        verdicts = Verdicts(self._database).find([(files[path].sha256, form) for path, form in forms.items()])
        for path, form in forms.items():
            entry = files[path]
            verdict = verdicts.get((entry.sha256, form))
            if verdict is not None:
                verdict.enforce(path)
            else:
                check_content(path, entry.size, form, lambda entry=entry: self._blobs.open(entry.sha256))  # type: ignore[misc]
        return files

    def _read(self, entry: Entry) -> bytes:
        if entry.size > MAX_DOCUMENT_BYTES:
            raise TooLarge(f"{entry.path} has {entry.size} bytes: the limit is {MAX_DOCUMENT_BYTES}")
        with self._blobs.open(entry.sha256) as stream:
            content: bytes = stream.read(MAX_DOCUMENT_BYTES)
        return content


# The cards of the hub's own namespace. A version is a commit with a tag; an alias is a branch.


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
        card = CheckedCard.read(manifest, parsed, tree, content)
        with self._database.write() as session:
            locked()
            # The namespace, created for the first card.
            own = session.scalar(select(Account).where(Account.folded == OWN_NAMESPACE))
            if own is None:
                own = Account(name=OWN_NAMESPACE, folded=OWN_NAMESPACE, kind="organisation")
                session.add(own)
                session.flush()
            # The repository of the card, likewise.
            name = parsed.name
            repository = session.scalar(select(Repository).where(is_card(name)))
            if repository is None:
                full = full_name(name)
                repository = Repository(type="model", namespace_id=own.id, name=full, folded=fold_name(full))
                session.add(repository)
                session.flush()
            # The version, unless it exists: a commit on main, with its tag.
            same = select(Version).filter_by(repository_id=repository.id, sha256=card.sha256)
            version = session.scalar(same)
            if version is None:
                tag = f"v{next_number(session, repository, card.sha256)}"
                head = history.find_head(session, repository.id, MAIN)
                before = None if head is None else history.read_commit_tree(session, repository, head)
                title, author = f"{name} {tag}", own.name
                draft = history.draft_commit(repository.id, before, tree, title, parsed.description, author)
                history.write_commit(session, MAIN, draft)
                history.add_holdings(session, repository.id, {entry.sha256: entry for entry in tree.values()})
                write_metadata(session, repository, metadata, draft.commit)
                message = f"{name} {card.sha256}"
                publication = publish_commit(
                    session, repository, card, draft.commit.sha, tag, message, author
                )
                version = publication.published
            for alias in aliases:
                _point_alias(session, version, alias)
            return find_versions(session, Version.id == version.id)[0]

    def alias(self, version: Version, alias: str) -> Version | None:
        """Point an alias of the card at this version; None if the version was removed."""
        with self._database.write() as session:
            row = find_row(session, version)
            if row is None:
                return None
            _point_alias(session, row, alias)
            return find_versions(session, Version.id == row.id)[0]

    def remove(self, gone: Iterable[Version]) -> None:
        """Delete versions. For the hub's own cards, also delete commits, tags and aliases, and cards without versions.

        Repositories in other namespaces stay, since they belong to their users.
        """
        with self._database.write() as session:
            for version in gone:
                row = find_row(session, version)
                if row is None:
                    continue
                session.execute(delete(Version).where(Version.id == row.id))
                search_index.update_rows(session, row.repository_id)
                if "/" not in version.name:
                    _delete_version_commit(session, row.repository_id, row.commit, self._blobs)


def _point_alias(session: Session, version: Version, alias: str) -> None:
    """Point the branch of an alias at the commit of a version."""
    if session.get(Ref, (version.repository_id, TAG, alias)) is not None:
        raise Conflict(f"alias {alias!r} conflicts with a tag of the card: choose another alias")
    history.point_branch(session, version.repository_id, alias, version.commit)


def _delete_version_commit(session: Session, repository_id: int, sha: str, blobs: Blobs) -> None:
    """Delete the commit of a removed version with its refs; after the last version, the whole repository."""
    left = select(Version.commit).where(Version.repository_id == repository_id)
    newest = session.scalar(left.order_by(Version.number.desc()).limit(1))
    if newest is None:
        quotas.discount_repository(session, repository_id)
        session.execute(delete(Repository).where(Repository.id == repository_id))
        search_index.mark_removed(session)
        return
    main = history.find_head(session, repository_id, MAIN)
    parent = history.delete_commit(session, repository_id, sha) or newest
    if main != sha:
        return
    history.point_branch(session, repository_id, MAIN, parent)
    repository = session.get_one(Repository, repository_id)
    commit = session.scalars(select(Commit).filter_by(repository_id=repository_id, sha=parent)).one()
    tree = history.read_tree(session, repository, parent)
    try:
        metadata = read_metadata(tree, blobs)
    except (Refused, DamagedCard):  # an invalid or missing README.md
        metadata = CardMetadata(size=trees.total_size(tree))
    write_metadata(session, repository, metadata, commit)
