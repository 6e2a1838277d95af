"""Full-text search and facets: the table search with its text index, filled for all repositories."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner
from kcard.hub.repositories import search_rows

__all__ = ["upgrade"]

revision = "0008"
down_revision = "0007"

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
    connection = op.get_bind()
    op.create_table(
        "search",
        owner("repository_id", "repositories.id", primary_key=True),
        sa.Column("changed", sa.BigInteger(), nullable=False, index=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in COLUMNS),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("updates", sa.String(64), index=True),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("factuality", sa.Float()),
    )
    op.create_table(
        "search_clock",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=False),
    )
    op.execute("INSERT INTO search_clock (id, changed, removed) VALUES (1, 0, 0)")
    for statement in POSTGRESQL if connection.dialect.name == "postgresql" else SQLITE:
        connection.exec_driver_sql(statement)
    ids = connection.scalars(sa.text("SELECT id FROM repositories ORDER BY id")).all()
    search_rows.put_all(connection, ids)
