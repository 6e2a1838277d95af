"""Self-declared and verified figures, and jobs."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from kcard.batches import batched
from kcard.errors import CardError, DamagedCard
from kcard.hub.migrations.columns import owner
from kcard.hub.repositories.exams import EXAM, declared, has_weights
from kcard.manifest import Manifest

__all__ = ["upgrade"]

CHUNK = 200  # versions

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("versions", _new("weights", sa.Boolean(), sa.false()))
    op.add_column("versions", _new("examined", sa.Boolean(), sa.false()))
    op.add_column("versions", sa.Column("recall", sa.Float()))
    op.add_column("versions", _new("fault", sa.Text(), ""))
    op.add_column("audits", _new("kind", sa.String(16), "audit"))
    op.add_column("audits", sa.Column("recall", sa.Float()))
    op.add_column("audits", sa.Column("released", sa.DateTime(timezone=True)))
    _create_tables()
    _read_exams(op.get_bind())


def _new(name: str, kind: Any, value: Any) -> "sa.Column[Any]":
    """A column that is not null, with a value for the rows that are there."""
    return sa.Column(name, kind, nullable=False, server_default=value)


def _create_tables() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("version_id", "versions.id", index=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("worker", sa.String(96)),
        sa.Column("lease", sa.DateTime(timezone=True)),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text()),
    )
    op.create_index("ix_jobs_state_due", "jobs", ["state", "due"])


def _read_exams(connection: sa.Connection) -> None:
    """Fill the new columns of the versions that are there."""
    tables = sa.MetaData()
    tables.reflect(connection, only=["versions"])
    versions = tables.tables["versions"]
    ids = connection.scalars(sa.select(versions.c.id)).all()
    for chunk in batched(ids, CHUNK):
        rows = sa.select(versions.c.id, versions.c.manifest).where(versions.c.id.in_(chunk))
        for row in connection.execute(rows).all():
            values = _values(row.manifest)
            connection.execute(sa.update(versions).where(versions.c.id == row.id).values(values))


def _values(text: str) -> dict[str, object]:
    """The new columns of a version with this manifest."""
    try:
        manifest = Manifest.from_json(text)
    except CardError:  # whoever uses the card is told what is wrong
        return {"weights": False}
    exam = {"examined": True, **_figures(manifest)} if EXAM in manifest.files else {}
    return {"weights": has_weights(manifest), **exam}


def _figures(manifest: Manifest) -> dict[str, object]:
    try:
        if (read := context.config.attributes.get("blob")) is None:
            raise DamagedCard("the files of the hub are not at hand")
        found = declared(read(manifest.files[EXAM]), manifest)
    except DamagedCard:
        return {"fault": "the hub can't read it"}
    return {"recall": found.recall, "factuality": found.factuality, "fault": found.fault}
