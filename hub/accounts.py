"""Users, organisations and the log of events."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from kcard.errors import UsageError
from kcard.hub.db.models import accounts, events, holdings, memberships, now, reservations, uploads, utc
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotThere, TooLarge

__all__ = [
    "AMBIGUOUS",
    "OWN",
    "RESERVED",
    "TAKEN",
    "Account",
    "Accounts",
    "Action",
    "Event",
    "Events",
    "Identity",
    "Role",
    "Scope",
    "all_used",
    "charge",
    "charged",
    "check_name",
    "check_namespace",
    "check_repository",
    "check_text",
    "check_unambiguous",
    "find_account",
    "folded",
    "is_name",
    "organisations",
    "quota_limit",
    "remaining_quota",
    "require_quota",
    "used",
]


# Valid names of namespaces and repositories.

LONGEST_NAME = 96
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
ENDINGS = (".git", ".ipynb")

# First segments of other paths, and words that would be ambiguous as a name.
RESERVED = {"api", "datasets", "docs", "healthz", "lfs", "local", "login", "metrics", "models", "new"}
RESERVED |= {"openapi.json", "organizations", "readyz", "settings", "spaces", "static"}
# Words that make the path of a repository with this name, or in this namespace, mean two things. They are refused for
# new ones only.
AMBIGUOUS = {"commit", "raw", "resolve", "revision", "tree"}
# The organisations that the hub creates for its own cards. No account may be created with their names.
OWN = ("library", "library-cards")
# First segments of paths where an account's page would be, and OWN. They are refused for new accounts only.
TAKEN = {"ask", "compare", "favicon.ico", "favicon.svg", "feed.atom", "leaderboard", "robots.txt", *OWN}


def folded(name: str) -> str:
    """Return the form in which names are compared: two names must differ in more than case."""
    return name.lower()


def is_name(name: str) -> bool:
    """Return whether a name is well-formed, so that it is worth looking up."""
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
    if folded(name).endswith(ENDINGS):
        raise Invalid(f"invalid name {name!r}: it must not end in {' or '.join(ENDINGS)}")
    return name


def check_namespace(name: str) -> str:
    """Return the name, if it is valid for an account: as `check_name`, and not reserved."""
    if folded(check_name(name)) in RESERVED:
        raise Invalid(f"name {name!r} is reserved: choose another")
    return name


def check_unambiguous(name: str, *, account: bool = False) -> None:
    """Raise Invalid for a new account or repository (without its namespace) whose name has a meaning in this hub."""
    if folded(name) in AMBIGUOUS or (account and folded(name) in TAKEN):
        raise Invalid(f"name {name!r} is reserved, since it has a meaning in this hub: choose another")


def check_repository(name: str) -> str:
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
    token           refers to the token in tickets; it is not secret
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


# Quotas of namespaces.
#
# A quota is charged for three things:
#
# - committed bytes: the distinct files of all commits, and the trees of the commits. A file in ten commits counts once,
#   and one that was deleted from main still counts, since its commit can be downloaded. `accounts.used` counts them.
# - uploads that are in no commit yet
# - reservations: uploads in progress, and parts of files


def used(connection: Connection, account_id: int) -> int:
    """Return committed bytes in an account's repositories."""
    return int(connection.execute(select(accounts.c.used).where(accounts.c.id == account_id)).scalar_one())


def charge(connection: Connection, account_id: int, size: int) -> None:
    """Count committed bytes; a negative size: they were deleted."""
    here = accounts.c.id == account_id
    connection.execute(update(accounts).where(here).values(used=accounts.c.used + size))


def charged(connection: Connection, account_id: int) -> int:
    """Return the bytes that the account's quota is charged for."""
    committed = select(holdings.c.sha256).where(
        holdings.c.namespace_id == account_id, holdings.c.sha256 == uploads.c.sha256
    )
    pending = select(func.coalesce(func.sum(uploads.c.size), 0)).where(
        uploads.c.namespace_id == account_id, ~committed.exists()
    )
    live = or_(reservations.c.expires.is_(None), reservations.c.expires > now())
    reserved = select(func.coalesce(func.sum(reservations.c.size), 0)).where(
        reservations.c.namespace_id == account_id, live
    )
    both = select(pending.scalar_subquery(), reserved.scalar_subquery())
    return used(connection, account_id) + sum(map(int, connection.execute(both).one()))


def all_used(connection: Connection) -> dict[int, int]:
    """Return what `used` does, by the id of each account."""
    return dict(connection.execute(select(accounts.c.id, accounts.c.used)).tuples().all())


def quota_limit(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Return the account's quota in bytes, or `default` if it has none of its own; None: no limit."""
    own = connection.scalar(select(accounts.c.quota).where(accounts.c.id == account_id))
    return default if own is None else int(own)


def remaining_quota(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Return the bytes that the account's quota has left; None: no limit."""
    most = quota_limit(connection, account_id, default)
    return None if most is None else most - charged(connection, account_id)


def require_quota(connection: Connection, account_id: int, default: int | None = None, more: int = 0) -> None:
    """Raise TooLarge if the account exceeds its quota, or would with `more` bytes.

    Call it in the transaction that writes what is charged, which the error rolls back.
    """
    most = quota_limit(connection, account_id, default)
    if most is None:
        return
    total = charged(connection, account_id) + more
    if total > most:
        name = connection.scalar(select(accounts.c.name).where(accounts.c.id == account_id))
        raise TooLarge(
            f"quota of {name} exceeded: {total} of {most} bytes; delete repositories, or ask an administrator of this "
            "hub for a larger quota"
        )


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
KEEP: Any = object()  # default of arguments for which None has a meaning


@dataclass(frozen=True)
class Account:
    """A user or an organisation.

    admin     whether the user administers the hub
    disabled  a disabled user's tokens don't work; the account's repositories stay
    quota     bytes that its repositories may hold together; None: the hub's default
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
    """The accounts of a hub. `by` is the account that makes a change, for the event log; None: the command line."""

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
            return _insert(connection, "user", name, by, fullname, email, admin, quota)

    def add_organisation(
        self,
        name: str,
        *,
        owner: str,
        fullname: str = "",
        quota: int | None = None,
        by: str | None = None,
    ) -> Account:
        """Create an organisation with its first administrator. Raises as `add_user`, NotThere for an unknown owner."""
        with self._database.write() as connection:
            user = _of_kind(connection, owner, "user")
            organisation = _insert(connection, "organisation", name, by, fullname, "", False, quota)
            row = {"organisation_id": organisation.id, "user_id": user.id, "role": OWNER}
            connection.execute(insert(memberships).values(row))
            write_event(connection, by, "member.changed", organisation.name, user=user.name, role=OWNER)
            return organisation

    def first(self) -> Account | None:
        """Create the administrator `admin` if there is no user yet, else return None. Safe to call concurrently."""
        with self._database.write() as connection:
            if connection.scalar(select(func.count()).where(accounts.c.kind == "user")):
                return None
            return _insert(connection, "user", FIRST, None, "", "", True, None)

    def get(self, name: str) -> Account:
        """Return the account of that name, in any case. Raises NotThere."""
        with self._database.read() as connection:
            return find_account(connection, name)

    def list(self) -> "list[Account]":
        """Return every account, by name."""
        with self._database.read() as connection:
            return [_account(row) for row in connection.execute(select(accounts).order_by(accounts.c.folded))]

    def page(self, search: str = "", after: str = "", limit: int = 50) -> "AccountList":
        """Return at most `limit` accounts whose name starts with `search` and follows `after`, by name."""
        start = folded(search)
        query = select(accounts).where(accounts.c.folded.startswith(start, autoescape=True))
        query = query.where(accounts.c.folded > folded(after)).order_by(accounts.c.folded).limit(limit)
        with self._database.read() as connection:
            return [_account(row) for row in connection.execute(query)]

    def update(
        self,
        name: str,
        *,
        disabled: bool | None = None,
        admin: bool | None = None,
        quota: int | None = KEEP,
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
        if quota is not KEEP:
            changes["quota"] = _checked_quota(quota)
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
            group, member = _of_kind(connection, organisation, "organisation"), find_account(connection, user)
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
            group = _of_kind(connection, organisation, "organisation")
            query = (
                select(accounts.c.name, memberships.c.role)
                .join(memberships, memberships.c.user_id == accounts.c.id)
                .where(memberships.c.organisation_id == group.id)
                .order_by(accounts.c.folded)
            )
            return dict(connection.execute(query).tuples().all())

    def administered(self, user_id: int) -> int:
        """Return how many organisations a user administers."""
        mine = (memberships.c.user_id == user_id, memberships.c.role == OWNER)
        with self._database.read() as connection:
            return int(connection.scalar(select(func.count()).where(*mine)) or 0)

    def all_used(self) -> dict[int, int]:
        """Return what `used` does, by the id of each account that has repositories."""
        with self._database.read() as connection:
            return all_used(connection)

    def used(self, name: str) -> int:
        """Return the bytes of the distinct files in the account's repositories, including older commits."""
        with self._database.read() as connection:
            return used(connection, find_account(connection, name).id)


def find_account(connection: Connection, name: str) -> Account:
    """Return the account of that name, in any case. Raises NotThere."""
    query = select(accounts).where(accounts.c.folded == folded(name))
    row = connection.execute(query).one_or_none() if is_name(name) else None
    if row is None:
        raise NotThere("account", f"account {name[:100]!r} not found")
    return _account(row)


def organisations(connection: Connection, user_id: int) -> Mapping[str, Role]:
    """Return a user's roles by organisation name, without disabled organisations."""
    query = (
        select(accounts.c.name, memberships.c.role)
        .join(memberships, memberships.c.organisation_id == accounts.c.id)
        .where(memberships.c.user_id == user_id, accounts.c.disabled.is_(False))
        .order_by(accounts.c.folded)
    )
    return dict(connection.execute(query).tuples().all())


def _insert(
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
    taken = connection.scalar(select(accounts.c.name).where(accounts.c.folded == folded(name)))
    if taken is not None:
        raise Conflict(f"account {taken!r} already exists: choose another name")
    values = {
        "name": name,
        "folded": folded(name),
        "kind": kind,
        "fullname": fullname,
        "email": email,
        "admin": admin,
        "disabled": False,
        "quota": _checked_quota(quota),
        "created": now(),
    }
    row = connection.execute(insert(accounts).values(values).returning(accounts)).one()
    write_event(connection, by, "account.created", name, kind=kind, admin=admin or None, quota=quota)
    return _account(row)


def _of_kind(connection: Connection, name: str, kind: Literal["user", "organisation"]) -> Account:
    account = find_account(connection, name)
    if account.kind != kind:
        article = {"user": "a user", "organisation": "an organisation"}
        raise NotThere("account", f"{account.name} is {article[account.kind]}: expected {article[kind]}")
    return account


def check_text(field: str, text: str) -> None:
    """Raise UsageError unless the text is allowed for fullname, email or description."""
    if len(text) > LONGEST[field]:
        raise UsageError(f"{field} is too long: {len(text)} characters, the limit is {LONGEST[field]}")
    allowed = text.replace("\n", "") if field == "description" else text
    if not allowed.isprintable():
        raise UsageError(f"{field} contains a control character: use plain text")


def _checked_quota(quota: int | None) -> int | None:
    if quota is not None and quota < 0:
        raise UsageError(f"invalid quota {quota}: use a number of bytes, 0 or more")
    return quota


def _account(row: Row[Any]) -> Account:
    values = {key: getattr(row, key) for key in Account.__dataclass_fields__}
    return Account(**{**values, "created": utc(row.created)})
