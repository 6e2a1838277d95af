"""Users, organisations, the namespace of the hub's own cards, and the log of events."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from kcard.errors import UsageError
from kcard.hub.db.models import accounts, events, memberships, now, settings, utc
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound
from kcard.hub.quotas import committed_by_account, committed_bytes

__all__ = [
    "AMBIGUOUS",
    "DEFAULT_NAMESPACE",
    "FALLBACK_NAMESPACE",
    "NAMESPACE_SETTING",
    "OWN_NAMESPACES",
    "RESERVED",
    "TAKEN",
    "Account",
    "Accounts",
    "Action",
    "Event",
    "Events",
    "Identity",
    "OwnNamespace",
    "Role",
    "Scope",
    "bare_name",
    "check_name",
    "check_namespace",
    "check_repository_name",
    "check_text",
    "check_unambiguous",
    "find_account",
    "find_own_namespace",
    "find_roles",
    "fold_name",
    "full_name",
    "is_valid_name",
]


# Valid names of namespaces and repositories.

LONGEST_NAME = 96
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
ENDINGS = (".git", ".ipynb")

# First segments of other paths, and words that would be ambiguous as a name.
RESERVED = {"api", "datasets", "docs", "healthz", "lfs", "local", "login", "metrics", "models", "new"}
RESERVED |= {"openapi.json", "organizations", "readyz", "settings", "spaces", "static"}
# Words that would make the path of a repository with this name, or in this namespace, ambiguous. They are refused for
# new ones only.
AMBIGUOUS = {"commit", "raw", "resolve", "revision", "tree"}
# Organisations that the hub creates for its own cards: no account may be created with these names. The second one is
# for a hub where somebody had the first name before it was reserved.
DEFAULT_NAMESPACE, FALLBACK_NAMESPACE = OWN_NAMESPACES = ("library", "library-cards")
# First segments of paths where an account's page would be. They are refused for new accounts only.
TAKEN = {
    "ask",
    "compare",
    "favicon.ico",
    "favicon.svg",
    "feed.atom",
    "leaderboard",
    "robots.txt",
    *OWN_NAMESPACES,
}


def fold_name(name: str) -> str:
    """Return the form in which names are compared: two names must differ in more than case."""
    return name.lower()


def is_valid_name(name: str) -> bool:
    """Return whether a name is well-formed; others need not be looked up."""
    return len(name) <= LONGEST_NAME and PART.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return the name, if it is valid for a namespace or a repository. Raises Invalid."""
    if len(name) > LONGEST_NAME:
        raise Invalid(
            f"name {name[:40]!r}... is too long: {len(name)} characters, the limit is {LONGEST_NAME}"
        )
    if not PART.fullmatch(name):
        raise Invalid(
            f"invalid name {name!r}: use letters, digits, '.', '_' and '-', with a letter or digit at both ends"
        )
    if "--" in name or ".." in name:
        raise Invalid(f"invalid name {name!r}: '--' and '..' are not allowed")
    if fold_name(name).endswith(ENDINGS):
        raise Invalid(f"invalid name {name!r}: it must not end in {' or '.join(ENDINGS)}")
    return name


def check_namespace(name: str) -> str:
    """Return the name, if it is valid for an account: as `check_name`, and not reserved."""
    if fold_name(check_name(name)) in RESERVED:
        raise Invalid(f"name {name!r} is reserved: choose another")
    return name


def check_unambiguous(name: str, *, account: bool = False) -> None:
    """Raise Invalid if the name of a new account or repository (without its namespace) is one that the hub uses."""
    if fold_name(name) in AMBIGUOUS or (account and fold_name(name) in TAKEN):
        raise Invalid(f"name {name!r} is reserved, since the hub uses it itself: choose another")


def check_repository_name(name: str) -> str:
    """Return namespace/name, if both parts are valid; the namespace need not exist. Raises Invalid."""
    namespace, slash, own = name.partition("/")
    if not slash:
        raise Invalid(f"invalid repository name {name[:200]!r}: use namespace/name")
    check_namespace(namespace)
    check_name(own)
    return name


# The identity that a token proves.

Scope: TypeAlias = Literal["read", "write", "admin"]
Role: TypeAlias = Literal["read", "write", "admin"]


@dataclass(frozen=True)
class Identity:
    """A user with the limits of their token.

    admin           whether the user administers the hub
    scope           of the token
    repository_id   the only repository that the token is valid for; None: all
    token           a reference to the token, for tickets; it is not secret
    organisations   the user's roles by organisation name
    """

    account_id: int
    name: str
    admin: bool = False
    scope: Scope = "read"
    repository_id: int | None = None
    organisations: Mapping[str, Role] = field(default_factory=dict)
    token: str = ""
    token_name: str = ""
    fullname: str = ""
    email: str = ""


# The hub's own namespace: the organisation for cards that `kcard publish` adds to this hub.
#
# Locally its cards have bare names, such as `rivers`; for clients of a served hub that is the repository
# library/rivers. The first card creates the namespace.

NAMESPACE_SETTING = "namespace"


class OwnNamespace(NamedTuple):
    """The account that owns the hub's own cards."""

    id: int
    name: str


def find_own_namespace(connection: Connection) -> OwnNamespace | None:
    """Return the namespace; None if the hub never had a card of its own."""
    name = select(settings.c.value).where(settings.c.name == NAMESPACE_SETTING).scalar_subquery()
    row = connection.execute(
        select(accounts.c.id, accounts.c.name).where(accounts.c.folded == name)
    ).one_or_none()
    return None if row is None else OwnNamespace(*row)


def full_name(own: OwnNamespace | None, name: str) -> str:
    """Return the name of a card's repository, namespace/name."""
    return name if "/" in name or own is None else f"{own.name}/{name}"


def bare_name(own: OwnNamespace | None, repository: str) -> str:
    """Return the name of a repository's card: without the hub's own namespace."""
    return repository if own is None else repository.removeprefix(f"{own.name}/")


# The event log: who changed what, and when. Events are only added and contain no secrets.

Action: TypeAlias = Literal[
    "access.answered",
    "account.created",
    "account.updated",
    "card.measured",
    "card.published",
    "card.quarantined",
    "card.released",
    "job.failed",
    "member.changed",
    "quarantine.set",
    "repository.created",
    "repository.deleted",
    "repository.moved",
    "repository.updated",
    "session.opened",
    "tag.deleted",
    "token.created",
    "token.revoked",
]


@dataclass(frozen=True)
class Event:
    """A change.

    number  increases; see `before` of Events.list
    actor   the account that made the change; None: the command line
    target  the name of the changed account or repository, which may no longer exist
    """

    number: int
    at: datetime
    actor: str | None
    action: str
    target: str
    detail: Mapping[str, Any]


class Events:
    """The log of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        actor: str | None,
        action: Action,
        target: str,
        connection: Connection | None = None,
        **detail: object,
    ) -> None:
        """Write an event, within the given transaction or in its own."""
        if connection is not None:
            write_event(connection, actor, action, target, **detail)
            return
        with self._database.write() as own:
            write_event(own, actor, action, target, **detail)

    def list(
        self,
        limit: int = 100,
        before: int | None = None,
        action: str | None = None,
        actor: str | None = None,
        target: str | None = None,
    ) -> "list[Event]":
        """Return at most `limit` events with numbers below `before`, newest first."""
        query = select(events).order_by(events.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(events.c.id < before)
        if action is not None:
            query = query.where(events.c.action == action)
        if actor is not None:
            query = query.where(events.c.actor == actor)
        if target is not None:
            query = query.where(events.c.target == target)
        with self._database.read() as connection:
            return [
                Event(row.id, utc(row.at), row.actor, row.action, row.target, json.loads(row.detail))
                for row in connection.execute(query)
            ]


def write_event(
    connection: Connection, actor: str | None, action: Action, target: str, **detail: object
) -> None:
    """Write an event within a transaction. `detail` must be JSON values."""
    values = {key: value for key, value in detail.items() if value is not None}
    text = json.dumps(values, sort_keys=True)
    connection.execute(
        insert(events).values(at=now(), actor=actor, action=action, target=target, detail=text)
    )


FIRST = "admin"
UNLOGGED = {"email", "description"}
LONGEST = {"fullname": 100, "email": 200, "description": 2000}  # characters
OWNER: Role = "admin"
AccountList: TypeAlias = list["Account"]  # `list` is a method below
UNCHANGED: Any = object()  # default of arguments for which None has a meaning


@dataclass(frozen=True)
class Account:
    """A user or an organisation.

    admin     whether the user administers the hub
    disabled  a disabled user's tokens don't work; the account's repositories stay
    quota     bytes that its repositories may have in all; None: the hub's default
    description  plain text for its page
    """

    id: int
    name: str
    kind: Literal["user", "organisation"]
    fullname: str
    email: str
    admin: bool
    disabled: bool
    quota: int | None
    created: datetime
    description: str = ""


class Accounts:
    """The accounts of a hub. `by`, for the event log: the account that makes a change; None: the command line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_user(
        self,
        name: str,
        *,
        fullname: str = "",
        email: str = "",
        admin: bool = False,
        quota: int | None = None,
        by: str | None = None,
    ) -> Account:
        """Create a user. Raises Invalid for an invalid name, Conflict if it is taken in any case."""
        with self._database.write() as connection:
            return _insert_account(connection, "user", name, by, fullname, email, admin, quota)

    def add_organisation(
        self,
        name: str,
        *,
        owner: str,
        fullname: str = "",
        quota: int | None = None,
        by: str | None = None,
    ) -> Account:
        """Create an organisation with its first administrator. Raises as `add_user`, NotFound for an unknown owner."""
        with self._database.write() as connection:
            user = _require_kind(connection, owner, "user")
            organisation = _insert_account(connection, "organisation", name, by, fullname, "", False, quota)
            row = {"organisation_id": organisation.id, "user_id": user.id, "role": OWNER}
            connection.execute(insert(memberships).values(row))
            write_event(connection, by, "member.changed", organisation.name, user=user.name, role=OWNER)
            return organisation

    def create_first(self) -> Account | None:
        """Create the administrator `admin` if there is no user yet, else return None. Safe to call concurrently."""
        with self._database.write() as connection:
            if connection.scalar(select(func.count()).where(accounts.c.kind == "user")):
                return None
            return _insert_account(connection, "user", FIRST, None, "", "", True, None)

    def get(self, name: str) -> Account:
        """Return the account of that name, in any case. Raises NotFound."""
        with self._database.read() as connection:
            return find_account(connection, name)

    def list(self) -> "list[Account]":
        """Return every account, by name."""
        with self._database.read() as connection:
            return [
                _account_from_row(row)
                for row in connection.execute(select(accounts).order_by(accounts.c.folded))
            ]

    def page(self, search: str = "", after: str = "", limit: int = 50) -> "AccountList":
        """Return at most `limit` accounts whose name starts with `search` and follows `after`, by name."""
        start = fold_name(search)
        query = select(accounts).where(accounts.c.folded.startswith(start, autoescape=True))
        query = query.where(accounts.c.folded > fold_name(after)).order_by(accounts.c.folded).limit(limit)
        with self._database.read() as connection:
            return [_account_from_row(row) for row in connection.execute(query)]

    def update(
        self,
        name: str,
        *,
        disabled: bool | None = None,
        admin: bool | None = None,
        quota: int | None = UNCHANGED,
        fullname: str | None = None,
        email: str | None = None,
        description: str | None = None,
        by: str | None = None,
    ) -> Account:
        """Change the given fields; a quota of None restores the default.

        Raises Forbidden if that would leave the hub without an administrator.
        """
        texts = {"fullname": fullname, "email": email, "description": description}
        for key, text in texts.items():
            check_text(key, text or "")
        fields = {"disabled": disabled, "admin": admin, **texts}
        changes: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
        if quota is not UNCHANGED:
            changes["quota"] = _check_quota(quota)
        with self._database.write() as connection:
            account = find_account(connection, name)
            if admin and account.kind == "organisation":
                raise UsageError(f"{account.name} is an organisation: only users can administer the hub")
            if account.admin and not account.disabled and (disabled or admin is False):
                others = (
                    accounts.c.admin.is_(True),
                    accounts.c.disabled.is_(False),
                    accounts.c.id != account.id,
                )
                if not connection.scalar(select(func.count()).where(*others)):
                    raise Forbidden(f"{account.name} is the only administrator: add another one first")
            if changes:
                connection.execute(update(accounts).where(accounts.c.id == account.id).values(changes))
                # The log does not contain email addresses, nor long texts.
                detail = {key: True if key in UNLOGGED else value for key, value in changes.items()}
                write_event(connection, by, "account.updated", account.name, **detail)
            return find_account(connection, name)

    def set_member(self, organisation: str, user: str, role: Role | None, *, by: str | None = None) -> None:
        """Set a user's role in an organisation; None removes the user.

        Raises Forbidden if that would leave the organisation without an administrator.
        """
        if role is not None and role not in get_args(Role):
            raise UsageError(f"unknown role {role!r}: use {', '.join(get_args(Role))}")
        with self._database.write() as connection:
            group, member = (
                _require_kind(connection, organisation, "organisation"),
                find_account(connection, user),
            )
            if member.kind != "user":
                raise UsageError(f"{member.name} is an organisation: only users can be members")
            where = (memberships.c.organisation_id == group.id, memberships.c.user_id == member.id)
            before = connection.scalar(select(memberships.c.role).where(*where))
            connection.execute(delete(memberships).where(*where))
            if before == OWNER and role != OWNER:
                owners = (memberships.c.organisation_id == group.id, memberships.c.role == OWNER)
                if not connection.scalar(select(func.count()).where(*owners)):
                    raise Forbidden(
                        f"{member.name} is the only administrator of {group.name}: add another one first"
                    )
            if role is not None:
                row = {"organisation_id": group.id, "user_id": member.id, "role": role}
                connection.execute(insert(memberships).values(row))
            write_event(connection, by, "member.changed", group.name, user=member.name, role=role or "none")

    def members(self, organisation: str) -> dict[str, Role]:
        """Return the roles in an organisation by user name."""
        with self._database.read() as connection:
            group = _require_kind(connection, organisation, "organisation")
            query = (
                select(accounts.c.name, memberships.c.role)
                .join(memberships, memberships.c.user_id == accounts.c.id)
                .where(memberships.c.organisation_id == group.id)
                .order_by(accounts.c.folded)
            )
            return dict(connection.execute(query).tuples().all())

    def count_administered(self, user_id: int) -> int:
        """Return how many organisations a user administers."""
        mine = (memberships.c.user_id == user_id, memberships.c.role == OWNER)
        with self._database.read() as connection:
            return int(connection.scalar(select(func.count()).where(*mine)) or 0)

    def committed_by_account(self) -> dict[int, int]:
        """Return the committed bytes of every account, by its id."""
        with self._database.read() as connection:
            return committed_by_account(connection)

    def committed_bytes(self, name: str) -> int:
        """Return the bytes of the distinct files in the account's repositories, including those of older commits."""
        with self._database.read() as connection:
            return committed_bytes(connection, find_account(connection, name).id)


def find_account(connection: Connection, name: str) -> Account:
    """Return the account of that name, in any case. Raises NotFound."""
    query = select(accounts).where(accounts.c.folded == fold_name(name))
    row = connection.execute(query).one_or_none() if is_valid_name(name) else None
    if row is None:
        raise NotFound("account", f"account {name[:100]!r} not found")
    return _account_from_row(row)


def find_roles(connection: Connection, user_id: int) -> Mapping[str, Role]:
    """Return a user's roles by organisation name, without disabled organisations."""
    query = (
        select(accounts.c.name, memberships.c.role)
        .join(memberships, memberships.c.organisation_id == accounts.c.id)
        .where(memberships.c.user_id == user_id, accounts.c.disabled.is_(False))
        .order_by(accounts.c.folded)
    )
    return dict(connection.execute(query).tuples().all())


def _insert_account(
    connection: Connection,
    kind: str,
    name: str,
    by: str | None,
    fullname: str,
    email: str,
    admin: bool,
    quota: int | None,
) -> Account:
    check_unambiguous(check_namespace(name), account=True)
    check_text("fullname", fullname)
    check_text("email", email)
    taken = connection.scalar(select(accounts.c.name).where(accounts.c.folded == fold_name(name)))
    if taken is not None:
        raise Conflict(f"account {taken!r} already exists: choose another name")
    values = {
        "name": name,
        "folded": fold_name(name),
        "kind": kind,
        "fullname": fullname,
        "email": email,
        "admin": admin,
        "disabled": False,
        "quota": _check_quota(quota),
        "created": now(),
    }
    row = connection.execute(insert(accounts).values(values).returning(accounts)).one()
    write_event(connection, by, "account.created", name, kind=kind, admin=admin or None, quota=quota)
    return _account_from_row(row)


def _require_kind(connection: Connection, name: str, kind: Literal["user", "organisation"]) -> Account:
    account = find_account(connection, name)
    if account.kind != kind:
        article = {"user": "a user", "organisation": "an organisation"}
        raise NotFound("account", f"{account.name} is {article[account.kind]}: expected {article[kind]}")
    return account


def check_text(field: str, text: str) -> None:
    """Raise UsageError unless the text is allowed for fullname, email or description."""
    if len(text) > LONGEST[field]:
        raise UsageError(f"{field} is too long: {len(text)} characters, the limit is {LONGEST[field]}")
    allowed = text.replace("\n", "") if field == "description" else text
    if not allowed.isprintable():
        raise UsageError(f"{field} contains a control character: use plain text")


def _check_quota(quota: int | None) -> int | None:
    if quota is not None and quota < 0:
        raise UsageError(f"invalid quota {quota}: use a number of bytes, 0 or more")
    return quota


def _account_from_row(row: Row[Any]) -> Account:
    values = {key: getattr(row, key) for key in Account.__dataclass_fields__}
    return Account(**{**values, "created": utc(row.created)})
