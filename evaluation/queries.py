"""What an audit asks: the queries of a file, or questions about the card's own corpus, each with its domain.

A file of queries is one of questions whose answers nobody needs to know:

    {"question": "Who won the Senate race in Ohio?", "domain": "senate"}

One such object a line (.jsonl), a list of them (.json), a table (.csv), or a question a line (.txt). The domain, or
`relation`, is what scores are broken down by; it may be left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.evaluation.entries import entries
from kcard.evaluation.questions import about, digest
from kcard.manifest import file_digest
from kcard.rows import Row, reading

__all__ = ["AuditQuery", "Queries", "of_corpus", "read_queries"]

OWN = "own corpus"
TEXT = ("question", "query")
DOMAIN = ("domain", "relation")


@dataclass(frozen=True)
class AuditQuery:
    """`domain`: the file's `domain` or `relation`; of a question about the corpus the file that it was made of."""

    text: str
    domain: str = ""


@dataclass(frozen=True)
class Queries:
    """Queries, none twice, and the digest that names them."""

    name: str
    sha256: str
    queries: tuple[AuditQuery, ...]

    @property
    def own(self) -> bool:
        """Whether they were made of the card's own corpus."""
        return self.name == OWN


def of_corpus(corpus: Sequence[Source], limit: int, seed: int) -> Queries:
    """At most `limit` questions about the corpus, those of an exam with this seed."""
    questions = about(corpus, limit, seed)
    return Queries(OWN, digest(questions), tuple(AuditQuery(q.text, q.file) for q in questions))


def read_queries(path: Path | str) -> Queries:
    """The queries of a file; one that stands there twice is asked once, in its first domain.

    Raises UsageError, naming file and line, for what is missing, of another kind or malformed, and for no query.
    """
    path = Path(path).expanduser()
    rows = _lines(path) if path.suffix.lower() == ".txt" else entries(path, "queries")
    found: dict[str, AuditQuery] = {}
    for where, entry in rows:
        query = _query(entry, where)
        found.setdefault(query.text, query)
    if not found:
        raise UsageError(
            f'queries {path}: none in it; expected a "question", and a "domain" where it has one'
        )
    return Queries(path.name, file_digest(path), tuple(found.values()))


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    with reading(path, "queries"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"queries {path}, line {number}", {"question": line}


def _query(entry: Row, where: str) -> AuditQuery:
    text = next((entry[key] for key in TEXT if key in entry), None)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f'{where}: expected a "question" that is a text')
    domain = next((entry[key] for key in DOMAIN if entry.get(key) is not None), "")
    if not isinstance(domain, str):
        raise UsageError(f'{where}: "domain" must be a text, not {type(domain).__name__}')
    return AuditQuery(text.strip(), domain.strip())
