"""Users and organisations, which share one namespace, and memberships."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from kcard.errors import UsageError
from kcard.hub.accounts import quotas
from kcard.hub.accounts.events import write
from kcard.hub.accounts.identity import Role
from kcard.hub.accounts.names import check_namespace, check_unambiguous, folded, is_name
from kcard.hub.records.account_tables import accounts, memberships
from kcard.hub.records.database import Database
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Conflict, Forbidden, NotThere

__all__ = ["Account", "Accounts", "check_text", "find", "organisations"]

FIRST = "admin"
UNLOGGED = {"email", "description"}
LONGEST = {"fullname": 100, "email": 200, "description": 2000}  # characters
OWNER: Role = "admin"
Found: TypeAlias = list["Account"]  # `list` is a method below
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
            made = _insert(connection, "organisation", name, by, fullname, "", False, quota)
            row = {"organisation_id": made.id, "user_id": user.id, "role": OWNER}
            connection.execute(insert(memberships).values(row))
            write(connection, by, "member.changed", made.name, user=user.name, role=OWNER)
            return made

    def first(self) -> Account | None:
        """Create the administrator `admin` if there is no user yet, else return None. Safe to call concurrently."""
        with self._database.write() as connection:
            if connection.scalar(select(func.count()).where(accounts.c.kind == "user")):
                return None
            return _insert(connection, "user", FIRST, None, "", "", True, None)

    def get(self, name: str) -> Account:
        """The account of that name, in any case. Raises NotThere."""
        with self._database.read() as connection:
            return find(connection, name)

    def list(self) -> "list[Account]":
        """Every account, by name."""
        with self._database.read() as connection:
            return [_account(row) for row in connection.execute(select(accounts).order_by(accounts.c.folded))]

    def page(self, search: str = "", after: str = "", limit: int = 50) -> "Found":
        """Accounts by name, at most `limit`, whose name starts with `search`; only those after the name `after`."""
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
        wanted = {"disabled": disabled, "admin": admin, **texts}
        changes: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
        if quota is not KEEP:
            changes["quota"] = _checked_quota(quota)
        with self._database.write() as connection:
            account = find(connection, name)
            if admin and account.kind == "organisation":
                raise UsageError(f"{account.name} is an organisation: only users can administer the hub")
            if account.admin and not account.disabled and (disabled or admin is False):
                _require_another(connection, account)
            if changes:
                connection.execute(update(accounts).where(accounts.c.id == account.id).values(changes))
                # The log does not contain email addresses, nor long texts.
                detail = {key: True if key in UNLOGGED else value for key, value in changes.items()}
                write(connection, by, "account.updated", account.name, **detail)
            return find(connection, name)

    def set_member(self, organisation: str, user: str, role: Role | None, *, by: str | None = None) -> None:
        """Set a user's role in an organisation; None removes the user.

        Raises Forbidden if that would leave the organisation without an administrator.
        """
        if role is not None and role not in get_args(Role):
            raise UsageError(f"unknown role {role!r}: use {', '.join(get_args(Role))}")
        with self._database.write() as connection:
            group, member = _of_kind(connection, organisation, "organisation"), find(connection, user)
            if member.kind != "user":
                raise UsageError(f"{member.name} is an organisation: only users can be members")
            where = (memberships.c.organisation_id == group.id, memberships.c.user_id == member.id)
            before = connection.scalar(select(memberships.c.role).where(*where))
            connection.execute(delete(memberships).where(*where))
            if before == OWNER and role != OWNER:
                _require_owner(connection, group, member)
            if role is not None:
                row = {"organisation_id": group.id, "user_id": member.id, "role": role}
                connection.execute(insert(memberships).values(row))
            write(connection, by, "member.changed", group.name, user=member.name, role=role or "none")

    def members(self, organisation: str) -> dict[str, Role]:
        """The roles in an organisation by user name."""
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
        """How many organisations a user administers."""
        mine = (memberships.c.user_id == user_id, memberships.c.role == OWNER)
        with self._database.read() as connection:
            return int(connection.scalar(select(func.count()).where(*mine)) or 0)

    def all_used(self) -> dict[int, int]:
        """As `used`, by the id of each account that has repositories."""
        with self._database.read() as connection:
            return quotas.all_used(connection)

    def used(self, name: str) -> int:
        """Bytes of the distinct files in the account's repositories, including older commits."""
        with self._database.read() as connection:
            return quotas.used(connection, find(connection, name).id)


def find(connection: Connection, name: str) -> Account:
    """The account of that name, in any case. Raises NotThere."""
    query = select(accounts).where(accounts.c.folded == folded(name))
    row = connection.execute(query).one_or_none() if is_name(name) else None
    if row is None:
        raise NotThere("account", f"account {name[:100]!r} not found")
    return _account(row)


def organisations(connection: Connection, user_id: int) -> Mapping[str, Role]:
    """A user's roles by organisation name, without disabled organisations."""
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
    write(connection, by, "account.created", name, kind=kind, admin=admin or None, quota=quota)
    return _account(row)


def _of_kind(connection: Connection, name: str, kind: Literal["user", "organisation"]) -> Account:
    account = find(connection, name)
    if account.kind != kind:
        article = {"user": "a user", "organisation": "an organisation"}
        raise NotThere("account", f"{account.name} is {article[account.kind]}: expected {article[kind]}")
    return account


def _require_another(connection: Connection, account: Account) -> None:
    others = (accounts.c.admin.is_(True), accounts.c.disabled.is_(False), accounts.c.id != account.id)
    if not connection.scalar(select(func.count()).where(*others)):
        raise Forbidden(f"{account.name} is the only administrator: add another one first")


def check_text(field: str, text: str) -> None:
    """Raise UsageError unless the text is allowed for fullname, email or description."""
    if len(text) > LONGEST[field]:
        raise UsageError(f"{field} is too long: {len(text)} characters, the limit is {LONGEST[field]}")
    allowed = text.replace("\n", "") if field == "description" else text
    if not allowed.isprintable():
        raise UsageError(f"{field} contains a control character: use plain text")


def _require_owner(connection: Connection, group: Account, member: Account) -> None:
    owners = (memberships.c.organisation_id == group.id, memberships.c.role == OWNER)
    if not connection.scalar(select(func.count()).where(*owners)):
        raise Forbidden(f"{member.name} is the only administrator of {group.name}: add another one first")


def _checked_quota(quota: int | None) -> int | None:
    if quota is not None and quota < 0:
        raise UsageError(f"invalid quota {quota}: use a number of bytes, 0 or more")
    return quota


def _account(row: Row[Any]) -> Account:
    values = {key: getattr(row, key) for key in Account.__dataclass_fields__}
    return Account(**{**values, "created": utc(row.created)})
