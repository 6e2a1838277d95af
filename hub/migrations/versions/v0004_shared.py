"""Shared hubs: accounts, tokens, repositories with their commits, uploads."""

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["order_by_bytes", "upgrade"]

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    if postgresql:  # SQLite ignores lengths; a shared card is called namespace/name
        op.alter_column("cards", "name", type_=sa.String(200))
        op.alter_column("members", "card", type_=sa.String(200))
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("folded", sa.String(96), nullable=False, unique=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("fullname", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("quota", sa.BigInteger()),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(96)),
        sa.Column("action", sa.String(64), nullable=False, index=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_table(
        "memberships",
        owner("organisation_id", "accounts.id", primary_key=True),
        owner("user_id", "accounts.id", primary_key=True, index=True),
        sa.Column("role", sa.String(16), nullable=False),
    )
    op.create_table(
        "repositories",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("namespace_id", sa.Integer(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("folded", sa.String(200), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("gated", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("modified", sa.DateTime(timezone=True), nullable=False),
        sa.Column("downloads", sa.Integer(), nullable=False),
        sa.Column("likes", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(40)),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("pipeline_tag", sa.Text()),
        sa.Column("library", sa.Text()),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("type", "folded"),
    )
    op.create_index("ix_repositories_type_created", "repositories", ["type", "created", "id"])
    op.create_index("ix_repositories_type_downloads", "repositories", ["type", "downloads", "id"])
    op.create_index("ix_repositories_type_likes", "repositories", ["type", "likes", "id"])
    op.create_index("ix_repositories_type_modified", "repositories", ["type", "modified", "id"])
    op.create_table(
        "uploads",
        owner("account_id", "accounts.id", primary_key=True),
        sa.Column("sha256", sa.String(64), primary_key=True, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, index=True),
    )
    op.create_table(
        "access",
        owner("repository_id", "repositories.id", primary_key=True),
        owner("account_id", "accounts.id", primary_key=True, index=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("asked", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("repository_id", "repositories.id"),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("parent", sa.String(40)),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("date", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.UniqueConstraint("repository_id", "sha"),
    )
    op.create_table(
        "holdings",
        owner("repository_id", "repositories.id", primary_key=True),
        sa.Column("sha256", sa.String(64), primary_key=True, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "likes",
        owner("repository_id", "repositories.id", primary_key=True),
        owner("account_id", "accounts.id", primary_key=True, index=True),
    )
    op.create_table(
        "publications",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("repository_id", "repositories.id"),
        sa.Column("tag", sa.String(250), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        owner("version_id", "versions.id", index=True),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("factuality", sa.Float()),
        sa.UniqueConstraint("repository_id", "tag"),
    )
    op.create_table(
        "refs",
        owner("repository_id", "repositories.id", primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("name", sa.String(250), primary_key=True),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
    )
    op.create_table(
        "terms",
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column(
            "term", sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql"), primary_key=True
        ),
        owner("repository_id", "repositories.id", primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_terms_repository_id_kind_term", "terms", ["repository_id", "kind", "term"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("account_id", "accounts.id", index=True),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("scope", sa.String(16), nullable=False),
        owner("repository_id", "repositories.id", index=True, nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True)),
    )
    if postgresql:
        order_by_bytes()


def order_by_bytes(but: Collection[str] = ()) -> None:
    """Make text columns compare by bytes, as in SQLite, whatever the database's locale, `but` those of some tables."""
    connection = op.get_bind()
    texts = "data_type IN ('text', 'character varying') AND table_schema = current_schema()"
    columns = sa.text(
        "SELECT table_name, column_name, data_type, character_maximum_length "
        f"FROM information_schema.columns WHERE {texts} ORDER BY table_name, ordinal_position"
    )
    changes: dict[str, list[str]] = {}
    for table, column, kind, length in connection.execute(columns).tuples().all():
        if table in but:
            continue
        type_ = kind if length is None else f"{kind}({length})"
        changes.setdefault(table, []).append(f'ALTER COLUMN "{column}" TYPE {type_} COLLATE "C"')
    for table, alterations in changes.items():
        connection.execute(sa.text(f'ALTER TABLE "{table}" {", ".join(alterations)}'))
