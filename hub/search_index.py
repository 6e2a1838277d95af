"""The index that searches read: rows of words, terms and facets, and a clock that counts their changes."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.orm import Session, aliased

from kcard.batching import batched
from kcard.hub import figures
from kcard.hub.db.models import Repository, SearchClock, SearchRow, Term, Version

# Search terms of a repository: its author and its tags, in lower case.

AUTHOR, TAG = "author", "tag"
MAX_TERM_CHARACTERS = 200
# A word is a run of letters and digits: gpt2-large has the words gpt2 and large.
WORDS = re.compile(r"[^\W_]+")


def exact_terms(tags: Iterable[str], author: str | None) -> list[tuple[str, str]]:
    """Return the terms of the repositories that have all of these tags, in any case, and this author, if any."""
    terms = [(TAG, tag.lower()[:MAX_TERM_CHARACTERS]) for tag in dict.fromkeys(tags)]
    if author is not None:
        terms.append((AUTHOR, author.lower()))
    return terms


def replace_terms(session: Session, repository_id: int, name: str, tags: Iterable[str]) -> None:
    """Replace the terms of a repository."""
    session.execute(delete(Term).where(Term.repository_id == repository_id))
    terms = exact_terms(tags, name.partition("/")[0])
    rows = [{"kind": kind, "term": term, "repository_id": repository_id} for kind, term in sorted(set(terms))]
    session.execute(insert(Term), rows)


# Facets, which repositories are filtered by: values from their tags and the metadata of their README.md.

FACETS = ("domain", "base", "kind", "language", "licence")
# Tags of a card. The longest domain is the card's own, the others contain it.
KIND, METHOD = "kcard:kind:", "kcard:method:"
DOMAIN, BASE, LICENCE = "domain:", "base_model:", "license:"


@dataclass(frozen=True)
class Facets:
    """The values of a repository; "" if it has none. Of several base models or languages, the first."""

    domain: str
    base: str
    kind: str
    language: str
    licence: str


def make_facets(tags: Sequence[str], library: str | None, card: Mapping[str, Any]) -> Facets:
    """Return the facets of a repository with these tags, this library and this metadata of README.md."""
    language = card.get("language")
    if isinstance(language, list):
        language = next(iter(language), "")
    if language is False:  # YAML reads the language code `no` as a boolean
        language = "no"
    return Facets(
        domain=find_domain(tags),
        base=next(iter(find_bases(tags)), ""),
        kind=find_kind(tags, library),
        language=language if isinstance(language, str) and len(language) <= 100 else "",
        licence=next(iter(_values_of(LICENCE, tags)), ""),
    )


def find_kind(tags: Sequence[str], library: str | None) -> str:
    """Return the kind of a knowledge card; for other repositories, their library."""
    return next(iter(_values_of(KIND, tags)), "") or library or ""


def find_domain(tags: Sequence[str]) -> str:
    """Return the domain of a knowledge card."""
    return max(_values_of(DOMAIN, tags), key=len, default="")


def find_bases(tags: Sequence[str]) -> list[str]:
    """Return the base models."""
    return [name for name in _values_of(BASE, tags) if ":" not in name]


def _values_of(prefix: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]


# The rows of the index, written in the transactions that change what they say.

IDS_PER_STATEMENT = 1000
MAX_INDEXED_CHARACTERS = 20_000  # of a text
# Parts of the tags that all cards have.
COMMON_WORDS = frozenset(
    {"kcard", "kind", "method", "domain", "base", "model", "license", "knowledge", "card", "dataset"}
)


def normalise_words(text: str) -> list[str]:
    """Return the words of a text in order: runs of letters and digits, in lower case and without accents."""
    plain = text[:MAX_INDEXED_CHARACTERS].casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return [word[:MAX_TERM_CHARACTERS] for word in WORDS.findall(plain)]


def update_rows(session: Session, *repository_ids: int) -> None:
    """Rebuild the index rows of these repositories from the other tables."""
    at = _tick(session, "changed")
    session.execute(delete(SearchRow).where(SearchRow.repository_id.in_(repository_ids)))
    # Repositories with their newest version and the latest audit: a new version keeps the place of the one before it
    # until it is measured.
    other = aliased(Version)
    newest = select(func.max(other.number)).where(other.repository_id == Repository.id)
    of_newest = (Version.repository_id == Repository.id) & (Version.number == newest.scalar_subquery())
    query = select(
        Repository.id,
        Repository.name,
        Repository.card,
        Repository.tags,
        Repository.library,
        Version.description,
        Version.text,
        Version.declared_factuality,
        figures.last_audited_factuality().label("audited"),
    )
    query = query.select_from(Repository).outerjoin(Version, of_newest)
    rows = session.execute(query.where(Repository.id.in_(repository_ids)))
    values = [_make_row(row) | {"changed": at} for row in rows]
    if values:
        session.execute(insert(SearchRow), values)


def mark_changed(session: Session, repository_ids: Sequence[int]) -> None:
    """Let readers notice that other columns of these repositories have changed, such as their downloads."""
    at = _tick(session, "changed")
    for ids in batched(repository_ids, IDS_PER_STATEMENT):
        session.execute(update(SearchRow).where(SearchRow.repository_id.in_(ids)).values(changed=at))


def mark_removed(session: Session) -> None:
    """Let readers notice that repositories have been deleted."""
    _tick(session, "removed")


def _tick(session: Session, what: str) -> int:
    column = getattr(SearchClock, what)
    session.execute(update(SearchClock).values({column: column + 1}))
    return int(session.execute(select(column)).scalar_one())


def _make_row(row: Row[Any]) -> dict[str, Any]:
    tags = row.tags
    facet_values = make_facets(tags, row.library, row.card if isinstance(row.card, dict) else {})
    domains = normalise_words(facet_values.domain)
    others = [word for tag in tags if not tag.startswith("dataset:corpus-") for word in normalise_words(tag)]
    redundant = COMMON_WORDS.union(domains)
    # The version that this one updates.
    updated = json.loads(row.text).get("updates") if row.text else None
    return {
        "repository_id": row.id,
        "name_words": " ".join(normalise_words(row.name)),
        "domain_words": " ".join(domains),
        "description_words": " ".join(normalise_words(row.description or "")),
        "tag_words": " ".join(dict.fromkeys(word for word in others if word not in redundant)),
        **asdict(facet_values),
        "updates": updated if isinstance(updated, str) and len(updated) <= 64 else None,
        "verified": row.audited is not None,
        "factuality": row.declared_factuality if row.audited is None else row.audited,
    }
