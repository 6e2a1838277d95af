"""Shared hubs: accounts, tokens, repositories with their commits, uploads."""

import sqlalchemy as sa
from alembic import op

__all__ = ["downgrade", "order_by_bytes", "upgrade"]

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if (
        op.get_context().dialect.name == "postgresql"
    ):  # SQLite has no lengths; a shared card is namespace/name
        op.alter_column("cards", "name", type_=sa.String(200))
        op.alter_column("members", "card", type_=sa.String(200))
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("folded", sa.String(96), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("fullname", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("quota", sa.BigInteger()),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("folded", name="uq_accounts_folded"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(96)),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_action", "events", ["action"])
    op.create_table(
        "xorbs",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_xorbs"),
    )
    op.create_index("ix_xorbs_used", "xorbs", ["used"])
    op.create_table(
        "memberships",
        sa.Column("organisation_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["accounts.id"], name="fk_memberships_organisation_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["accounts.id"], name="fk_memberships_user_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organisation_id", "user_id", name="pk_memberships"),
    )
    op.create_index("ix_memberships_user_id", "memberships", ["user_id"])
    op.create_table(
        "repositories",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("namespace_id", sa.Integer(), nullable=False),
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
        sa.ForeignKeyConstraint(["namespace_id"], ["accounts.id"], name="fk_repositories_namespace_id"),
        sa.PrimaryKeyConstraint("id", name="pk_repositories"),
        sa.UniqueConstraint("type", "folded", name="uq_repositories_type_folded"),
    )
    op.create_index("ix_repositories_namespace_id", "repositories", ["namespace_id"])
    op.create_index("ix_repositories_type_created", "repositories", ["type", "created", "id"])
    op.create_index("ix_repositories_type_downloads", "repositories", ["type", "downloads", "id"])
    op.create_index("ix_repositories_type_likes", "repositories", ["type", "likes", "id"])
    op.create_index("ix_repositories_type_modified", "repositories", ["type", "modified", "id"])
    op.create_table(
        "uploads",
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_uploads_account_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("account_id", "sha256", name="pk_uploads"),
    )
    op.create_index("ix_uploads_at", "uploads", ["at"])
    op.create_index("ix_uploads_sha256", "uploads", ["sha256"])
    op.create_table(
        "xorb_uploads",
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_xorb_uploads_account_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["hash"], ["xorbs.hash"], name="fk_xorb_uploads_hash", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id", "hash", name="pk_xorb_uploads"),
    )
    op.create_index("ix_xorb_uploads_hash", "xorb_uploads", ["hash"])
    op.create_table(
        "access",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("asked", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_access_account_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_access_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "account_id", name="pk_access"),
    )
    op.create_index("ix_access_account_id", "access", ["account_id"])
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("parent", sa.String(40)),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("date", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_commits_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_commits"),
        sa.UniqueConstraint("repository_id", "sha", name="uq_commits_repository_id_sha"),
    )
    op.create_table(
        "holdings",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_holdings_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "sha256", name="pk_holdings"),
    )
    op.create_index("ix_holdings_sha256", "holdings", ["sha256"])
    op.create_table(
        "likes",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_likes_account_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_likes_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "account_id", name="pk_likes"),
    )
    op.create_index("ix_likes_account_id", "likes", ["account_id"])
    op.create_table(
        "publications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(250), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("factuality", sa.Float()),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_publications_repository_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_publications_version_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_publications"),
        sa.UniqueConstraint("repository_id", "tag", name="uq_publications_repository_id_tag"),
    )
    op.create_index("ix_publications_version_id", "publications", ["version_id"])
    op.create_table(
        "refs",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(250), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_refs_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "kind", "name", name="pk_refs"),
    )
    op.create_table(
        "terms",
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column(
            "term",
            sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_terms_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("kind", "term", "repository_id", name="pk_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_terms_repository_id_kind_term", "terms", ["repository_id", "kind", "term"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("repository_id", sa.Integer()),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_tokens_account_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name="fk_tokens_repository_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    op.create_index("ix_tokens_account_id", "tokens", ["account_id"])
    op.create_index("ix_tokens_repository_id", "tokens", ["repository_id"])
    if op.get_context().dialect.name == "postgresql":
        order_by_bytes()


def order_by_bytes() -> None:
    """Let texts compare as they do in SQLite, whatever language the database was made for."""
    connection = op.get_bind()
    texts = "data_type IN ('text', 'character varying') AND table_schema = current_schema()"
    columns = sa.text(
        "SELECT table_name, column_name, data_type, character_maximum_length "
        f"FROM information_schema.columns WHERE {texts} ORDER BY table_name, ordinal_position"
    )
    changes: dict[str, list[str]] = {}
    for table, column, kind, length in connection.execute(columns).tuples().all():
        type_ = kind if length is None else f"{kind}({length})"
        changes.setdefault(table, []).append(f'ALTER COLUMN "{column}" TYPE {type_} COLLATE "C"')
    for table, alterations in changes.items():
        connection.execute(sa.text(f'ALTER TABLE "{table}" {", ".join(alterations)}'))


def downgrade() -> None:
    for table in (
        "tokens",
        "terms",
        "refs",
        "publications",
        "likes",
        "holdings",
        "commits",
        "access",
        "xorb_uploads",
        "uploads",
        "repositories",
        "memberships",
        "xorbs",
        "events",
        "accounts",
    ):
        op.drop_table(table)
