"""Publication of versions of cards.

The card is called like its repository, namespace/name; the sha256 of its manifest names the version.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, or_, select, update

from kcard.errors import CardError
from kcard.hub import figures, history, search_index, trees
from kcard.hub.accounts import Identity, fold_name
from kcard.hub.checks.content import check_content, check_name
from kcard.hub.checks.metadata import LONGEST_DESCRIPTION, check_manifest
from kcard.hub.db.models import now, publications, published_tags, refs, repositories, utc, versions
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid, TooLarge
from kcard.hub.figures import EXAM_FILE, has_weights, read_exam
from kcard.hub.history import put_tag, require_unpublished
from kcard.hub.storage import Blobs
from kcard.hub.trees import Tree
from kcard.hub.uploads import Verdicts
from kcard.hub.values import (
    DeclaredFigures,
    Entry,
    Publication,
    Repository,
    VerifiedFigures,
    VersionSummary,
    quarantine_reason,
)
from kcard.hub.versions import declared_figures, is_newest, is_unexamined
from kcard.manifest import MANIFEST, Manifest, check_counts

__all__ = ["Publications", "add_publication", "add_version", "next_number", "record_tags"]


# Rows of a new version of a card, and of the tags that publish it, within a transaction of the caller.
#
# A published tag is permanent: what a name and a tag meant is recorded, and stays when the repository is deleted or
# renamed, so that another card can't take its place.


def next_number(connection: Connection, repository_id: int, sha256: str) -> int:
    """Return the number of the repository's next version, whose manifest has this sha256.

    Numbers are never reused. In a repository that was deleted and created again, the same card gets its old number.
    """
    here = select(repositories.c.newest, repositories.c.folded).where(repositories.c.id == repository_id)
    newest, name = connection.execute(here).one()
    of = select(func.max(published_tags.c.number)).where(published_tags.c.name == name)
    same = connection.scalar(of.where(published_tags.c.sha256 == sha256)) or 0
    return int(same if same > newest else max(newest, connection.scalar(of) or 0) + 1)


def add_version(
    connection: Connection,
    repository_id: int,
    text: str,
    manifest: Manifest,
    tree: Tree,
    sha: str,
    declared: DeclaredFigures | None,
) -> int:
    """Write the next version of a repository's card, and return its id.

    `text` is that of kcard.json, `tree` has the files of the card, `sha` is their commit, `declared` has the figures of
    its exam.
    """
    number = next_number(connection, repository_id, tree[MANIFEST].sha256)
    connection.execute(update(repositories).where(repositories.c.id == repository_id).values(newest=number))
    values = {
        "repository_id": repository_id,
        "number": number,
        "sha256": tree[MANIFEST].sha256,
        "sha": sha,
        "manifest": text,
        "description": manifest.description,
        "domain": manifest.domain,
        "base": manifest.base.name,
        "size": trees.total_size(tree),
        "published": now(),
        "weights": has_weights(manifest),
        "examined": declared is not None,
        "recall": declared and declared.recall,
        "factuality": declared and declared.factuality,
        "coverage": declared and declared.coverage,
        "fault": declared.fault if declared else "",
    }
    version_id = int(
        connection.execute(insert(versions).values(values).returning(versions.c.id)).scalar_one()
    )
    search_index.update_rows(connection, repository_id)
    return version_id


def add_publication(
    connection: Connection, repository_id: int, tag: str, sha: str, version: int, by: str
) -> None:
    """Record that a tag publishes a version. Raises as `record_tags`."""
    values = {"repository_id": repository_id, "tag": tag, "sha": sha, "version_id": version}
    connection.execute(insert(publications).values(**values, author=by, at=now()))
    here = select(repositories.c.name).where(repositories.c.id == repository_id)
    record_tags(connection, repository_id, connection.execute(here).scalar_one())


def record_tags(connection: Connection, repository_id: int, name: str) -> None:
    """Record the published tags of a repository permanently, under the repository's name.

    Raises Conflict if a tag or branch of it named another card before.
    """
    revisions = select(refs.c.name).where(refs.c.repository_id == repository_id)
    published = (
        select(publications.c.tag, versions.c.sha256, versions.c.number)
        .join_from(publications, versions)
        .where(publications.c.repository_id == repository_id)
    )
    rows = {row.tag: row for row in connection.execute(published)}
    cards = dict.fromkeys(connection.scalars(revisions)) | {tag: row.sha256 for tag, row in rows.items()}
    require_unpublished(connection, repository_id, name, cards)
    of_name = published_tags.c.name == fold_name(name)
    for tag in rows.keys() - set(connection.scalars(select(published_tags.c.tag).where(of_name))):
        values = {"tag": tag, "sha256": rows[tag].sha256, "number": rows[tag].number}
        connection.execute(insert(published_tags).values(name=fold_name(name), **values))


# Kinds of cards without a trained model, which need no exam.
UNTRAINED = ("reference", "llm")
LONGEST = 16_000_000  # bytes of a manifest or an exam


class Publications:
    """The publications of a hub.

    exam_required  whether a card with a trained model needs an exam
    """

    def __init__(self, database: Database, blobs: Blobs, *, exam_required: bool = True) -> None:
        self._database, self._blobs = database, blobs
        self._exam_required = exam_required

    def publish(
        self, repository: Repository, tag: str, sha: str, identity: Identity, message: str = ""
    ) -> Publication | None:
        """Create the tag and the version of the commit's card, both or neither.

        Returns None, without a tag, if the commit has no card or the repository is a dataset. The same card under
        another tag is the same version. Raises Invalid or Dangerous for an incomplete or malformed card, and what
        Refs.create_tag raises.
        """
        tree: Mapping[str, Entry] = {}
        if repository.type == "model":
            with self._database.read() as connection:
                tree = history.read_tree(connection, repository, sha)
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
        exam = read_exam(self._read(files[EXAM_FILE]), manifest) if EXAM_FILE in files else None
        needed = self._exam_required and manifest.has_model and manifest.kind not in UNTRAINED
        if needed and (exam is None or exam.fault):
            fault = "missing" if exam is None else f"not plausible ({exam.fault})"
            raise Invalid(
                f"can't publish the card: {EXAM_FILE} is {fault}; run `kcard exam CARD` and commit the card again"
            )
        # The tag and the version, unless another tag has published it.
        with self._database.write() as connection:
            put_tag(connection, repository, tag, sha, message, files[MANIFEST].sha256)
            same = (versions.c.repository_id == repository.id, versions.c.sha256 == files[MANIFEST].sha256)
            version = connection.scalar(select(versions.c.id).where(*same))
            if version is None:
                version = add_version(connection, repository.id, text, manifest, files, sha, exam)
            add_publication(connection, repository.id, tag, sha, version, identity.name)
            row = connection.execute(_select_publications(repository).where(publications.c.tag == tag)).one()
        return _publication(row)

    def list(self, repository: Repository) -> "list[Publication]":
        """Return the publications of a repository, oldest first."""
        with self._database.read() as connection:
            return [_publication(row) for row in connection.execute(_select_publications(repository))]

    def summarize(self, ids: Iterable[int]) -> dict[int, VersionSummary]:
        """Return a summary of the newest version of each of these repositories, if it has one."""
        repository_ids = list(ids)
        if not repository_ids:
            return {}
        with self._database.read() as connection:
            threshold, floor = figures.read_limits(connection)
            rows = connection.execute(
                _select_newest().where(versions.c.repository_id.in_(repository_ids))
            ).all()
            verified = figures.verified_by_version(connection, {row.id for row in rows})
        return {row.repository_id: _summary(row, verified.get(row.id), threshold, floor) for row in rows}

    def quarantined(self, limit: int) -> "Sequence[VersionSummary]":
        """Return summaries of at most `limit` quarantined cards, the lowest factuality first."""
        audited, claimed = figures.audited_factuality(), versions.c.factuality
        with self._database.read() as connection:
            threshold, floor = figures.read_limits(connection)
            if threshold is None:
                return []
            query = _select_newest().where(or_(audited < threshold, claimed < threshold))
            query = query.order_by(func.coalesce(audited, claimed), repositories.c.name)
            rows = connection.execute(query).all()
            verified = figures.verified_by_version(connection, {row.id for row in rows})
        summaries = (_summary(row, verified.get(row.id), threshold, floor) for row in rows)
        # The query is coarser than the rule: some have an audit that clears them, too little coverage, or a release.
        return [*islice((summary for summary in summaries if summary.quarantined), limit)]

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
            if (verdict := verdicts.get((entry.sha256, form))) is not None:
                verdict.enforce(path)
            else:
                check_content(path, entry.size, form, lambda entry=entry: self._blobs.open(entry.sha256))  # type: ignore[misc]
        return files

    def _read(self, entry: Entry) -> bytes:
        if entry.size > LONGEST:
            raise TooLarge(f"{entry.path} has {entry.size} bytes: the limit is {LONGEST}")
        with self._blobs.open(entry.sha256) as stream:
            content: bytes = stream.read(LONGEST)
        return content


def _select_publications(repository: Repository) -> Select[Any]:
    return (
        select(publications, versions.c.sha256.label("version"), versions.c.number)
        .join_from(publications, versions)
        .where(publications.c.repository_id == repository.id)
        .order_by(publications.c.id)
    )


def _publication(row: Row[Any]) -> Publication:
    return Publication(row.tag, row.sha, row.version, row.number, row.author, utc(row.at))


def _select_newest() -> Select[Any]:
    """Return the query for the newest version of each repository."""
    dropped = {"manifest", "description"}
    columns = [column for column in versions.c if column.name not in dropped]
    # Versions that were published before descriptions had a limit, or locally, may have longer ones.
    description = func.substr(versions.c.description, 1, LONGEST_DESCRIPTION).label("description")
    return (
        select(*columns, description, repositories.c.name)
        .join_from(versions, repositories)
        .where(is_newest())
    )


def _summary(
    row: Row[Any], verified: VerifiedFigures | None, threshold: float | None, floor: float
) -> VersionSummary:
    figures = declared_figures(row)
    return VersionSummary(
        reference=f"{row.name}@v{row.number}",
        version=row.sha256,
        description=row.description,
        declared=figures,
        verified=verified,
        unexamined=is_unexamined(row),
        quarantine=quarantine_reason(figures, verified, threshold, floor),
    )
