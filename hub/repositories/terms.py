"""Search terms of a repository: its author, its tags, and the words of its name and tags.

A word is a run of letters and digits, in lower case: gpt2-large has the words gpt2 and large.
"""

import re
from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert

from kcard.hub.records.repository_tables import terms

__all__ = ["AUTHOR", "LONGEST", "TAG", "WORD", "of", "put", "words"]

AUTHOR, TAG, WORD = "author", "tag", "word"
LONGEST = 200
WORDS = re.compile(r"[^\W_]+")


def words(*texts: str) -> set[str]:
    """The words of texts, in lower case."""
    return {word[:LONGEST] for text in texts for word in WORDS.findall(text.lower())}


def of(name: str, tags: Iterable[str]) -> set[tuple[str, str]]:
    """Kind and text of all terms of a repository with this name and these tags."""
    kept = [tag.lower()[:LONGEST] for tag in tags]
    author = name.partition("/")[0].lower()
    return {(AUTHOR, author), *((TAG, tag) for tag in kept), *((WORD, word) for word in words(name, *kept))}


def put(connection: Connection, repository_id: int, name: str, tags: Iterable[str]) -> None:
    """Replace the terms of a repository."""
    connection.execute(delete(terms).where(terms.c.repository_id == repository_id))
    rows = [
        {"kind": kind, "term": term, "repository_id": repository_id} for kind, term in sorted(of(name, tags))
    ]
    connection.execute(insert(terms), rows)
