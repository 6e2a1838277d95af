"""Tables for searching repositories. Everything in them is derived from other rows, by repositories/search_rows.py.

The migration adds the full-text index, which the database keeps up to date: for SQLite the FTS5 table `search_text`,
filled by triggers, for PostgreSQL the generated column `search.vector`.
"""

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Integer, String, Table, Text

from kcard.hub.records.tables import metadata

__all__ = ["search", "search_clock"]

# A row for each repository. The *_words are normalised words separated by spaces. `factuality` is that of the newest
# version, `verified` whether an audit of this hub measured it. `updates` is the sha256 of the version that it was
# trained on from. `changed` is the time of the last change by `search_clock`.
search = Table(
    "search",
    metadata,
    Column("repository_id", Integer, ForeignKey("repositories.id", ondelete="CASCADE"), primary_key=True),
    Column("changed", BigInteger, nullable=False, index=True),
    Column("name_words", Text, nullable=False),
    Column("domain_words", Text, nullable=False),
    Column("description_words", Text, nullable=False),
    Column("tag_words", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("licence", Text, nullable=False),
    Column("updates", String(64), index=True),
    Column("verified", Boolean, nullable=False),
    Column("factuality", Float),
)

# One row that counts the changes of `search`, and the deletions of repositories, so that readers notice them.
search_clock = Table(
    "search_clock",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("changed", BigInteger, nullable=False),
    Column("removed", BigInteger, nullable=False),
)
