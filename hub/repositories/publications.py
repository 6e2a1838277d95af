"""Publications: a tag on a commit with a card publishes a permanent version, after checks.

The card is called like its repository, namespace/name; the sha256 of its manifest names the version.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import Row, Select, func, or_, select

from kcard.counts import check_counts
from kcard.errors import CardError
from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_content, check_name
from kcard.hub.checks.metadata import LONGEST_DESCRIPTION, check_manifest
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import publications, repositories, versions
from kcard.hub.records.utc import utc
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories import figure_rows, history, new_versions, version_rows
from kcard.hub.repositories.exams import EXAM, declared
from kcard.hub.repositories.figures import Declared, Verified, quarantine_reason
from kcard.hub.repositories.quarantine import Quarantine
from kcard.hub.repositories.refs import put_tag
from kcard.hub.repositories.values import Entry, Mark, Publication, Repository
from kcard.hub.repositories.verdicts import Verdicts
from kcard.hub.store.blobs import Blobs
from kcard.manifest import MANIFEST, Manifest

__all__ = ["Publications"]

# Kinds without a trained model, which need no exam.
UNTRAINED = ("reference", "llm")
LONGEST = 16_000_000  # bytes of a manifest or an exam


class Publications:
    """The publications of a hub.

    exam_required  whether a card with a trained model needs an exam
    """

    def __init__(
        self, database: Database, blobs: Blobs, quarantine: Quarantine, *, exam_required: bool = True
    ) -> None:
        self._database, self._blobs, self._quarantine = database, blobs, quarantine
        self._exam_required = exam_required

    def publish(
        self, repository: Repository, tag: str, sha: str, identity: Identity, message: str = ""
    ) -> Publication | None:
        """Create the tag and the version of the commit's card, both or neither.

        Returns None, without a tag, if the commit has no card or the repository is a dataset. The same card under
        another tag is the same version. Raises Invalid or Dangerous for an incomplete or malformed card, and what
        Refs.create_tag raises.
        """
        tree = self._tree(repository, sha) if repository.type == "model" else {}
        if MANIFEST not in tree:
            return None
        text, manifest = self._manifest(tree[MANIFEST])
        files = self._files(tree, manifest)
        try:
            check_counts(manifest.name, files, lambda path: self._blobs.open(files[path].sha256))
        except CardError as error:
            raise Invalid(f"can't publish the card: {error}") from error
        figures = self._declared(files, manifest)
        with self._database.write() as connection:
            put_tag(connection, repository, tag, sha, message, files[MANIFEST].sha256)
            same = (versions.c.repository_id == repository.id, versions.c.sha256 == files[MANIFEST].sha256)
            version = connection.scalar(select(versions.c.id).where(*same))
            if version is None:
                version = new_versions.add(connection, repository.id, text, manifest, files, sha, figures)
            new_versions.publication(connection, repository.id, tag, sha, version, identity.name)
            row = connection.execute(_rows(repository).where(publications.c.tag == tag)).one()
        return _publication(row)

    def of(self, repository: Repository) -> list[Publication]:
        """The publications of a repository, oldest first."""
        with self._database.read() as connection:
            return [_publication(row) for row in connection.execute(_rows(repository))]

    def marks(self, ids: Iterable[int]) -> dict[int, Mark]:
        """A summary of the newest version of each of these repositories, if it has one."""
        wanted = list(ids)
        if not wanted:
            return {}
        threshold, floor = self._quarantine.threshold, self._quarantine.coverage
        with self._database.read() as connection:
            rows = connection.execute(_newest().where(versions.c.repository_id.in_(wanted))).all()
            verified = figure_rows.verified(connection, {row.id for row in rows})
        return {row.repository_id: _mark(row, verified.get(row.id), threshold, floor) for row in rows}

    def quarantined(self, limit: int) -> list[Mark]:
        """The marks of quarantined cards, least factual first, at most `limit`."""
        threshold, floor = self._quarantine.threshold, self._quarantine.coverage
        if threshold is None:
            return []
        audited, claimed = figure_rows.audited(), versions.c.factuality
        query = _newest().where(or_(audited < threshold, claimed < threshold))
        query = query.order_by(func.coalesce(audited, claimed), repositories.c.name)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            verified = figure_rows.verified(connection, {row.id for row in rows})
        marks = (_mark(row, verified.get(row.id), threshold, floor) for row in rows)
        # Of others an audit says more than the exam, its evidence covers too little, or they were released.
        return [*islice((mark for mark in marks if mark.quarantined), limit)]

    def _tree(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        with self._database.read() as connection:
            return history.tree(connection, repository, sha)

    def _manifest(self, entry: Entry) -> tuple[str, Manifest]:
        try:
            text = self._read(entry).decode()
            manifest = Manifest.from_json(text)
            check_manifest(manifest)
            return text, manifest
        except (CardError, UnicodeDecodeError) as error:
            raise Invalid(f"can't publish the card: {error}") from error

    def _files(self, tree: Mapping[str, Entry], manifest: Manifest) -> dict[str, Entry]:
        """The files of the card with the manifest, all matching it and allowed to be stored."""
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
        self._check(files)
        return files

    def _check(self, files: Mapping[str, Entry]) -> None:
        """Check the files that were not checked when they were committed."""
        forms = {path: check_name(path, entry.size) for path, entry in files.items()}
        known = Verdicts(self._database).find([(files[path].sha256, form) for path, form in forms.items()])
        for path, form in forms.items():
            entry = files[path]
            if (verdict := known.get((entry.sha256, form))) is not None:
                verdict.enforce(path)
            else:
                check_content(path, entry.size, form, lambda entry=entry: self._blobs.open(entry.sha256))  # type: ignore[misc]

    def _declared(self, files: Mapping[str, Entry], manifest: Manifest) -> Declared | None:
        """The figures of the card's exam; None without one. Raises Invalid if a plausible one is required."""
        found = declared(self._read(files[EXAM]), manifest) if EXAM in files else None
        needed = self._exam_required and manifest.has_model and manifest.kind not in UNTRAINED
        if needed and (found is None or found.fault):
            fault = "missing" if found is None else f"not plausible ({found.fault})"
            raise Invalid(
                f"can't publish the card: {EXAM} is {fault}; run `kcard exam CARD` and commit the card again"
            )
        return found

    def _read(self, entry: Entry) -> bytes:
        if entry.size > LONGEST:
            raise TooLarge(f"{entry.path} has {entry.size} bytes: the limit is {LONGEST}")
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
    """The newest version of each repository."""
    dropped = {"manifest", "description"}
    columns = [column for column in versions.c if column.name not in dropped]
    # Versions that were published before descriptions had a limit, or locally, may have longer ones.
    description = func.substr(versions.c.description, 1, LONGEST_DESCRIPTION).label("description")
    return (
        select(*columns, description, repositories.c.name)
        .join_from(versions, repositories)
        .where(version_rows.newest())
    )


def _mark(row: Row[Any], verified: Verified | None, threshold: float | None, floor: float) -> Mark:
    figures = version_rows.declared(row)
    return Mark(
        reference=f"{row.name}@v{row.number}",
        version=row.sha256,
        description=row.description,
        declared=figures,
        verified=verified,
        unexamined=version_rows.unexamined(row),
        quarantine=quarantine_reason(figures, verified, threshold, floor),
    )
