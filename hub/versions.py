"""Published versions of cards, and the quarantine."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, or_, select, true
from sqlalchemy.orm import Session, aliased, undefer
from sqlalchemy.orm.attributes import set_committed_value

from kcard.errors import UnknownCard, UsageError
from kcard.hub import figures
from kcard.hub.accounts import Identity, bare_name, fold_name, full_name, write_event
from kcard.hub.db.models import PRIVATE, AuditRow, HubSetting, Ref, Repository, SearchRow, Version, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.figures import COVERAGE, THRESHOLD, check_share, read_limits
from kcard.hub.permissions import readable
from kcard.hub.values import (
    BRANCH,
    MAIN,
    quarantine_reason,
)
from kcard.manifest import NAME

# Files of a card that describe it, and may name it: they say nothing of what it knows.
DESCRIBING_FILES = ("README.md", figures.EXAM_FILE, "routing.json")
NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
DIGEST = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class CardReference:
    """A parsed reference. At most one of number, digest and alias is set; none means the newest version.

    `digest` is a prefix of a version's sha256.
    """

    name: str
    number: int | None = None
    digest: str | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str) -> "CardReference":
        """Parse a reference. Raises UsageError if it is invalid."""
        name, at, rest = text.partition("@")
        if not name or (at and not rest):
            raise UsageError(
                f"invalid reference {text!r}: use CARD, CARD@v2, CARD@ALIAS or CARD@SHA256 (6 digits or more)"
            )
        if not at:
            return cls(name)
        match = NUMBER.fullmatch(rest)
        if match:
            return cls(name, number=int(match[1]))
        return cls(name, digest=rest) if DIGEST.fullmatch(rest) else cls(name, alias=rest)

    def names(self, version: Version) -> bool:
        """Return whether the reference's number, digest or alias is that of the version."""
        if self.digest is not None:
            return version.sha256.startswith(self.digest)
        return version.number == self.number or self.alias in version.aliases


def check_alias(alias: str) -> None:
    """Raise UsageError for an invalid alias, or one that looks like a version number or a sha256."""
    if not NAME.fullmatch(alias):
        raise UsageError(
            f"invalid alias {alias!r}: use at most 96 lower-case letters, digits, '.', '_' and '-'"
        )
    if NUMBER.fullmatch(alias) or DIGEST.fullmatch(alias):
        raise UsageError(f"alias {alias!r} looks like a version number or a sha256: choose another")
    if alias == MAIN:
        raise UsageError(f"alias {alias!r} is reserved for the newest version: choose another")


# Rows of versions.


def is_card(card: str) -> ColumnElement[bool]:
    """Return the condition on `repositories` for that of a card."""
    name = full_name(card)
    # The index is on the folded name; cards are named by their exact one.
    same = and_(Repository.folded == fold_name(name), Repository.name == name)
    return and_(Repository.type == "model", same)


# Queries are built once, since that takes as long as executing them.
ALL_VERSIONS = select(Version, Repository.name, Repository.visibility, Repository.gated).join(Repository)
_others = aliased(Version)
# The condition on `versions` for the newest one of each card.
IS_NEWEST = Version.number == (
    select(func.max(_others.number)).where(_others.repository_id == Version.repository_id).scalar_subquery()
)


def name_versions(session: Session, query: Select[Version, str, str, str]) -> list[Version]:
    """Return the versions of a query of ALL_VERSIONS, called as their repositories."""
    rows = session.execute(query).tuples().all()
    for version, name, visibility, gate in rows:
        version.name = name
        if visibility == PRIVATE:
            version.restriction = "private"
        elif gate != "no":
            version.restriction = "gated"
    return [row[0] for row in rows]


def load_versions(session: Session, query: Select[Version, str, str, str]) -> list[Version]:
    """Return the versions of the query with their figures."""
    versions = name_versions(session, query)
    audits = figures.load_audits(session, [version.id for version in versions])
    threshold, floor = read_limits(session)
    for version in versions:
        set_committed_value(version, "audits", audits.get(version.id, []))
        version.verified = figures.verify_figures(version.audits, floor)
        version.quarantine = quarantine_reason(version.declared, version.verified, threshold, floor)
    return versions


def find_versions(session: Session, *conditions: ColumnElement[bool]) -> list[Version]:
    """Return the versions that match, with manifests and aliases, by card name, oldest first."""
    versions = load_versions(session, ALL_VERSIONS.where(*conditions).options(undefer(Version.text)))
    # The branches, other than main, that are at the commit of a version are its aliases.
    here = and_(Ref.repository_id == Version.repository_id, Ref.sha == Version.commit)
    pointing = select(Version.id, Ref.name).join(Ref, here).join(Repository)
    pointing = pointing.where(Ref.kind == BRANCH, Ref.name != MAIN, *conditions).order_by(Ref.name)
    aliases: dict[int, list[str]] = {}
    for id_, alias in session.execute(pointing):
        aliases.setdefault(id_, []).append(alias)
    for version in versions:
        version.name, version.aliases = bare_name(version.name), tuple(aliases.get(version.id, ()))
    return sorted(versions, key=lambda version: (version.name, version.number))


def find_row(session: Session, version: Version) -> Version | None:
    """Return a version as it is now; None if it was removed."""
    here = (is_card(version.name), Version.sha256 == version.sha256)
    return session.scalar(select(Version).join(Repository).where(*here))


# Versions on the pages of a shared hub.

MAX_LISTED_VERSIONS = 30


def list_versions(database: Database, repository: Repository) -> list[Version]:
    """Return the newest versions of a repository, at most 30, oldest first, with their manifests."""
    query = ALL_VERSIONS.where(Version.repository_id == repository.id).options(undefer(Version.text))
    with database.read() as session:
        return load_versions(session, query.order_by(Version.number.desc()).limit(MAX_LISTED_VERSIONS))[::-1]


def find_version(database: Database, sha256: str, identity: Identity | None) -> Version | None:
    """Return the version with that manifest, if the identity may read it; None if this hub has none."""
    query = ALL_VERSIONS.where(Version.sha256 == sha256, readable(identity)).limit(1)
    with database.read() as session:
        return next(iter(name_versions(session, query)), None)


def list_derived(database: Database, sha256: Sequence[str], identity: Identity | None) -> list[Version]:
    """Return the cards whose newest version is an update of one of these versions."""
    query = ALL_VERSIONS.where(IS_NEWEST, SearchRow.updates.in_(sha256), readable(identity))
    query = query.join(SearchRow, SearchRow.repository_id == Repository.id).limit(MAX_LISTED_VERSIONS)
    with database.read() as session:
        return name_versions(session, query)


def find_measured(database: Database, repository_ids: Iterable[int]) -> dict[int, Version]:
    """Return the newest version of each repository whose factuality an audit measured with independent evidence.

    It may be older than the newest version, which waits for its audit.
    """
    other = aliased(Version)
    measured = select(func.max(other.number)).join(AuditRow, AuditRow.version_id == other.id)
    measured = measured.where(other.repository_id == Version.repository_id, figures.measures_factuality())
    query = ALL_VERSIONS.where(
        Version.number == measured.scalar_subquery(), Version.repository_id.in_([*repository_ids])
    )
    with database.read() as session:
        return {row.repository_id: row for row in load_versions(session, query)}


def find_exams(database: Database, version_ids: Sequence[int]) -> dict[int, str]:
    """Return the sha256 of the exam.json of these versions, by their ids; those without one are omitted."""
    query = select(Version.id, Version.text).where(Version.id.in_(version_ids))
    with database.read() as session:
        files = {row.id: json.loads(row.text).get("files", {}) for row in session.execute(query)}
    return {id_: listed[figures.EXAM_FILE] for id_, listed in files.items() if figures.EXAM_FILE in listed}


def find_contents(database: Database, version_ids: Sequence[int]) -> dict[int, str]:
    """Return the sha256 of what each of these versions knows, by their ids: its files but those that describe it.

    It is the same for a card that was published under two names.
    """
    query = select(Version.id, Version.text).where(Version.id.in_(version_ids))
    contents = {}
    with database.read() as session:
        for id_, text in session.execute(query):
            files = json.loads(text).get("files", {})
            known = {path: sha256 for path, sha256 in files.items() if path not in DESCRIBING_FILES}
            content = json.dumps(known or text, sort_keys=True)
            contents[id_] = hashlib.sha256(content.encode()).hexdigest()
    return contents


def list_overlapping(database: Database, domain: str, limit: int) -> list[Version]:
    """Return newest versions of public cards of a domain that only evidence with their own corpus has measured."""
    audit = select(AuditRow.id).where(AuditRow.version_id == Version.id, AuditRow.kind == figures.AUDIT)
    inside: ColumnElement[bool] = true()
    if domain:
        inside = or_(Version.domain == domain, Version.domain.startswith(f"{domain}/", autoescape=True))
    query = ALL_VERSIONS.where(
        IS_NEWEST,
        readable(None),
        inside,
        figures.last_audited_factuality().is_(None),
        audit.where(AuditRow.factuality.is_not(None)).exists(),
    )
    with database.read() as session:
        return load_versions(session, query.order_by(Repository.name).limit(limit))


# Quarantine: cards below the hub's factuality threshold are visible, but used only if named.
#
# The latest audit decides that measured the version's factuality against independent evidence, which covers enough of
# what the card generated, unless an administrator has released the version since. Without such an audit, the card's own
# exam decides: it can quarantine the card but never release it. Unmeasured cards are not quarantined, and neither are
# cards whose evidence covers less than the hub's floor: missing evidence does not make a claim false.


class Quarantine:
    """The threshold of a hub, and the versions below it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def threshold(self) -> float | None:
        """The least factuality, in [0, 1], of cards that are used without being named; None (default): no minimum."""
        with self._database.read() as session:
            return read_limits(session)[0]

    @property
    def coverage(self) -> float:
        """The share of a card's documents that evidence must cover to quarantine it, in [0, 1]; 0.5 by default."""
        with self._database.read() as session:
            return read_limits(session)[1]

    def set_coverage(self, floor: float, *, by: str | None = None) -> None:
        """Set the floor of coverage. Raises UsageError for one outside [0, 1]."""
        check_share(floor, "coverage", "")
        with self._database.write() as session:
            session.merge(HubSetting(name=COVERAGE, value=f"{floor:g}"))
            write_event(session, by, "quarantine.set", "hub", coverage=floor)

    def set(self, threshold: float | None, *, by: str | None = None) -> None:
        """Set the threshold of this hub. Raises UsageError for one outside [0, 1].

        `by`: the account that changes it, for the event log; None: the command line.
        """
        if threshold is not None:
            check_share(threshold)
        with self._database.write() as session:
            session.execute(delete(HubSetting).where(HubSetting.name == THRESHOLD))
            if threshold is not None:
                session.add(HubSetting(name=THRESHOLD, value=f"{threshold:g}"))
            write_event(session, by, "quarantine.set", "hub", threshold=threshold)

    def release(self, version: Version, *, by: str | None = None) -> None:
        """Release a version from the quarantine of its latest audit. A later audit may quarantine it again.

        Raises UnknownCard if the version was removed, Invalid if no audit quarantines it.
        """
        with self._database.write() as session:
            row = find_row(session, version)
            if row is None:
                raise UnknownCard(f"{version.reference} was removed by another process")
            [current] = load_versions(session, ALL_VERSIONS.where(Version.id == row.id))
            reason = current.quarantine
            if reason is None:
                raise Invalid(f"{version.reference} is not quarantined")
            if reason.audit is None:
                raise Invalid(
                    f"{version.reference} is quarantined by its own exam, not by an audit of this hub: publish a "
                    "version with a new exam, or audit it (`kcard audit`)"
                )
            session.get_one(AuditRow, reason.audit).released = now()
            write_event(session, by, "card.released", version.reference, audit=reason.audit)


# Lists of the cards of a hub.


def list_names(database: Database) -> list[str]:
    """Return every card's name, sorted."""
    query = select(Repository.name).where(exists().where(Version.repository_id == Repository.id))
    with database.read() as session:
        return sorted(bare_name(name) for name in session.scalars(query))


def list_all(database: Database, name: str | None = None) -> list[Version]:
    """Return every version of a card, or of all cards, oldest first."""
    with database.read() as session:
        if name is None:
            return find_versions(session)
        return find_versions(session, is_card(name))


def list_newest(database: Database, domain: str | None = None, base: str | None = None) -> list[Version]:
    """Return the newest version of every card, if it is in the domain subtree and has the base."""
    conditions: list[ColumnElement[bool]] = [IS_NEWEST]
    if domain is not None:
        inside = Version.domain.startswith(domain + "/", autoescape=True)
        conditions.append(or_(Version.domain == domain, inside))
    if base is not None:
        short = Version.base.endswith("/" + base, autoescape=True)
        conditions.append(or_(Version.base == base, short))
    with database.read() as session:
        return find_versions(session, *conditions)
