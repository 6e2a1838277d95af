"""Publications: a tag on a commit that holds a card publishes a version of it, checked and for good.

A card of a shared hub has the name of its repository, namespace/name; its version is named by the sha256 of its
manifest, as everywhere.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, select

from kcard.errors import CardError
from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_file
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import audits, commits, publications, repositories, versions
from kcard.hub.records.utc import utc
from kcard.hub.refusals import Invalid, NotThere, TooLarge
from kcard.hub.repositories import new_versions, trees, version_rows
from kcard.hub.repositories.exams import EXAM, examined, is_exam
from kcard.hub.repositories.quarantine import Quarantine
from kcard.hub.repositories.refs import put_tag
from kcard.hub.repositories.values import Entry, Mark, Publication, Repository
from kcard.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from kcard.hub.store.blobs import Blobs

__all__ = ["Publications"]

# Nobody trained these here: what another hub or another model knows is not examined.
UNTRAINED = ("reference", "llm")
LONGEST = 16_000_000  # bytes of a manifest or an exam


class Publications:
    """What the repositories of a hub published.

    exam_required  whether a card with a trained model must come with its exam
    """

    def __init__(
        self, database: Database, blobs: "Blobs", quarantine: Quarantine, *, exam_required: bool = True
    ) -> None:
        self._database, self._blobs, self._quarantine = database, blobs, quarantine
        self._exam_required = exam_required

    def publish(
        self, repository: Repository, tag: str, sha: str, identity: Identity, message: str = ""
    ) -> Publication | None:
        """Make the tag, and the version of the card that the commit holds, both or neither.

        None, and no tag: the commit holds no card, or the repository is a dataset. The same card under another tag
        is the same version. Raises Invalid or Dangerous for a card that is not whole or not well-formed, and what
        Refs.create_tag raises.
        """
        tree = self._tree(repository, sha) if repository.type == "model" else {}
        if MANIFEST not in tree:
            return None
        text, manifest = self._manifest(tree[MANIFEST])
        files = self._files(tree, manifest)
        factuality = self._exam(files, manifest)
        with self._database.write() as connection:
            put_tag(connection, repository, tag, sha, message)
            same = (versions.c.repository_id == repository.id, versions.c.sha256 == files[MANIFEST].sha256)
            version = connection.scalar(select(versions.c.id).where(*same))
            if version is None:
                version = new_versions.add(connection, repository.id, text, manifest, files, sha, factuality)
            new_versions.publication(connection, repository.id, tag, sha, version, identity.name)
            row = connection.execute(_rows(repository).where(publications.c.tag == tag)).one()
        return _publication(row)

    def of(self, repository: Repository) -> list[Publication]:
        """What a repository published, oldest first."""
        with self._database.read() as connection:
            return [_publication(row) for row in connection.execute(_rows(repository))]

    def marks(self, ids: Iterable[int]) -> dict[int, Mark]:
        """What is known of the newest version of each of these repositories; those without one are left out."""
        wanted = list(ids)
        if not wanted:
            return {}
        threshold = self._quarantine.threshold
        with self._database.read() as connection:
            rows = connection.execute(_newest().where(versions.c.repository_id.in_(wanted))).all()
        return {row.repository_id: _mark(row, threshold) for row in rows}

    def _tree(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        here = (commits.c.repository_id == repository.id, commits.c.sha == sha)
        with self._database.read() as connection:
            text = connection.scalar(select(commits.c.tree).where(*here))
        if text is None:
            raise NotThere("revision", f"{repository.name} has no commit {sha[:64]!r}")
        return trees.loads(text)

    def _manifest(self, entry: Entry) -> tuple[str, Manifest]:
        try:
            text = self._read(entry).decode()
            return text, Manifest.from_json(text)
        except (CardError, UnicodeDecodeError) as error:
            raise Invalid(f"the card can't be published: {error}") from error

    def _files(self, tree: Mapping[str, Entry], manifest: Manifest) -> dict[str, Entry]:
        """The files of the card, the manifest among them, each as the manifest says and fit to be stored."""
        files = {MANIFEST: tree[MANIFEST]}
        for path, sha256 in manifest.files.items():
            entry = tree.get(path)
            if entry is None:
                raise Invalid(f"the card can't be published: {MANIFEST} names {path}, which the commit lacks")
            if entry.sha256 != sha256:
                raise Invalid(
                    f"the card can't be published: {path} has sha256 {entry.sha256[:12]}…, and {sha256[:12]}… in "
                    f"{MANIFEST}: seal the card again, and commit all of its files"
                )
            files[path] = entry
        for path, entry in files.items():
            check_file(path, entry.size, lambda sha256=entry.sha256: self._blobs.open(sha256))  # type: ignore[misc]
        return files

    def _exam(self, files: Mapping[str, Entry], manifest: Manifest) -> float | None:
        """Mean factuality by the card's exam; None where it has none, or was asked for none against other evidence."""
        text = self._read(files[EXAM]) if EXAM in files else None
        needed = self._exam_required and manifest.has_model and manifest.kind not in UNTRAINED
        if needed and (text is None or not is_exam(text)):
            fault = "is not among its files" if text is None else "is no exam"
            raise Invalid(
                f"the card can't be published: its {EXAM} {fault}; take its exam (kcard exam CARD) and commit it again"
            )
        return None if text is None else examined(text)

    def _read(self, entry: Entry) -> bytes:
        if entry.size > LONGEST:
            raise TooLarge(f"{entry.path} has {entry.size} bytes: at most {LONGEST} are read of it")
        with self._blobs.open(entry.sha256) as stream:
            content: bytes = stream.read(LONGEST)
        return content


def _rows(repository: Repository) -> Select[Any]:
    return (
        select(publications, versions.c.sha256.label("version"), versions.c.number)
        .join_from(publications, versions)
        .where(publications.c.repository_id == repository.id)
        .order_by(publications.c.id)
    )


def _publication(row: Row[Any]) -> Publication:
    return Publication(row.tag, row.sha, row.version, row.number, row.author, utc(row.at))


def _newest() -> Select[Any]:
    """The newest version that each repository published, with its exam's and its latest audit's factuality."""
    measured = (audits.c.version_id == versions.c.id, audits.c.factuality.is_not(None))
    audited = (
        select(audits.c.factuality).where(*measured).order_by(audits.c.id.desc()).limit(1).scalar_subquery()
    )
    columns = (versions.c.repository_id, versions.c.factuality, versions.c.sha256, versions.c.number)
    return (
        select(*columns, versions.c.description, repositories.c.name, audited.label("audited"))
        .join_from(versions, repositories)
        .where(version_rows.newest())
    )


def _mark(row: Row[Any], threshold: float | None) -> Mark:
    factuality = row.factuality if row.audited is None else row.audited
    held = threshold is not None and factuality is not None and factuality < threshold
    reference = f"{row.name}@v{row.number}"
    return Mark(reference, row.sha256, factuality, row.audited is not None, held, row.description)
