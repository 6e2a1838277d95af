"""The tables of a new hub, as the models describe them, and the full-text index that they can't describe.

A new database is then stamped with the newest revision: later revisions are for databases that exist.
"""

import sqlalchemy as sa
from alembic import op

from kcard.hub.db.models import metadata

revision = "0105"
down_revision = None

COLUMNS = ("name_words", "domain_words", "description_words", "tag_words")
NEW_VALUES = ", ".join(f"new.{name}" for name in COLUMNS)
OLD_VALUES = ", ".join(f"old.{name}" for name in COLUMNS)
TEXT = ", ".join(COLUMNS)
DELETE_ROW = f"INSERT INTO search_text (search_text, rowid, {TEXT}) VALUES ('delete', old.repository_id, {OLD_VALUES});"
INSERT_ROW = f"INSERT INTO search_text (rowid, {TEXT}) VALUES (new.repository_id, {NEW_VALUES});"
SQLITE = (
    # The words are normalised already: the tokenizer only splits at spaces.
    f"CREATE VIRTUAL TABLE search_text USING fts5({TEXT}, content='search', content_rowid='repository_id', "
    "tokenize='unicode61 remove_diacritics 0', prefix='2 3')",
    f"CREATE TRIGGER search_inserted AFTER INSERT ON search BEGIN {INSERT_ROW} END",
    f"CREATE TRIGGER search_deleted AFTER DELETE ON search BEGIN {DELETE_ROW} END",
    f"CREATE TRIGGER search_updated AFTER UPDATE OF {TEXT} ON search BEGIN {DELETE_ROW} {INSERT_ROW} END",
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
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.execute("INSERT INTO search_clock (id, changed, removed) VALUES (1, 0, 0)")
    if postgresql:
        _order_by_bytes()
    for statement in POSTGRESQL if postgresql else SQLITE:
        op.get_bind().exec_driver_sql(statement)


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
