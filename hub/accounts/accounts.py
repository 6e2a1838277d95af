"""Who there is: users and organisations, which share one space of names, and who belongs to whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from kcard.errors import UsageError
from kcard.hub.accounts import quotas
from kcard.hub.accounts.events import write
from kcard.hub.accounts.identity import Role
from kcard.hub.accounts.names import check_namespace, folded, is_name
from kcard.hub.records.account_tables import accounts, memberships
from kcard.hub.records.database import Database
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Conflict, Forbidden, NotThere

__all__ = ["Account", "Accounts", "find", "organisations"]

FIRST = "admin"
OWNER: Role = "admin"
KEEP: Any = object()  # an argument that was not given, where None means something


@dataclass(frozen=True)
class Account:
    """A user or an organisation.

    admin     whether the user administers the hub
    disabled  a disabled user's tokens don't work; what the account holds stays as it is
    quota     bytes that its repositories may hold together; None: what the hub allows to everyone
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


class Accounts:
    """The accounts of a hub. `by` is the account that makes a change, for the log; None: the command line."""

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
        """A new user; Invalid for what can't be a name, Conflict where it is taken in whatever case."""
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
        """A new organisation with its first administrator; raises as `add_user`, NotThere without such a user."""
        with self._database.write() as connection:
            user = _of_kind(connection, owner, "user")
            made = _insert(connection, "organisation", name, by, fullname, "", False, quota)
            row = {"organisation_id": made.id, "user_id": user.id, "role": OWNER}
            connection.execute(insert(memberships).values(row))
            write(connection, by, "member.changed", made.name, user=user.name, role=OWNER)
            return made

    def first(self) -> Account | None:
        """Make the user `admin`, who administers the hub, where there is no user yet; else None.

        Two processes may call it at the same moment: one of them makes it.
        """
        with self._database.write() as connection:
            if connection.scalar(select(func.count()).where(accounts.c.kind == "user")):
                return None
            return _insert(connection, "user", FIRST, None, "", "", True, None)

    def get(self, name: str) -> Account:
        """The account of that name, in whatever case; NotThere."""
        with self._database.read() as connection:
            return find(connection, name)

    def list(self) -> "list[Account]":
        """Every account, by name."""
        with self._database.read() as connection:
            return [_account(row) for row in connection.execute(select(accounts).order_by(accounts.c.folded))]

    def update(
        self,
        name: str,
        *,
        disabled: bool | None = None,
        admin: bool | None = None,
        quota: int | None = KEEP,
        fullname: str | None = None,
        email: str | None = None,
        by: str | None = None,
    ) -> Account:
        """Change what is given; a quota of None takes the account's own away.

        Forbidden for what would leave the hub without an administrator: only another one could undo it.
        """
        wanted = {"disabled": disabled, "admin": admin, "fullname": fullname, "email": email}
        changes: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
        if quota is not KEEP:
            changes["quota"] = _checked_quota(quota)
        with self._database.write() as connection:
            account = find(connection, name)
            if admin and account.kind == "organisation":
                raise UsageError(f"{account.name} is an organisation: only a user can administer the hub")
            if account.admin and not account.disabled and (disabled or admin is False):
                _require_another(connection, account)
            if changes:
                connection.execute(update(accounts).where(accounts.c.id == account.id).values(changes))
                # The log says that an address was changed; what it was is nobody else's business.
                told = {key: True if key == "email" else value for key, value in changes.items()}
                write(connection, by, "account.updated", account.name, **told)
            return find(connection, name)

    def set_member(self, organisation: str, user: str, role: Role | None, *, by: str | None = None) -> None:
        """Give a user a role in an organisation, or change it; None takes the user out."""
        if role is not None and role not in get_args(Role):
            raise UsageError(f"role {role!r}: give {', '.join(get_args(Role))}")
        with self._database.write() as connection:
            group, member = _of_kind(connection, organisation, "organisation"), find(connection, user)
            if member.kind != "user":
                raise UsageError(f"{member.name} is an organisation: only a user can be a member of another")
            where = (memberships.c.organisation_id == group.id, memberships.c.user_id == member.id)
            connection.execute(delete(memberships).where(*where))
            if role is not None:
                row = {"organisation_id": group.id, "user_id": member.id, "role": role}
                connection.execute(insert(memberships).values(row))
            write(connection, by, "member.changed", group.name, user=member.name, role=role or "none")

    def members(self, organisation: str) -> dict[str, Role]:
        """The roles in an organisation, by the user's name."""
        with self._database.read() as connection:
            group = _of_kind(connection, organisation, "organisation")
            query = (
                select(accounts.c.name, memberships.c.role)
                .join(memberships, memberships.c.user_id == accounts.c.id)
                .where(memberships.c.organisation_id == group.id)
                .order_by(accounts.c.folded)
            )
            return dict(connection.execute(query).tuples().all())

    def used(self, name: str) -> int:
        """Bytes of the distinct files that the account's repositories hold, older commits included."""
        with self._database.read() as connection:
            return quotas.used(connection, find(connection, name).id)


def find(connection: Connection, name: str) -> Account:
    """The account of that name, in whatever case; NotThere."""
    query = select(accounts).where(accounts.c.folded == folded(name))
    row = connection.execute(query).one_or_none() if is_name(name) else None
    if row is None:
        raise NotThere("account", f"there is no account {name[:100]!r}")
    return _account(row)


def organisations(connection: Connection, user_id: int) -> Mapping[str, Role]:
    """A user's roles by the organisation's name; disabled organisations give none."""
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
    check_namespace(name)
    taken = connection.scalar(select(accounts.c.name).where(accounts.c.folded == folded(name)))
    if taken is not None:
        raise Conflict(f"there is an account {taken!r} already: take another name")
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
        raise NotThere(
            "account", f"{account.name} is no {kind}, but a{'n' * (kind == 'user')} {account.kind}"
        )
    return account


def _require_another(connection: Connection, account: Account) -> None:
    others = (accounts.c.admin.is_(True), accounts.c.disabled.is_(False), accounts.c.id != account.id)
    if not connection.scalar(select(func.count()).where(*others)):
        raise Forbidden(f"{account.name} is the only administrator: make another user one first")


def _checked_quota(quota: int | None) -> int | None:
    if quota is not None and quota < 0:
        raise UsageError(f"quota {quota}: give a number of bytes, 0 or more")
    return quota


def _account(row: Row[Any]) -> Account:
    values = {key: getattr(row, key) for key in Account.__dataclass_fields__}
    return Account(**{**values, "created": utc(row.created)})
