"""Counters of quotas, reservations, and verdicts of checks. Uploads know whose quota they are charged to."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from kcard.errors import HubError
from kcard.hub.migrations.columns import owner
from kcard.hub.migrations.versions.v0004_shared import order_by_bytes

__all__ = ["downgrade", "upgrade"]

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    op.add_column("accounts", sa.Column("used", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(
        "repositories", sa.Column("tree_bytes", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("holdings", sa.Column("namespace_id", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_holdings_namespace_id_sha256", "holdings", ["namespace_id", "sha256"])
    _replace("uploads", _create_uploads)
    _create_tables()
    _count("octet_length(tree)" if postgresql else "length(CAST(tree AS BLOB))")
    if postgresql:
        order_by_bytes(but=("search",))  # its words compare so already


def downgrade() -> None:
    raise HubError("downgrades are not supported: restore an older backup")


def _replace(table: str, create: Any) -> None:
    """Create a table with more columns and the same rows, which nobody is charged for."""
    connection = op.get_bind()
    old = sa.Table(table, sa.MetaData(), autoload_with=connection)
    rows = [dict(row) for row in connection.execute(sa.select(old)).mappings()]
    op.drop_table(table)
    new = create()
    if rows:
        op.bulk_insert(new, rows)


def _create_uploads() -> sa.Table:
    return op.create_table(
        "uploads",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("account_id", "accounts.id"),
        sa.Column("sha256", sa.String(64), nullable=False, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, index=True),
        owner("namespace_id", "accounts.id", nullable=True, index=True),
        _repository(),
        sa.Index("ix_uploads_account_id_sha256", "account_id", "sha256"),
    )


def _repository() -> "sa.Column[int]":
    key = sa.ForeignKey("repositories.id", ondelete="SET NULL")
    return sa.Column("repository_id", sa.Integer(), key, index=True)


def _create_tables() -> None:
    op.create_table(
        "verdicts",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("form", sa.String(16), primary_key=True),
        sa.Column("rules", sa.Integer(), nullable=False),
        sa.Column("refusal", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("namespace_id", "accounts.id", index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True)),
        sa.Column("upload", sa.String(100), index=True),
        sa.Column("number", sa.Integer()),
    )


def _count(tree_bytes: str) -> None:
    """Count what is committed."""
    op.execute(
        f"UPDATE repositories SET tree_bytes = (SELECT coalesce(sum({tree_bytes}), 0) FROM commits "
        "WHERE commits.repository_id = repositories.id)"
    )
    op.execute(
        "UPDATE holdings SET namespace_id = (SELECT namespace_id FROM repositories "
        "WHERE repositories.id = holdings.repository_id)"
    )
    blobs = "SELECT DISTINCT sha256, size FROM holdings WHERE holdings.namespace_id = accounts.id"
    op.execute(
        f"UPDATE accounts SET used = (SELECT coalesce(sum(size), 0) FROM ({blobs}) AS blobs) + (SELECT "
        "coalesce(sum(tree_bytes), 0) FROM repositories WHERE repositories.namespace_id = accounts.id)"
    )
