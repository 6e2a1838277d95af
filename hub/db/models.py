"""The tables of a hub. Its rows are the values that its services return."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, func, select
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from kcard.errors import CardError
from kcard.hub.db.columns import (
    AccountId,
    AccountKey,
    Big,
    CompressedText,
    Digest,
    Id,
    JsonText,
    Name,
    RepositoryId,
    RepositoryKey,
    Row,
    Sha,
    VersionId,
)
from kcard.hub.values import DeclaredFigures, QuarantineReason, VerifiedFigures, is_independent
from kcard.manifest import MANIFEST, Manifest

# Changes of the tables need a migration and a new HEAD (docs/hub.md).
HEAD = "0106"
metadata = Row.metadata
# Values of `Repository.visibility`.
PRIVATE, PUBLIC = "private", "public"

RepositoryType: TypeAlias = Literal["model", "dataset"]
Gate: TypeAlias = Literal["no", "auto", "manual"]
Scope: TypeAlias = Literal["read", "write", "admin"]
Role: TypeAlias = Literal["read", "write", "admin"]
AccessState: TypeAlias = Literal["pending", "granted", "rejected"]


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


# Pools, and settings of this hub for every process.


class PoolMember(Row):
    """A card in a pool, which has it once. `reference` may outlive the card."""

    __tablename__ = "members"
    pool_id: Mapped[int] = mapped_column(ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True)
    # Cards outside of the hub's own namespace are called namespace/name.
    card: Mapped[str] = mapped_column(String(96).with_variant(String(200), "postgresql"), primary_key=True)
    position: Mapped[int]
    reference: Mapped[str] = mapped_column(String(200))


class StoredPool(Row):
    """A named set of cards."""

    __tablename__ = "pools"
    id: Mapped[Id]
    name: Mapped[Name] = mapped_column(unique=True)
    members: Mapped[list[PoolMember]] = relationship(
        order_by=PoolMember.position, lazy="selectin", viewonly=True
    )

    @property
    def references(self) -> tuple[str, ...]:
        """One reference for each card, in the order of addition.

        "oncology" follows the newest version, "oncology@stable" the alias, "oncology@v2" is fixed.
        """
        return tuple(member.reference for member in self.members)


class HubSetting(Row):
    """A setting."""

    __tablename__ = "settings"
    name: Mapped[Name] = mapped_column(primary_key=True)
    value: Mapped[str]


# Accounts, memberships, tokens, sessions and events.


class Account(Row):
    """A user or an organisation. Both share one namespace.

    folded       the name in lower case: names differ in more than case
    admin        whether the user administers the hub
    disabled     a disabled user's tokens don't work; the account's repositories stay
    quota        bytes that its repositories may have in all; None: the hub's default
    used         committed bytes of its repositories
    description  plain text for its page
    """

    __tablename__ = "accounts"
    id: Mapped[Id]
    name: Mapped[Name]
    folded: Mapped[Name] = mapped_column(unique=True)
    kind: Mapped[Literal["user", "organisation"]] = mapped_column(String(16))
    fullname: Mapped[str] = mapped_column(default="")
    email: Mapped[str] = mapped_column(default="")
    admin: Mapped[bool] = mapped_column(default=False)
    disabled: Mapped[bool] = mapped_column(default=False)
    quota: Mapped[Big | None]
    used: Mapped[Big] = mapped_column(server_default="0")
    created: Mapped[datetime] = mapped_column(default=now)
    description: Mapped[str] = mapped_column(server_default="")


class Membership(Row):
    """A user's role in an organisation."""

    __tablename__ = "memberships"
    organisation_id: Mapped[AccountKey]
    user_id: Mapped[AccountKey] = mapped_column(index=True)
    role: Mapped[Role] = mapped_column(String(16))


class LoggedEvent(Row):
    """A change. It has names, not ids, since it outlives their accounts and repositories.

    number  increases
    actor   the account that made the change; None: the command line
    target  the name of the changed account or repository, which may no longer exist
    """

    __tablename__ = "events"
    number: Mapped[int] = mapped_column("id", primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now)
    actor: Mapped[Name | None]
    action: Mapped[str] = mapped_column(String(64), index=True)
    target: Mapped[str]
    detail: Mapped[Mapping[str, Any]] = mapped_column(JsonText)


# Repositories.


class Repository(Row):
    """A repository as of its branch main.

    name        namespace/name
    card        the metadata of its README.md
    tags        including derived ones
    size        bytes of the files of main
    newest      the highest version number ever used, so that numbers are not reused
    tree_bytes  the size of all trees, and of the titles and messages of commits and tags
    """

    __tablename__ = "repositories"
    __table_args__ = (
        UniqueConstraint("type", "folded"),
        *(Index(f"ix_repositories_type_{by}", "type", by, "id") for by in ("modified", "created")),
        *(Index(f"ix_repositories_type_{by}", "type", by, "id") for by in ("downloads", "likes")),
    )
    id: Mapped[Id]
    type: Mapped[RepositoryType] = mapped_column(String(16))
    namespace_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    folded: Mapped[str] = mapped_column(String(200))
    visibility: Mapped[str] = mapped_column(String(16), default=PUBLIC)
    gated: Mapped[Gate] = mapped_column(String(16), default="no")
    created: Mapped[datetime] = mapped_column(default=now)
    modified: Mapped[datetime] = mapped_column(default=now)
    downloads: Mapped[int] = mapped_column(default=0)
    likes: Mapped[int] = mapped_column(default=0)
    head: Mapped[Sha | None]
    card: Mapped[Mapping[str, Any]] = mapped_column(JsonText, default=dict)
    tags: Mapped[Sequence[str]] = mapped_column(JsonText, default=())
    pipeline_tag: Mapped[str | None]
    library: Mapped[str | None]
    size: Mapped[Big] = mapped_column(default=0)
    newest: Mapped[int] = mapped_column(default=0)
    tree_bytes: Mapped[Big] = mapped_column(server_default="0")

    @property
    def private(self) -> bool:
        return self.visibility == PRIVATE

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def path(self) -> str:
        """The path of its page, below which are those of its files."""
        return f"/datasets/{self.name}" if self.type == "dataset" else f"/{self.name}"


class Term(Row):
    """A search term: an author (kind "author") or a tag ("tag").

    The key finds the repositories of a term, the index the terms of a repository.
    """

    __tablename__ = "terms"
    __table_args__ = (
        Index("ix_terms_repository_id_kind_term", "repository_id", "kind", "term"),
        {"sqlite_with_rowid": False},
    )
    kind: Mapped[str] = mapped_column(String(8), primary_key=True)
    # Ordered by code point in any locale, for prefix searches.
    term: Mapped[str] = mapped_column(
        String(200).with_variant(String(200, collation="C"), "postgresql"), primary_key=True
    )
    repository_id: Mapped[RepositoryKey]


class Commit(Row):
    """A commit; `date` is in UTC.

    `tree` is compressed JSON: [[path, oid, sha256, size, lfs], ...], sorted by path; with `delta`, only the files that
    differ from the parent's tree, and the deleted paths.
    """

    __tablename__ = "commits"
    __table_args__ = (UniqueConstraint("repository_id", "sha"),)
    id: Mapped[Id]
    repository_id: Mapped[RepositoryId]
    sha: Mapped[Sha]
    parent: Mapped[Sha | None]
    title: Mapped[str]
    message: Mapped[str]
    author: Mapped[Name]
    date: Mapped[datetime]
    tree: Mapped[bytes] = mapped_column(deferred=True, deferred_raiseload=True)
    delta: Mapped[bool]


class Ref(Row):
    """A branch or a tag with its commit."""

    __tablename__ = "refs"
    repository_id: Mapped[RepositoryKey]
    kind: Mapped[str] = mapped_column(String(8), primary_key=True)
    name: Mapped[str] = mapped_column(String(250), primary_key=True)
    sha: Mapped[Sha]
    message: Mapped[str] = mapped_column(default="")


class Holding(Row):
    """A blob of any commit of a repository, for permissions, quotas and gc; `namespace_id` is the repository's."""

    __tablename__ = "holdings"
    __table_args__ = (Index("ix_holdings_namespace_id_sha256", "namespace_id", "sha256"),)
    repository_id: Mapped[RepositoryKey]
    sha256: Mapped[Digest] = mapped_column(primary_key=True, index=True)
    size: Mapped[Big]
    namespace_id: Mapped[int] = mapped_column(server_default="0")


class Upload(Row):
    """An upload that is not committed yet, which gc keeps for a while.

    `repository_id` is the repository that it was uploaded for, unless that was deleted; the quota of `namespace_id` is
    charged for it.
    """

    __tablename__ = "uploads"
    __table_args__ = (Index("ix_uploads_account_id_sha256", "account_id", "sha256"),)
    id: Mapped[Id]
    account_id: Mapped[AccountId]
    sha256: Mapped[Digest] = mapped_column(index=True)
    size: Mapped[Big]
    at: Mapped[datetime] = mapped_column(index=True)
    namespace_id: Mapped[AccountId | None] = mapped_column(index=True)
    repository_id: Mapped[int | None] = mapped_column(
        ForeignKey("repositories.id", ondelete="SET NULL"), index=True
    )


class Token(Row):
    """The properties of a token, which itself is not stored; `digest` is its sha256.

    repository_id  of the only repository that it is valid for; None: all
    expires        None: never
    """

    __tablename__ = "tokens"
    id: Mapped[Id]
    account_id: Mapped[AccountId] = mapped_column(index=True)
    name: Mapped[Name]
    digest: Mapped[Digest] = mapped_column(unique=True)
    scope: Mapped[Scope] = mapped_column(String(16))
    repository_id: Mapped[RepositoryId | None] = mapped_column(index=True)
    created: Mapped[datetime]
    expires: Mapped[datetime | None]
    account: Mapped[Account] = relationship(lazy="joined", innerjoin=True, viewonly=True)
    # The name of that repository.
    repository: Mapped[str | None] = column_property(
        select(Repository.name)
        .where(Repository.id == repository_id)
        .correlate_except(Repository)
        .scalar_subquery()
    )


class BrowserSession(Row):
    """A session of a browser; `digest` is the sha256 of the id in the cookie. It ends with the token that opened it."""

    __tablename__ = "sessions"
    id: Mapped[Id]
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"), index=True)
    digest: Mapped[Digest] = mapped_column(unique=True)
    opened: Mapped[datetime]
    used: Mapped[datetime]
    token: Mapped[Token] = relationship(lazy="joined", innerjoin=True, viewonly=True)


# Versions, and what is known about them.


class AuditRow(Row):
    """Verified figures of a version.

    kind          audit, which decides about quarantine, or exam (taken by an operator)
    checker       its name, and the sha256 of its weights if known
    evidence      independent evidence by name and digest, and `queries` the questions
    recall        of the exam, in [0, 1]; null if not measured
    faithfulness  mean score against the card's own corpus, in [0, 1]; `factuality`, against the independent evidence
    coverage      the share of the documents that the evidence covers, in [0, 1], and `judged`, how many these are
    overlap       how far evidence and corpus are the same, in [0, 1]; null if not known
    record        the whole audit or exam as JSON, which the hub does not read
    released      when an administrator released the version from the quarantine of an audit
    author        the account that measured (null: on the hub's own command line), with this version of `kcard`
    """

    __tablename__ = "audits"
    id: Mapped[Id]
    version_id: Mapped[VersionId]
    kind: Mapped[Literal["audit", "exam"]] = mapped_column(String(16))
    taken: Mapped[datetime]
    checker: Mapped[str]
    checker_sha256: Mapped[Digest | None]
    evidence: Mapped[str | None]
    evidence_sha256: Mapped[Digest | None]
    queries: Mapped[str]
    queries_sha256: Mapped[Digest]
    seed: Mapped[Big]
    recall: Mapped[float | None]
    faithfulness: Mapped[float | None]
    factuality: Mapped[float | None]
    coverage: Mapped[float | None]
    overlap: Mapped[float | None]
    judged: Mapped[int | None]
    record: Mapped[str]
    released: Mapped[datetime | None]
    author: Mapped[Name | None]
    kcard: Mapped[str | None]

    @property
    def is_independent(self) -> bool:
        """Whether the evidence is independent of the card's corpus, as far as the hub knows."""
        return is_independent(self.overlap)


class Version(Row):
    """A published version of a card, which never changes.

    number    from 1, never reused while the card exists
    sha256    of its kcard.json, the `text`, which lists the sha256 of every other file
    commit    of the repository
    size      bytes of all files
    weights   whether it has a model or weights, under any kind of card
    examined  whether there is an exam.json, with the self-declared recall, factuality and coverage, and `fault`, why it
              is not plausible

    The queries of hub/versions.py set the rest: `name` is that of the repository, in `Hub` without the namespace of the
    hub's own cards; `restriction` says that not everybody may read it; `aliases` may stand for the number; `verified`
    are the figures that this hub measured, and `quarantine` is why it is not used unless it is named.
    """

    __tablename__ = "versions"
    __allow_unmapped__ = True
    __table_args__ = (
        UniqueConstraint("repository_id", "number"),
        UniqueConstraint("repository_id", "sha256"),
    )
    id: Mapped[Id]
    repository_id: Mapped[RepositoryId]
    number: Mapped[int]
    sha256: Mapped[Digest]
    commit: Mapped[str] = mapped_column("sha", String(40))
    text: Mapped[str] = mapped_column("manifest", deferred=True, deferred_raiseload=True)
    description: Mapped[str]
    domain: Mapped[str] = mapped_column(index=True)
    base: Mapped[str] = mapped_column(index=True)
    size: Mapped[Big]
    published: Mapped[datetime]
    weights: Mapped[bool]
    examined: Mapped[bool]
    declared_recall: Mapped[float | None] = mapped_column("recall")
    declared_factuality: Mapped[float | None] = mapped_column("factuality")
    declared_coverage: Mapped[float | None] = mapped_column("coverage")
    fault: Mapped[str]
    audits: Mapped[list[AuditRow]] = relationship(lazy="raise", viewonly=True, order_by=AuditRow.id)
    name: str = ""
    restriction: Literal["", "private", "gated"] = ""
    aliases: tuple[str, ...] = ()
    verified: VerifiedFigures | None = None
    quarantine: QuarantineReason | None = None

    @property
    def reference(self) -> str:
        """The permanent reference of this version: card@v2."""
        return f"{self.name}@v{self.number}"

    @cached_property
    def manifest(self) -> Manifest:
        """Its kcard.json. Raises CardError if that is of a newer kcard."""
        return Manifest.from_json(self.text, self.reference)

    @cached_property
    def parsed_manifest(self) -> Manifest | None:
        """The manifest; None if it is of a newer kcard."""
        try:
            return self.manifest
        except CardError:
            return None

    @property
    def files(self) -> dict[str, str]:
        """sha256 of every file by path, including the manifest."""
        return {**self.manifest.files, MANIFEST: self.sha256}

    @property
    def declared(self) -> DeclaredFigures | None:
        """The figures of the exam that came with the card; None without one."""
        if not self.examined:
            return None
        return DeclaredFigures(
            self.declared_recall, self.declared_factuality, self.fault, self.declared_coverage
        )

    @property
    def unexamined(self) -> bool:
        """Whether it has weights, but no plausible exam."""
        return self.weights and (not self.examined or bool(self.fault))

    @property
    def audited(self) -> bool:
        """Whether this hub measured its factuality against independent evidence."""
        return (
            self.verified is not None and self.verified.factuality is not None and self.verified.independent
        )

    @property
    def factuality(self) -> float | None:
        """The verified factuality; without one, the self-declared."""
        if self.verified is not None and self.audited:
            return self.verified.factuality
        return self.declared_factuality

    @property
    def latest_audit(self) -> AuditRow | None:
        """The latest audit that measured factuality, if possible with independent evidence."""
        measured = [audit for audit in self.audits if audit.kind == "audit" and audit.factuality is not None]
        return max(measured, key=lambda audit: (audit.is_independent, audit.id), default=None)

    @property
    def latest_factuality(self) -> float | None:
        """The factuality of that audit; without one, the self-declared."""
        return self.declared_factuality if self.latest_audit is None else self.latest_audit.factuality

    @property
    def exam(self) -> str | None:
        """The sha256 of its exam."""
        return None if self.parsed_manifest is None else self.parsed_manifest.files.get("exam.json")


class Publication(Row):
    """A tag that published a version."""

    __tablename__ = "publications"
    __table_args__ = (UniqueConstraint("repository_id", "tag"),)
    id: Mapped[Id]
    repository_id: Mapped[RepositoryId]
    tag: Mapped[str] = mapped_column(String(250))
    commit: Mapped[str] = mapped_column("sha", String(40))
    version_id: Mapped[VersionId]
    author: Mapped[Name]
    at: Mapped[datetime]
    published: Mapped[Version] = relationship(lazy="joined", innerjoin=True, viewonly=True)

    @property
    def version(self) -> str:
        """The sha256 of the version's manifest."""
        return self.published.sha256

    @property
    def number(self) -> int:
        return self.published.number


class PublishedTag(Row):
    """The card of a published tag, which outlives the repository: a name and a tag never mean another card.

    `name` is the folded name of the repository, `number` that of the version.
    """

    __tablename__ = "published_tags"
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    tag: Mapped[str] = mapped_column(String(250), primary_key=True)
    sha256: Mapped[Digest]
    number: Mapped[int]


class Like(Row):
    """A like of a repository."""

    __tablename__ = "likes"
    repository_id: Mapped[RepositoryKey]
    account_id: Mapped[AccountKey] = mapped_column(index=True)


class AccessRequest(Row):
    """A request for access to a gated repository; `asked` in UTC, `note` is the reason given."""

    __tablename__ = "access"
    repository_id: Mapped[RepositoryKey]
    account_id: Mapped[AccountKey] = mapped_column(index=True)
    state: Mapped[AccessState] = mapped_column(String(16))
    asked: Mapped[datetime] = mapped_column(default=now)
    note: Mapped[str] = mapped_column(server_default="")
    # The name of the account.
    account: Mapped[str] = column_property(
        select(Account.name).where(Account.id == account_id).correlate_except(Account).scalar_subquery()
    )


# Evaluation runs: plans and results as texts, whose content only kcard.evaluation reads.


class StoredResult(Row):
    """The record of one question under one setting; `failed`: it has no answer."""

    __tablename__ = "run_results"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    failed: Mapped[bool] = mapped_column(default=False)
    record: Mapped[str] = mapped_column(CompressedText)


class StoredRun(Row):
    """A run. Of the `planned` results, `answered` + `failed` are stored.

    `plan` describes the questions and settings. Numbers of deleted runs are not used again, because reports and
    manifests name them.
    """

    __tablename__ = "runs"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012
    number: Mapped[int] = mapped_column("id", primary_key=True)
    started: Mapped[datetime] = mapped_column(default=now)
    planned: Mapped[int]
    plan: Mapped[str]
    answered: Mapped[int] = column_property(
        select(func.count())
        .where(StoredResult.run_id == number, StoredResult.failed.is_(False))
        .correlate_except(StoredResult)
        .scalar_subquery()
    )
    failed: Mapped[int] = column_property(
        select(func.count())
        .where(StoredResult.run_id == number, StoredResult.failed)
        .correlate_except(StoredResult)
        .scalar_subquery()
    )


# Tables for searching repositories. Everything in them is derived from other rows, by search_index.py.
#
# The migration adds the full-text index, which the database keeps up to date: for SQLite the FTS5 table `search_text`,
# filled by triggers, for PostgreSQL the generated column `search.vector`.


class SearchRow(Row):
    """What searches read of a repository.

    changed     the time of the last change by the search clock
    ..._words   normalised words separated by spaces
    factuality  that of the newest version that an audit of this hub measured (`verified`), else as the newest declares
    updates     the sha256 of the version that it is an update of
    """

    __tablename__ = "search"
    repository_id: Mapped[RepositoryKey]
    changed: Mapped[Big] = mapped_column(index=True)
    name_words: Mapped[str]
    domain_words: Mapped[str]
    description_words: Mapped[str]
    tag_words: Mapped[str]
    domain: Mapped[str]
    base: Mapped[str]
    kind: Mapped[str]
    language: Mapped[str]
    licence: Mapped[str]
    updates: Mapped[Digest | None] = mapped_column(index=True)
    verified: Mapped[bool]
    factuality: Mapped[float | None]


class SearchClock(Row):
    """One row that counts the changes of `search`, and the deletions of repositories, so that readers notice them."""

    __tablename__ = "search_clock"
    id: Mapped[Id]
    changed: Mapped[Big]
    removed: Mapped[Big]


# Verdicts on uploads, and reservations for them.


class StoredVerdict(Row):
    """The result of a content check, by content and the form that its path requires; `rules`: the version of them."""

    __tablename__ = "verdicts"
    sha256: Mapped[Digest] = mapped_column(primary_key=True)
    form: Mapped[str] = mapped_column(String(16), primary_key=True)
    rules: Mapped[int]
    refusal: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str]


class Reservation(Row):
    """Bytes that a namespace's quota is charged for uploads in progress, until `expires`.

    A part of a file is kept until the file is complete: `upload` names its folder, and `expires` is null.
    """

    __tablename__ = "reservations"
    id: Mapped[Id]
    namespace_id: Mapped[AccountId] = mapped_column(index=True)
    size: Mapped[Big]
    expires: Mapped[datetime | None]
    upload: Mapped[str | None] = mapped_column(String(100), index=True)
    number: Mapped[int | None]
