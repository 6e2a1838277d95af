"""Full-text search: FTS5 in SQLite, a tsvector in PostgreSQL. Each word must be the prefix of a word of the text."""

from collections.abc import Sequence

from sqlalchemy import Connection, TextClause, text

__all__ = ["matches", "scores"]

# Both weigh words of the name most, then those of the domain, the description and the tags.
SQLITE = "SELECT rowid {score} FROM search_text WHERE search_text MATCH :words"
SQLITE_SCORE = ", -bm25(search_text, 10.0, 5.0, 2.0, 1.0)"
POSTGRESQL = (
    "SELECT repository_id {score} FROM search, to_tsquery('simple', :words) AS query WHERE vector @@ query"
)
POSTGRESQL_SCORE = ", ts_rank('{0.1, 0.2, 0.5, 1.0}', vector, query)"


def matches(connection: Connection, words: Sequence[str]) -> list[int]:
    """The ids of the repositories that have all words, as normalised by search_rows.words."""
    return list(connection.scalars(_query(connection, scored=False), {"words": _said(connection, words)}))


def scores(connection: Connection, words: Sequence[str]) -> dict[int, float]:
    """The same with how well each fits; more is better."""
    found = connection.execute(_query(connection, scored=True), {"words": _said(connection, words)})
    return {id_: float(score) for id_, score in found.tuples()}


def _query(connection: Connection, *, scored: bool) -> TextClause:
    if connection.dialect.name == "postgresql":
        return text(POSTGRESQL.replace("{score}", POSTGRESQL_SCORE if scored else ""))
    return text(SQLITE.replace("{score}", SQLITE_SCORE if scored else ""))


def _said(connection: Connection, words: Sequence[str]) -> str:
    """The words in the database's query language, which only letters and digits can't break out of."""
    if connection.dialect.name == "postgresql":
        return " & ".join(f"{word}:*" for word in words)
    return " ".join(f'"{word}"*' for word in words)
