"""Writes the rows of a new version of a card, and of the tags that publish it.

A published tag is permanent: what a name and a tag meant is recorded, and stays when the repository is deleted or
renamed, so that another card can't take its place.
"""

from sqlalchemy import Connection, func, insert, select, update

from kcard.hub.accounts.names import folded
from kcard.hub.records.repository_tables import publications, published_tags, refs, repositories, versions
from kcard.hub.records.utc import now
from kcard.hub.repositories import search_rows, trees
from kcard.hub.repositories.exams import has_weights
from kcard.hub.repositories.figures import Declared
from kcard.hub.repositories.refs import require_unpublished
from kcard.hub.repositories.trees import Tree
from kcard.manifest import MANIFEST, Manifest

__all__ = ["add", "following", "publication", "record"]


def following(connection: Connection, repository_id: int, sha256: str) -> int:
    """The number of the repository's next version, whose manifest has this sha256: it never was that of another one.

    In a repository that was created again, the same card gets its old number.
    """
    here = select(repositories.c.newest, repositories.c.folded).where(repositories.c.id == repository_id)
    newest, name = connection.execute(here).one()
    of = select(func.max(published_tags.c.number)).where(published_tags.c.name == name)
    same = connection.scalar(of.where(published_tags.c.sha256 == sha256)) or 0
    return int(same if same > newest else max(newest, connection.scalar(of) or 0) + 1)


def add(
    connection: Connection,
    repository_id: int,
    text: str,
    manifest: Manifest,
    tree: Tree,
    sha: str,
    declared: Declared | None,
) -> int:
    """Write the next version of a repository's card, and return its id.

    `text` is that of kcard.json, `tree` has the files of the card, `sha` is their commit, `declared` has the figures of
    its exam.
    """
    number = following(connection, repository_id, tree[MANIFEST].sha256)
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
        "size": trees.size(tree),
        "published": now(),
        "weights": has_weights(manifest),
        "examined": declared is not None,
        "recall": declared and declared.recall,
        "factuality": declared and declared.factuality,
        "coverage": declared and declared.coverage,
        "fault": declared.fault if declared else "",
    }
    made = int(connection.execute(insert(versions).values(values).returning(versions.c.id)).scalar_one())
    search_rows.put(connection, repository_id)
    return made


def publication(
    connection: Connection, repository_id: int, tag: str, sha: str, version: int, by: str
) -> None:
    """Write that a tag publishes a version. Raises as `record`."""
    values = {"repository_id": repository_id, "tag": tag, "sha": sha, "version_id": version}
    connection.execute(insert(publications).values(**values, author=by, at=now()))
    here = select(repositories.c.name).where(repositories.c.id == repository_id)
    record(connection, repository_id, connection.execute(here).scalar_one())


def record(connection: Connection, repository_id: int, name: str) -> None:
    """Record the published tags of a repository under its name, for ever.

    Raises Conflict if a tag or branch of that name was another card before.
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
    of_name = published_tags.c.name == folded(name)
    for tag in rows.keys() - set(connection.scalars(select(published_tags.c.tag).where(of_name))):
        values = {"tag": tag, "sha256": rows[tag].sha256, "number": rows[tag].number}
        connection.execute(insert(published_tags).values(name=folded(name), **values))
