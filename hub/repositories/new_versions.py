"""Writes the rows of a new version of a card, and of the tags that publish it."""

from sqlalchemy import Connection, insert, select, update

from kcard.hub.records.repository_tables import publications, repositories, versions
from kcard.hub.records.utc import now
from kcard.hub.repositories import job_rows, search_rows, trees
from kcard.hub.repositories.exams import has_weights
from kcard.hub.repositories.figures import Declared
from kcard.hub.repositories.trees import Tree
from kcard.manifest import MANIFEST, Manifest

__all__ = ["add", "following", "publication"]


def following(connection: Connection, repository_id: int) -> int:
    """The number of the repository's next version, which was never used before."""
    here = select(repositories.c.newest).where(repositories.c.id == repository_id)
    return int(connection.execute(here).scalar_one()) + 1


def add(
    connection: Connection,
    repository_id: int,
    text: str,
    manifest: Manifest,
    tree: Tree,
    sha: str,
    declared: Declared | None,
) -> int:
    """Write the next version of a repository's card, have it measured if the hub does so, and return its id.

    `text` is that of kcard.json, `tree` has the files of the card, `sha` is their commit, `declared` has the figures of
    its exam.
    """
    number = following(connection, repository_id)
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
        "fault": declared.fault if declared else "",
    }
    made = int(connection.execute(insert(versions).values(values).returning(versions.c.id)).scalar_one())
    if job_rows.measurable(manifest) and job_rows.is_on(connection):
        job_rows.enqueue(connection, made)
    search_rows.put(connection, repository_id)
    return made


def publication(
    connection: Connection, repository_id: int, tag: str, sha: str, version: int, by: str
) -> None:
    """Record that a tag publishes a version."""
    values = {"repository_id": repository_id, "tag": tag, "sha": sha, "version_id": version}
    connection.execute(insert(publications).values(**values, author=by, at=now()))
