"""Full-text search: FTS5 in SQLite, a tsvector in PostgreSQL. Each word must be the prefix of a word of the text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

__all__ = ["matches", "scores"]

# Thousands of ids are read fastest as one text.
MATCHES = {
    "sqlite": "SELECT group_concat(rowid) FROM search_text WHERE search_text MATCH :words",
    "postgresql": (
        "SELECT string_agg(repository_id::text, ',') FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}
# Both weigh words of the name most, then those of the domain, the description and the tags.
SCORES = {
    "sqlite": (
        "SELECT rowid, -bm25(search_text, 10.0, 5.0, 2.0, 1.0) FROM search_text "
        "WHERE search_text MATCH :words"
    ),
    "postgresql": (
        "SELECT repository_id, ts_rank('{0.1, 0.2, 0.5, 1.0}', vector, to_tsquery('simple', :words)) "
        "FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}


def matches(connection: Connection, words: Sequence[str]) -> NDArray[np.int64]:
    """The ids of the repositories that have all words, as normalised by search_rows.words."""
    database = connection.dialect.name
    found: str | None = connection.scalar(text(MATCHES[database]), {"words": _query(database, words)})
    return np.fromstring(found, dtype=np.int64, sep=",") if found else np.empty(0, np.int64)


def scores(connection: Connection, words: Sequence[str]) -> dict[int, float]:
    """The same with how well each fits; more is better."""
    database = connection.dialect.name
    found = connection.execute(text(SCORES[database]), {"words": _query(database, words)})
    return {id_: float(score) for id_, score in found.tuples()}


def _query(database: str, words: Sequence[str]) -> str:
    """The words in the database's query language, which letters and digits can't break out of."""
    if database == "postgresql":
        return " & ".join(f"{word}:*" for word in words)
    return " ".join(f'"{word}"*' for word in words)
