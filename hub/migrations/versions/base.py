"""The tables of a new hub. `python -m tests.hub.base_migration` writes `_create_tables` anew from hub/records/."""

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0101"
down_revision = None

COLUMNS = ("name_words", "domain_words", "description_words", "tag_words")
NEW = ", ".join(f"new.{name}" for name in COLUMNS)
OLD = ", ".join(f"old.{name}" for name in COLUMNS)
TEXT = ", ".join(COLUMNS)
DELETED = f"INSERT INTO search_text (search_text, rowid, {TEXT}) VALUES ('delete', old.repository_id, {OLD});"
INSERTED = f"INSERT INTO search_text (rowid, {TEXT}) VALUES (new.repository_id, {NEW});"
SQLITE = (
    # The words are normalised already: the tokenizer only splits at spaces.
    f"CREATE VIRTUAL TABLE search_text USING fts5({TEXT}, content='search', content_rowid='repository_id', "
    "tokenize='unicode61 remove_diacritics 0', prefix='2 3')",
    f"CREATE TRIGGER search_inserted AFTER INSERT ON search BEGIN {INSERTED} END",
    f"CREATE TRIGGER search_deleted AFTER DELETE ON search BEGIN {DELETED} END",
    f"CREATE TRIGGER search_updated AFTER UPDATE OF {TEXT} ON search BEGIN {DELETED} {INSERTED} END",
)
VECTOR = " || ".join(
    f"setweight(to_tsvector('simple'::regconfig, {name}), '{weight}')"
    for name, weight in zip(COLUMNS, "ABCD", strict=True)
)
POSTGRESQL = (
    f"ALTER TABLE search ADD COLUMN vector tsvector GENERATED ALWAYS AS ({VECTOR}) STORED",
    "CREATE INDEX ix_search_vector ON search USING gin (vector)",
)


def upgrade() -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    _create_tables()
    op.execute("INSERT INTO search_clock (id, changed, removed) VALUES (1, 0, 0)")
    if postgresql:
        _order_by_bytes()
    for statement in POSTGRESQL if postgresql else SQLITE:
        op.get_bind().exec_driver_sql(statement)


def _create_tables() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("folded", sa.String(length=96), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("fullname", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("quota", sa.BigInteger(), nullable=True),
        sa.Column("used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("folded", name=op.f("uq_accounts_folded")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(length=96), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_action"), "events", ["action"], unique=False)
    op.create_table(
        "pools",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("name", name=op.f("uq_pools_name")),
    )
    op.create_table(
        "published_tags",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("tag", sa.String(length=250), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", "tag", name=op.f("pk_published_tags")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "search_clock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_clock")),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_settings")),
    )
    op.create_table(
        "verdicts",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("form", sa.String(length=16), nullable=False),
        sa.Column("rules", sa.Integer(), nullable=False),
        sa.Column("refusal", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "form", name=op.f("pk_verdicts")),
    )
    op.create_table(
        "members",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column(
            "card", sa.String(length=96).with_variant(sa.String(length=200), "postgresql"), nullable=False
        ),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("reference", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["pools.id"], name=op.f("fk_members_pool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pool_id", "card", name=op.f("pk_members")),
    )
    op.create_table(
        "memberships",
        sa.Column("organisation_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["accounts.id"],
            name=op.f("fk_memberships_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["accounts.id"], name=op.f("fk_memberships_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organisation_id", "user_id", name=op.f("pk_memberships")),
    )
    op.create_index(op.f("ix_memberships_user_id"), "memberships", ["user_id"], unique=False)
    op.create_table(
        "repositories",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("namespace_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("folded", sa.String(length=200), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("gated", sa.String(length=16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("modified", sa.DateTime(timezone=True), nullable=False),
        sa.Column("downloads", sa.Integer(), nullable=False),
        sa.Column("likes", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(length=40), nullable=True),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("pipeline_tag", sa.Text(), nullable=True),
        sa.Column("library", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("newest", sa.Integer(), nullable=False),
        sa.Column("tree_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["namespace_id"], ["accounts.id"], name=op.f("fk_repositories_namespace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repositories")),
        sa.UniqueConstraint("type", "folded", name=op.f("uq_repositories_type_folded")),
    )
    op.create_index(op.f("ix_repositories_namespace_id"), "repositories", ["namespace_id"], unique=False)
    op.create_index("ix_repositories_type_created", "repositories", ["type", "created", "id"], unique=False)
    op.create_index(
        "ix_repositories_type_downloads", "repositories", ["type", "downloads", "id"], unique=False
    )
    op.create_index("ix_repositories_type_likes", "repositories", ["type", "likes", "id"], unique=False)
    op.create_index("ix_repositories_type_modified", "repositories", ["type", "modified", "id"], unique=False)
    op.create_table(
        "reservations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("namespace_id", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=True),
        sa.Column("upload", sa.String(length=100), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["namespace_id"], ["accounts.id"], name=op.f("fk_reservations_namespace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_namespace_id"), "reservations", ["namespace_id"], unique=False)
    op.create_index(op.f("ix_reservations_upload"), "reservations", ["upload"], unique=False)
    op.create_table(
        "run_results",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_results_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_run_results")),
    )
    op.create_table(
        "access",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("asked", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_access_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_access_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "account_id", name=op.f("pk_access")),
    )
    op.create_index(op.f("ix_access_account_id"), "access", ["account_id"], unique=False)
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=40), nullable=False),
        sa.Column("parent", sa.String(length=40), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=96), nullable=False),
        sa.Column("date", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("delta", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_commits_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commits")),
        sa.UniqueConstraint("repository_id", "sha", name=op.f("uq_commits_repository_id_sha")),
    )
    op.create_table(
        "holdings",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("namespace_id", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_holdings_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "sha256", name=op.f("pk_holdings")),
    )
    op.create_index("ix_holdings_namespace_id_sha256", "holdings", ["namespace_id", "sha256"], unique=False)
    op.create_index(op.f("ix_holdings_sha256"), "holdings", ["sha256"], unique=False)
    op.create_table(
        "likes",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_likes_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_likes_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "account_id", name=op.f("pk_likes")),
    )
    op.create_index(op.f("ix_likes_account_id"), "likes", ["account_id"], unique=False)
    op.create_table(
        "refs",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=250), nullable=False),
        sa.Column("sha", sa.String(length=40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_refs_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", "kind", "name", name=op.f("pk_refs")),
    )
    op.create_table(
        "search",
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("name_words", sa.Text(), nullable=False),
        sa.Column("domain_words", sa.Text(), nullable=False),
        sa.Column("description_words", sa.Text(), nullable=False),
        sa.Column("tag_words", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("updates", sa.String(length=64), nullable=True),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("factuality", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_search_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repository_id", name=op.f("pk_search")),
    )
    op.create_index(op.f("ix_search_changed"), "search", ["changed"], unique=False)
    op.create_index(op.f("ix_search_updates"), "search", ["updates"], unique=False)
    op.create_table(
        "terms",
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column(
            "term",
            sa.String(length=200).with_variant(sa.String(length=200, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_terms_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("kind", "term", "repository_id", name=op.f("pk_terms")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_terms_repository_id_kind_term", "terms", ["repository_id", "kind", "term"], unique=False
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_tokens_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_tokens_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_index(op.f("ix_tokens_account_id"), "tokens", ["account_id"], unique=False)
    op.create_index(op.f("ix_tokens_repository_id"), "tokens", ["repository_id"], unique=False)
    op.create_table(
        "uploads",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace_id", sa.Integer(), nullable=True),
        sa.Column("repository_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_uploads_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["namespace_id"], ["accounts.id"], name=op.f("fk_uploads_namespace_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_uploads_repository_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_account_id_sha256", "uploads", ["account_id", "sha256"], unique=False)
    op.create_index(op.f("ix_uploads_at"), "uploads", ["at"], unique=False)
    op.create_index(op.f("ix_uploads_namespace_id"), "uploads", ["namespace_id"], unique=False)
    op.create_index(op.f("ix_uploads_repository_id"), "uploads", ["repository_id"], unique=False)
    op.create_index(op.f("ix_uploads_sha256"), "uploads", ["sha256"], unique=False)
    op.create_table(
        "versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("sha", sa.String(length=40), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.DateTime(timezone=True), nullable=False),
        sa.Column("weights", sa.Boolean(), nullable=False),
        sa.Column("examined", sa.Boolean(), nullable=False),
        sa.Column("recall", sa.Float(), nullable=True),
        sa.Column("factuality", sa.Float(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_versions_repository_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("repository_id", "number", name=op.f("uq_versions_repository_id_number")),
        sa.UniqueConstraint("repository_id", "sha256", name=op.f("uq_versions_repository_id_sha256")),
    )
    op.create_index(op.f("ix_versions_base"), "versions", ["base"], unique=False)
    op.create_index(op.f("ix_versions_domain"), "versions", ["domain"], unique=False)
    op.create_table(
        "audits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("taken", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checker", sa.Text(), nullable=False),
        sa.Column("checker_sha256", sa.String(length=64), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=True),
        sa.Column("evidence_sha256", sa.String(length=64), nullable=True),
        sa.Column("queries", sa.Text(), nullable=False),
        sa.Column("queries_sha256", sa.String(length=64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("recall", sa.Float(), nullable=True),
        sa.Column("faithfulness", sa.Float(), nullable=True),
        sa.Column("factuality", sa.Float(), nullable=True),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("released", sa.DateTime(timezone=True), nullable=True),
        sa.Column("author", sa.String(length=96), nullable=True),
        sa.Column("kcard", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name=op.f("fk_audits_version_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
    )
    op.create_index(op.f("ix_audits_version_id"), "audits", ["version_id"], unique=False)
    op.create_table(
        "publications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repository_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(length=250), nullable=False),
        sa.Column("sha", sa.String(length=40), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("author", sa.String(length=96), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_publications_repository_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name=op.f("fk_publications_version_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publications")),
        sa.UniqueConstraint("repository_id", "tag", name=op.f("uq_publications_repository_id_tag")),
    )
    op.create_index(op.f("ix_publications_version_id"), "publications", ["version_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("opened", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_sessions_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_sessions_digest")),
    )
    op.create_index(op.f("ix_sessions_token_id"), "sessions", ["token_id"], unique=False)
    # ### end Alembic commands ###


def _order_by_bytes() -> None:
    """Make text columns compare by bytes, as in SQLite, whatever the locale of the PostgreSQL database."""
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
