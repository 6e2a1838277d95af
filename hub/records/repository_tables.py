"""Tables of repositories and their published versions. Local cards are repositories in the hub's own namespace."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from kcard.hub.records.tables import metadata

__all__ = [
    "access",
    "audits",
    "commits",
    "holdings",
    "likes",
    "publications",
    "published_tags",
    "refs",
    "repositories",
    "terms",
    "uploads",
    "versions",
]


def _repository(*, key: bool = True, index: bool = False) -> "Column[int]":
    return _owner("repository_id", "repositories.id", key, index)


def _account(*, key: bool = True, index: bool = False) -> "Column[int]":
    return _owner("account_id", "accounts.id", key, index)


def _owner(name: str, of: str, key: bool, index: bool) -> "Column[int]":
    """A foreign key to an owner, with cascading deletes; `key`: part of the primary key."""
    return Column(
        name, Integer, ForeignKey(of, ondelete="CASCADE"), primary_key=key, nullable=False, index=index
    )


# `name` is namespace/name. `card` (the metadata of README.md) and `tags` are JSON, as of branch main. `newest` is the
# highest version number ever used, so that numbers are not reused. `tree_bytes` is the size of all trees.
repositories = Table(
    "repositories",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("type", String(16), nullable=False),
    Column("namespace_id", Integer, ForeignKey("accounts.id"), nullable=False, index=True),
    Column("name", String(200), nullable=False),
    Column("folded", String(200), nullable=False),
    Column("visibility", String(16), nullable=False),
    Column("gated", String(16), nullable=False),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("modified", DateTime(timezone=True), nullable=False),
    Column("downloads", Integer, nullable=False),
    Column("likes", Integer, nullable=False),
    Column("head", String(40)),
    Column("card", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("pipeline_tag", Text),
    Column("library", Text),
    Column("size", BigInteger, nullable=False),
    Column("newest", Integer, nullable=False),
    Column("tree_bytes", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("type", "folded"),
    Index("ix_repositories_type_modified", "type", "modified", "id"),
    Index("ix_repositories_type_created", "type", "created", "id"),
    Index("ix_repositories_type_downloads", "type", "downloads", "id"),
    Index("ix_repositories_type_likes", "type", "likes", "id"),
)

# Ordered by code point in any locale, for prefix searches.
TERM = String(200).with_variant(String(200, collation="C"), "postgresql")

# Search terms: authors (kind "author"), tags ("tag"), and the words of names and tags ("word"). The key finds the
# repositories of a term, the index the terms of a repository.
terms = Table(
    "terms",
    metadata,
    Column("kind", String(8), primary_key=True),
    Column("term", TERM, primary_key=True),
    _repository(),
    Index("ix_terms_repository_id_kind_term", "repository_id", "kind", "term"),
    sqlite_with_rowid=False,
)

# `tree` is compressed JSON: [[path, oid, sha256, size, lfs], ...], sorted by path; with `delta`, those that differ from
# the parent's tree, and the paths that are gone.
commits = Table(
    "commits",
    metadata,
    Column("id", Integer, primary_key=True),
    _repository(key=False),
    Column("sha", String(40), nullable=False),
    Column("parent", String(40)),
    Column("title", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("author", String(96), nullable=False),
    Column("date", DateTime(timezone=True), nullable=False),
    Column("tree", LargeBinary, nullable=False),
    Column("delta", Boolean, nullable=False),
    UniqueConstraint("repository_id", "sha"),
)

refs = Table(
    "refs",
    metadata,
    _repository(),
    Column("kind", String(8), primary_key=True),
    Column("name", String(250), primary_key=True),
    Column("sha", String(40), nullable=False),
    Column("message", Text, nullable=False),
)

# Every blob of any commit of a repository, for permissions, quotas and gc. `namespace_id` is that of the repository.
holdings = Table(
    "holdings",
    metadata,
    _repository(),
    Column("sha256", String(64), primary_key=True, index=True),
    Column("size", BigInteger, nullable=False),
    Column("namespace_id", Integer, nullable=False, server_default="0"),
    Index("ix_holdings_namespace_id_sha256", "namespace_id", "sha256"),
)

# Uploads that are not committed yet, which gc keeps for a while. `repository_id` is the repository that they were
# uploaded for, unless it was deleted; the quota of `namespace_id` is charged for them.
uploads = Table(
    "uploads",
    metadata,
    Column("id", Integer, primary_key=True),
    _account(key=False),
    Column("sha256", String(64), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("namespace_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), index=True),
    Column("repository_id", Integer, ForeignKey("repositories.id", ondelete="SET NULL"), index=True),
    Index("ix_uploads_account_id_sha256", "account_id", "sha256"),
)

# Published versions. `sha256` is that of the manifest, `sha` the commit. `weights`: whether it has a model or
# weights, under any kind of card. Self-declared: `examined` (whether there is an exam.json), its `recall` and
# `factuality`, and `fault`, why it is not plausible.
versions = Table(
    "versions",
    metadata,
    Column("id", Integer, primary_key=True),
    _repository(key=False),
    Column("number", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("sha", String(40), nullable=False),
    Column("manifest", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("domain", Text, nullable=False, index=True),
    Column("base", Text, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("published", DateTime(timezone=True), nullable=False),
    Column("weights", Boolean, nullable=False),
    Column("examined", Boolean, nullable=False),
    Column("recall", Float),
    Column("factuality", Float),
    Column("coverage", Float),
    Column("fault", Text, nullable=False),
    UniqueConstraint("repository_id", "number"),
    UniqueConstraint("repository_id", "sha256"),
)

# Tags that published versions.
publications = Table(
    "publications",
    metadata,
    Column("id", Integer, primary_key=True),
    _repository(key=False),
    Column("tag", String(250), nullable=False),
    Column("sha", String(40), nullable=False),
    Column("version_id", Integer, ForeignKey("versions.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("author", String(96), nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("repository_id", "tag"),
)

# What every published tag was: it outlives its repository, so that a name and a tag never mean another card. `name` is
# the folded name of the repository, `number` that of the version.
published_tags = Table(
    "published_tags",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("tag", String(250), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("number", Integer, nullable=False),
)

# Verified figures of versions. `kind` is audit or exam (taken by an operator). `record` is the whole audit or exam as
# JSON, which the hub does not read. `coverage` is the share of the documents that the evidence covers, `judged` how
# many these are, `overlap` how far evidence and corpus are the same; null in audits of earlier versions. `released` is
# when an administrator released the version from the quarantine of an audit. `author` is the account that measured
# (null: on the hub's own command line), `kcard` the version that it used.
audits = Table(
    "audits",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version_id", Integer, ForeignKey("versions.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("taken", DateTime(timezone=True), nullable=False),
    Column("checker", Text, nullable=False),
    Column("checker_sha256", String(64)),
    Column("evidence", Text),
    Column("evidence_sha256", String(64)),
    Column("queries", Text, nullable=False),
    Column("queries_sha256", String(64), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("recall", Float),
    Column("faithfulness", Float),
    Column("factuality", Float),
    Column("coverage", Float),
    Column("overlap", Float),
    Column("judged", Integer),
    Column("record", Text, nullable=False),
    Column("released", DateTime(timezone=True)),
    Column("author", String(96)),
    Column("kcard", Text),
)

likes = Table("likes", metadata, _repository(), _account(index=True))

# Requests for access to gated repositories; `state` is pending, granted or rejected, `note` the reason given.
access = Table(
    "access",
    metadata,
    _repository(),
    _account(index=True),
    Column("state", String(16), nullable=False),
    Column("asked", DateTime(timezone=True), nullable=False),
    Column("note", Text, nullable=False, server_default=""),
)
