"""Repositories that are mirrored from another hub."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["upgrade"]

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "mirrors",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("folded", sa.String(200), nullable=False),
        sa.Column("namespace", sa.String(96), nullable=False, index=True),
        sa.Column("upstream", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("gated", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checked", sa.DateTime(timezone=True), nullable=False),
        sa.Column("refs", sa.Text()),
        sa.Column("listed", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("type", "folded"),
    )
    op.create_table(
        "mirror_commits",
        _mirror(),
        sa.Column("sha", sa.String(40), primary_key=True),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "mirror_refs",
        _mirror(),
        sa.Column("revision", sa.String(250), primary_key=True),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("checked", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "mirror_access",
        _mirror(),
        owner("account_id", "accounts.id", primary_key=True),
        sa.Column("checked", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "mirror_files",
        _mirror(),
        sa.Column("oid", sa.String(64), primary_key=True),
        sa.Column("sha256", sa.String(64), index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("until", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "upstream_tokens",
        owner("account_id", "accounts.id", primary_key=True),
        sa.Column("upstream", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )


def _mirror() -> "sa.Column[int]":
    return owner("mirror_id", "mirrors.id", primary_key=True)
