"""The tables of a hub."""

from datetime import UTC, datetime

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
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "HEAD",
    "PRIVATE",
    "PUBLIC",
    "access",
    "accounts",
    "audits",
    "commits",
    "events",
    "holdings",
    "likes",
    "members",
    "memberships",
    "metadata",
    "now",
    "pools",
    "publications",
    "published_tags",
    "refs",
    "repositories",
    "reservations",
    "run_results",
    "runs",
    "search",
    "search_clock",
    "sessions",
    "settings",
    "terms",
    "tokens",
    "uploads",
    "utc",
    "verdicts",
    "versions",
]


# Times in UTC.


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def utc(time: datetime) -> datetime:
    """Return a time from the database, where SQLite drops the time zone."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


# Values of `repositories.visibility`.
PRIVATE, PUBLIC = "private", "public"


# The hub's metadata, and tables of pools and settings. Changes need a migration and a new HEAD (docs/hub.md).
#
# Column types and constraints must work in both SQLite and PostgreSQL.

HEAD = "0102"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# Cards outside of the hub's own namespace are called namespace/name.
CARD_NAME = String(96).with_variant(String(200), "postgresql")


pools = Table(
    "pools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(96), nullable=False, unique=True),
)

# A card is in a pool once. `reference` may outlive the card.
members = Table(
    "members",
    metadata,
    Column("pool_id", Integer, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("card", CARD_NAME, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("reference", String(200), nullable=False),
)

# Settings of this hub, for every process.
settings = Table(
    "settings",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("value", Text, nullable=False),
)


# Tables of accounts, memberships, tokens, sessions and events.

# Users and organisations share one namespace. `folded` is the name in lower case: names differ in more than case.
# `used` counts the committed bytes of the account's repositories.
accounts = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(96), nullable=False),
    Column("folded", String(96), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("fullname", Text, nullable=False),
    Column("email", Text, nullable=False),
    Column("admin", Boolean, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("quota", BigInteger),
    Column("used", BigInteger, nullable=False, server_default="0"),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("description", Text, nullable=False, server_default=""),
)

memberships = Table(
    "memberships",
    metadata,
    Column("organisation_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("role", String(16), nullable=False),
)

# `digest` is the sha256 of the token, which itself is not stored.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("account_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(96), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("scope", String(16), nullable=False),
    Column("repository_id", Integer, ForeignKey("repositories.id", ondelete="CASCADE"), index=True),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("expires", DateTime(timezone=True)),
)

# Sessions of browsers. `digest` is the sha256 of the id in the cookie. A session ends with the token that opened it.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("token_id", Integer, ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("opened", DateTime(timezone=True), nullable=False),
    Column("used", DateTime(timezone=True), nullable=False),
)

# The event log, append-only. It has names, not ids, since it outlives their accounts and repositories.
events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("actor", String(96)),
    Column("action", String(64), nullable=False, index=True),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
)


def _repository(*, key: bool = True, index: bool = False) -> "Column[int]":
    return _owner("repository_id", "repositories.id", key, index)


def _account(*, key: bool = True, index: bool = False) -> "Column[int]":
    return _owner("account_id", "accounts.id", key, index)


def _owner(name: str, of: str, key: bool, index: bool) -> "Column[int]":
    """Return a foreign key to an owner, with cascading deletes; `key`: part of the primary key."""
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

# `tree` is compressed JSON: [[path, oid, sha256, size, lfs], ...], sorted by path; with `delta`, only the files that
# differ from the parent's tree, and the deleted paths.
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

# The card of every published tag. It outlives the repository, so that a name and a tag never mean another card. `name`
# is the folded name of the repository, `number` that of the version.
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


# Tables of evaluation runs.

# Numbers of deleted runs are not used again, because reports and manifests name them.
runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started", DateTime(timezone=True), nullable=False),
    Column("planned", Integer, nullable=False),
    Column("plan", Text, nullable=False),
    sqlite_autoincrement=True,
)

# `record`: JSON, compressed with zlib.
run_results = Table(
    "run_results",
    metadata,
    Column("run_id", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("failed", Boolean, nullable=False),
    Column("record", LargeBinary, nullable=False),
)


# Tables for searching repositories. Everything in them is derived from other rows, by search_index.py.
#
# The migration adds the full-text index, which the database keeps up to date: for SQLite the FTS5 table `search_text`,
# filled by triggers, for PostgreSQL the generated column `search.vector`.

# A row for each repository. The *_words are normalised words separated by spaces. `factuality` is that of the newest
# version, `verified` whether an audit of this hub measured it. `updates` is the sha256 of the version that it is an
# update of. `changed` is the time of the last change by `search_clock`.
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


# Tables about uploads: verdicts of checks, and reservations.

# Results of content checks, by content and the form that its path requires. `rules`: the version of the checks.
verdicts = Table(
    "verdicts",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("form", String(16), primary_key=True),
    Column("rules", Integer, nullable=False),
    Column("refusal", String(16), nullable=False),
    Column("reason", Text, nullable=False),
)

# Bytes that a namespace's quota is charged for uploads in progress, until `expires`. A part of a file is kept until
# the file is complete: `upload` names its folder, and `expires` is null.
reservations = Table(
    "reservations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "namespace_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("size", BigInteger, nullable=False),
    Column("expires", DateTime(timezone=True)),
    Column("upload", String(100), index=True),
    Column("number", Integer),
)
