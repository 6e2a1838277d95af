"""Users, organisations, the namespace of the hub's own cards, and the log of events."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from kcard.errors import UsageError
from kcard.hub.db.models import Account, LoggedEvent, Membership, Role, Scope
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound

# Valid names of namespaces and repositories.

MAX_NAME_CHARACTERS = 96
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
ENDINGS = (".git", ".ipynb")

# First segments of other paths, and words that would be ambiguous as a name.
RESERVED_NAMES = {"api", "datasets", "docs", "healthz", "lfs", "local", "login", "metrics", "models", "new"}
RESERVED_NAMES |= {"openapi.json", "organizations", "readyz", "settings", "spaces", "static"}
# Words that would make the path of a repository with this name, or in this namespace, ambiguous. They are refused for
# new ones only.
AMBIGUOUS = {"commit", "raw", "resolve", "revision", "tree"}
# The organisation of the cards that `kcard publish` adds to this hub, which the hub creates with the first of them.
OWN_NAMESPACE = "library"


def fold_name(name: str) -> str:
    """Return the form in which names are compared: two names must differ in more than case."""
    return name.lower()


def is_valid_name(name: str) -> bool:
    """Return whether a name is well-formed; others need not be looked up."""
    return len(name) <= MAX_NAME_CHARACTERS and PART.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return the name, if it is valid for a namespace or a repository. Raises Invalid."""
    if len(name) > MAX_NAME_CHARACTERS:
        raise Invalid(
            f"name {name[:40]!r}... is too long: {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}"
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
    if fold_name(check_name(name)) in RESERVED_NAMES:
        raise Invalid(f"name {name!r} is reserved: choose another")
    return name


def check_unambiguous(name: str) -> None:
    """Raise Invalid if the name of a new account or repository (without its namespace) is a word of the hub's paths."""
    if fold_name(name) in AMBIGUOUS:
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


# Locally the hub's own cards have bare names, such as `rivers`; for clients of a served hub that is library/rivers.


def full_name(card: str) -> str:
    """Return the name of a card's repository, namespace/name."""
    return card if "/" in card else f"{OWN_NAMESPACE}/{card}"


def bare_name(repository: str) -> str:
    """Return the name of a repository's card: without the hub's own namespace."""
    return repository.removeprefix(f"{OWN_NAMESPACE}/")


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


class Events:
    """The log of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, actor: str | None, action: Action, target: str, **detail: object) -> None:
        """Write an event in a transaction of its own."""
        with self._database.write() as session:
            write_event(session, actor, action, target, **detail)

    def list(
        self,
        limit: int = 100,
        before: int | None = None,
        action: str | None = None,
        actor: str | None = None,
    ) -> "list[LoggedEvent]":
        """Return at most `limit` events with numbers below `before`, newest first."""
        equal = {"action": action, "actor": actor}
        query = select(LoggedEvent).filter_by(
            **{key: value for key, value in equal.items() if value is not None}
        )
        if before is not None:
            query = query.where(LoggedEvent.number < before)
        query = query.order_by(LoggedEvent.number.desc()).limit(limit)
        with self._database.read() as session:
            return [*session.scalars(query)]


def write_event(session: Session, actor: str | None, action: Action, target: str, **detail: object) -> None:
    """Write an event within a transaction. `detail` must be JSON values."""
    values = {key: value for key, value in sorted(detail.items()) if value is not None}
    session.add(LoggedEvent(actor=actor, action=action, target=target, detail=values))


FIRST_ADMINISTRATOR = "admin"
UNLOGGED_FIELDS = {"email", "description"}
MAX_TEXT_CHARACTERS = {"fullname": 100, "email": 200, "description": 2000}  # characters
OWNER: Role = "admin"
UNCHANGED: Any = object()  # default of arguments for which None has a meaning


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
        user = Account(kind="user", name=name, fullname=fullname, email=email, admin=admin, quota=quota)
        with self._database.write() as session:
            return _add_account(session, user, by)

    def add_organisation(
        self, name: str, *, owner: str, fullname: str = "", quota: int | None = None, by: str | None = None
    ) -> Account:
        """Create an organisation with its first administrator. Raises as `add_user`, NotFound for an unknown owner."""
        with self._database.write() as session:
            user = _require_kind(session, owner, "user")
            organisation = Account(kind="organisation", name=name, fullname=fullname, quota=quota)
            _add_account(session, organisation, by)
            session.add(Membership(organisation_id=organisation.id, user_id=user.id, role=OWNER))
            write_event(session, by, "member.changed", organisation.name, user=user.name, role=OWNER)
            return organisation

    def create_first(self) -> Account | None:
        """Create the administrator `admin` if there is no user yet, else return None. Safe to call concurrently."""
        with self._database.write() as session:
            if session.scalar(select(func.count()).where(Account.kind == "user")):
                return None
            return _add_account(session, Account(kind="user", name=FIRST_ADMINISTRATOR, admin=True), None)

    def get(self, name: str) -> Account:
        """Return the account of that name, in any case. Raises NotFound."""
        with self._database.read() as session:
            return find_account(session, name)

    def list(self) -> "list[Account]":
        """Return every account, by name."""
        with self._database.read() as session:
            return [*session.scalars(select(Account).order_by(Account.folded))]

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
        with self._database.write() as session:
            account = find_account(session, name)
            if admin and account.kind == "organisation":
                raise UsageError(f"{account.name} is an organisation: only users can administer the hub")
            if account.admin and not account.disabled and (disabled or admin is False):
                others = (Account.admin.is_(True), Account.disabled.is_(False), Account.id != account.id)
                if not session.scalar(select(func.count()).where(*others)):
                    raise Forbidden(f"{account.name} is the only administrator: add another one first")
            if changes:
                for key, value in changes.items():
                    setattr(account, key, value)
                # The log does not contain email addresses, nor long texts.
                detail = {key: True if key in UNLOGGED_FIELDS else value for key, value in changes.items()}
                write_event(session, by, "account.updated", account.name, **detail)
            return account

    def set_member(self, organisation: str, user: str, role: Role | None, *, by: str | None = None) -> None:
        """Set a user's role in an organisation; None removes the user.

        Raises Forbidden if that would leave the organisation without an administrator.
        """
        if role is not None and role not in get_args(Role):
            raise UsageError(f"unknown role {role!r}: use {', '.join(get_args(Role))}")
        with self._database.write() as session:
            group = _require_kind(session, organisation, "organisation")
            member = find_account(session, user)
            if member.kind != "user":
                raise UsageError(f"{member.name} is an organisation: only users can be members")
            where = (Membership.organisation_id == group.id, Membership.user_id == member.id)
            before = session.scalar(select(Membership.role).where(*where))
            session.execute(delete(Membership).where(*where))
            if before == OWNER and role != OWNER:
                owners = (Membership.organisation_id == group.id, Membership.role == OWNER)
                if not session.scalar(select(func.count()).where(*owners)):
                    raise Forbidden(
                        f"{member.name} is the only administrator of {group.name}: add another one first"
                    )
            if role is not None:
                session.add(Membership(organisation_id=group.id, user_id=member.id, role=role))
            write_event(session, by, "member.changed", group.name, user=member.name, role=role or "none")

    def members(self, organisation: str) -> dict[str, Role]:
        """Return the roles in an organisation by user name."""
        with self._database.read() as session:
            group = _require_kind(session, organisation, "organisation")
            query = (
                select(Account.name, Membership.role)
                .join(Membership, Membership.user_id == Account.id)
                .where(Membership.organisation_id == group.id)
                .order_by(Account.folded)
            )
            return dict(session.execute(query).tuples().all())


def find_account(session: Session, name: str) -> Account:
    """Return the account of that name, in any case. Raises NotFound."""
    query = select(Account).where(Account.folded == fold_name(name))
    account = session.scalar(query) if is_valid_name(name) else None
    if account is None:
        raise NotFound("account", f"account {name[:100]!r} not found")
    return account


def find_roles(session: Session, user_id: int) -> Mapping[str, Role]:
    """Return a user's roles by organisation name, without disabled organisations."""
    query = (
        select(Account.name, Membership.role)
        .join(Membership, Membership.organisation_id == Account.id)
        .where(Membership.user_id == user_id, Account.disabled.is_(False))
        .order_by(Account.folded)
    )
    return dict(session.execute(query).tuples().all())


def _add_account(session: Session, account: Account, by: str | None) -> Account:
    name, account.folded = account.name, fold_name(account.name)
    check_unambiguous(check_namespace(name))
    if account.folded == OWN_NAMESPACE:
        raise Invalid(f"name {name!r} is reserved for the hub's own cards: choose another")
    check_text("fullname", account.fullname or "")
    check_text("email", account.email or "")
    taken = session.scalar(select(Account.name).where(Account.folded == account.folded))
    if taken is not None:
        raise Conflict(f"account {taken!r} already exists: choose another name")
    _check_quota(account.quota)
    session.add(account)
    session.flush()
    quota, admin = account.quota, account.admin or None
    write_event(session, by, "account.created", name, kind=account.kind, admin=admin, quota=quota)
    return account


def _require_kind(session: Session, name: str, kind: Literal["user", "organisation"]) -> Account:
    account = find_account(session, name)
    if account.kind != kind:
        article = {"user": "a user", "organisation": "an organisation"}
        raise NotFound("account", f"{account.name} is {article[account.kind]}: expected {article[kind]}")
    return account


def check_text(field: str, text: str) -> None:
    """Raise UsageError unless the text is allowed for fullname, email or description."""
    if len(text) > MAX_TEXT_CHARACTERS[field]:
        raise UsageError(
            f"{field} is too long: {len(text)} characters, the limit is {MAX_TEXT_CHARACTERS[field]}"
        )
    allowed = text.replace("\n", "") if field == "description" else text
    if not allowed.isprintable():
        raise UsageError(f"{field} contains a control character: use plain text")


def _check_quota(quota: int | None) -> int | None:
    if quota is not None and quota < 0:
        raise UsageError(f"invalid quota {quota}: use a number of bytes, 0 or more")
    return quota
