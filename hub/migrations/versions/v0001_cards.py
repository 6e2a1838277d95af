"""The first tables: cards, versions, files, aliases."""

import sqlalchemy as sa
from alembic import op

__all__ = ["downgrade", "upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "cards",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("newest", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cards"),
        sa.UniqueConstraint("name", name="uq_cards_name"),
    )
    op.create_table(
        "versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("card_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_versions"),
        sa.ForeignKeyConstraint(["card_id"], ["cards.id"], name="fk_versions_card_id", ondelete="CASCADE"),
        sa.UniqueConstraint("card_id", "number", name="uq_versions_card_id_number"),
        sa.UniqueConstraint("card_id", "sha256", name="uq_versions_card_id_sha256"),
    )
    op.create_index("ix_versions_domain", "versions", ["domain"])
    op.create_index("ix_versions_base", "versions", ["base"])
    op.create_table(
        "files",
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version_id", "path", name="pk_files"),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_files_version_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_files_sha256", "files", ["sha256"])
    op.create_table(
        "aliases",
        sa.Column("card_id", sa.Integer(), nullable=False),
        sa.Column("alias", sa.String(96), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("card_id", "alias", name="pk_aliases"),
        sa.ForeignKeyConstraint(["card_id"], ["cards.id"], name="fk_aliases_card_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_aliases_version_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_aliases_version_id", "aliases", ["version_id"])


def downgrade() -> None:
    for table in ("aliases", "files", "versions", "cards"):
        op.drop_table(table)
