"""Tokens and sessions of accounts.

A token is random (240 bits), shown once, and stored only as its sha256. Lookups are by that digest, which an attacker
can't choose, so their timing reveals nothing and no constant-time comparison is needed.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, insert, or_, select, update

from kcard.errors import UsageError
from kcard.hub.accounts import Identity, Scope, find_account, find_roles, fold_name, write_event
from kcard.hub.db.models import accounts, now, repositories, sessions, tokens, utc
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, NotFound, Unauthenticated

__all__ = [
    "LONGEST_SESSION",
    "PREFIX",
    "Session",
    "Sessions",
    "Token",
    "TokenStore",
    "digest_secret",
    "identity_from_row",
    "select_tokens",
]


PREFIX = "kc_"
FOREIGN = "hf_"
RANDOM_BYTES = 30
LONGEST = 200
MOST_DAYS = 36_500
DEFAULT_NAME, LONGEST_NAME = "cli", 96
REFERENCE = 16  # digits of a digest, which tell a token from a later one with the same id


@dataclass(frozen=True)
class Token:
    """The properties of a token, without the token itself.

    repository  namespace/name of the only repository that it is valid for; None: all
    expires     None: never
    """

    name: str
    user: str
    scope: Scope
    repository: str | None
    created: datetime
    expires: datetime | None


class TokenStore:
    """The tokens of a hub. `by` is the account that makes a change, for the event log; None: the command line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        user: str,
        *,
        name: str | None = None,
        scope: Scope = "write",
        repository: str | None = None,
        days: float | None = None,
        by: str | None = None,
    ) -> str:
        """Create a token and return it; it can't be retrieved later.

        name        default: cli, cli-2, ...
        repository  the only repository it is valid for: namespace/name (a dataset: datasets/namespace/name)
        days        lifetime; None: until revoked
        Raises NotFound for an unknown user or repository, Conflict if the user has a token of that name, UsageError
        for an invalid scope or lifetime.
        """
        if scope not in get_args(Scope):
            raise UsageError(f"unknown scope {scope!r}: use {', '.join(get_args(Scope))}")
        if days is not None and not 0 < days <= MOST_DAYS:
            raise UsageError(
                f"invalid token lifetime of {days} days: use more than 0 and at most {MOST_DAYS}"
            )
        token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        created = now()
        with self._database.write() as connection:
            account = find_account(connection, user)
            if account.kind != "user":
                raise UsageError(f"{account.name} is an organisation: create a token for one of its members")
            # The name: the given one, which must be free, else the next of cli, cli-2, ...
            taken = set(connection.scalars(select(tokens.c.name).where(tokens.c.account_id == account.id)))
            if name is None:
                numbered = (f"{DEFAULT_NAME}-{number}" for number in range(2, len(taken) + 3))
                name = next(free for free in (DEFAULT_NAME, *numbered) if free not in taken)
            elif not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
                raise UsageError(
                    f"invalid token name {name[:100]!r}: use 1 to {LONGEST_NAME} printable characters"
                )
            elif name in taken:
                raise Conflict(f"token {name!r} already exists: revoke it, or choose another name")
            # The only repository, if any.
            repository_id = None
            if repository is not None:
                full_name = repository.removeprefix("datasets/")
                kind = "model" if full_name == repository else "dataset"
                where = (repositories.c.type == kind, repositories.c.folded == fold_name(full_name))
                repository_id = connection.scalar(select(repositories.c.id).where(*where))
                if repository_id is None:
                    raise NotFound("repository", f"{kind} repository {full_name[:200]!r} not found")
            values = {
                "account_id": account.id,
                "name": name,
                "digest": digest_secret(token),
                "scope": scope,
                "repository_id": repository_id,
                "created": created,
                "expires": None if days is None else created + timedelta(days=days),
            }
            connection.execute(insert(tokens).values(values))
            detail = {"token": values["name"], "scope": scope, "repository": repository, "days": days}
            write_event(connection, by, "token.created", account.name, **detail)
        return token

    def list(self, user: str | None = None) -> "list[Token]":
        """Return the tokens of a user, or of all users, oldest first, including expired ones."""
        query = (
            select(tokens, accounts.c.name.label("user"), repositories.c.name.label("repository"))
            .join(accounts, accounts.c.id == tokens.c.account_id)
            .outerjoin(repositories, repositories.c.id == tokens.c.repository_id)
            .order_by(tokens.c.id)
        )
        with self._database.read() as connection:
            if user is not None:
                query = query.where(tokens.c.account_id == find_account(connection, user).id)
            return [
                Token(
                    name=row.name,
                    user=row.user,
                    scope=row.scope,
                    repository=row.repository,
                    created=utc(row.created),
                    expires=None if row.expires is None else utc(row.expires),
                )
                for row in connection.execute(query)
            ]

    def revoke(self, user: str, name: str, *, by: str | None = None) -> None:
        """Revoke a token at once. Raises NotFound for an unknown name."""
        with self._database.write() as connection:
            account = find_account(connection, user)
            where = (tokens.c.account_id == account.id, tokens.c.name == name)
            if not name.isprintable() or not connection.execute(delete(tokens).where(*where)).rowcount:
                raise NotFound("object", f"{account.name} has no token {name[:100]!r}")
            write_event(connection, by, "token.revoked", account.name, token=name)

    def identify(self, text: str) -> Identity | None:
        """Return the identity of a token; None for an unknown token.

        Raises Unauthenticated for an expired token, a disabled user or a Hugging Face token.
        """
        if text.startswith(FOREIGN):
            raise Unauthenticated(
                f"a Hugging Face token ({FOREIGN}...) was sent to this hub: create one for this hub with `kcard hub "
                "token create`, and consider revoking the Hugging Face token"
            )
        if not text.startswith(PREFIX) or not text.isascii() or len(text) > LONGEST:
            return None
        return self._identity(tokens.c.digest == digest_secret(text))

    def resume(self, reference: str) -> Identity:
        """Return the identity of the token that a ticket refers to.

        Raises Unauthenticated if the token was revoked or has expired, or its user was disabled.
        """
        id_, _, start = reference.partition(".")
        # The id of a revoked token may be used again.
        same = and_(tokens.c.id == int(id_ or 0), tokens.c.digest.startswith(start))
        if (owner := self._identity(same)) is None:
            raise Unauthenticated(
                "the token of this upload was revoked: start the upload again with another one"
            )
        return owner

    def _identity(self, condition: ColumnElement[bool]) -> Identity | None:
        with self._database.read() as connection:
            row = connection.execute(select_tokens().where(condition)).one_or_none()
            return None if row is None else identity_from_row(connection, row)


def select_tokens() -> Select[Any]:
    """Return the query for tokens and their accounts, with the columns that `identity_from_row` needs."""
    columns = (tokens, accounts.c.admin, accounts.c.disabled, accounts.c.fullname, accounts.c.email)
    joined = tokens.join(accounts, accounts.c.id == tokens.c.account_id)
    return select(*columns, accounts.c.name.label("user")).select_from(joined)


def identity_from_row(connection: Connection, row: Row[Any]) -> Identity:
    """Return the identity in a row of `select_tokens`.

    Raises Unauthenticated for an expired token or a disabled user.
    """
    if row.disabled:
        raise Unauthenticated(f"account {row.user} is disabled: contact an administrator of this hub")
    if row.expires is not None and utc(row.expires) <= now():
        raise Unauthenticated(
            f"the token of {row.user} has expired: create a new one with `kcard hub token create`"
        )
    return Identity(
        account_id=row.account_id,
        name=row.user,
        admin=row.admin,
        scope=row.scope,
        repository_id=row.repository_id,
        organisations=find_roles(connection, row.account_id),
        token=f"{row.id}.{row.digest[:REFERENCE]}",
        token_name=row.name,
        fullname=row.fullname,
        email=row.email,
    )


def digest_secret(secret: str) -> str:
    """Return the sha256 that is stored in place of a token or a session's id."""
    return hashlib.sha256(secret.encode()).hexdigest()


# Sessions of browsers.
#
# A browser logs in with a token and gets a random id (256 bits), of which only the sha256 is stored. A session may do
# what its token may. It ends with the token, or if the account is disabled, after IDLE without use, and after
# LONGEST_SESSION.

IDLE, LONGEST_SESSION = timedelta(days=7), timedelta(days=30)
# Precision of the time of last use, so that few requests write it.
PRECISION = timedelta(hours=1)
SESSION_BYTES = 32
LONGEST_ID = 100
REFUSED = "unknown name or token: check both, and whether the token was revoked"


@dataclass(frozen=True)
class Session:
    """A session. `until`: when its token expires; None: never."""

    identity: Identity
    until: datetime | None


class Sessions:
    """The sessions of a hub."""

    def __init__(self, database: Database, tokens: TokenStore) -> None:
        self._database, self._tokens = database, tokens

    def open(self, name: str, token: str) -> str:
        """Log in; return the id of a new session.

        Raises Unauthenticated, with the same message for an unknown account and for a token of another one. The token
        is looked up whatever the name, so that the response time does not reveal whether the account exists.
        """
        who = self._tokens.identify(token)
        if who is None or fold_name(who.name) != fold_name(name):
            raise Unauthenticated(REFUSED)
        id_, at = secrets.token_urlsafe(SESSION_BYTES), now()
        of_token = select(tokens.c.id).where(tokens.c.digest == digest_secret(token))
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(_has_ended(at)))
            token_id = connection.scalar(of_token)
            if token_id is None:  # revoked meanwhile
                raise Unauthenticated(REFUSED)
            row = {"token_id": token_id, "digest": digest_secret(id_), "opened": at, "used": at}
            connection.execute(insert(sessions).values(row))
            write_event(connection, who.name, "session.opened", who.name, token=who.token_name)
        return id_

    def find(self, id_: str) -> Session | None:
        """Return the session of an id, and record its use; None if there is none or it has ended."""
        if not id_ or len(id_) > LONGEST_ID or not id_.isascii():
            return None
        query = select_tokens().add_columns(sessions.c.id.label("session_id"), sessions.c.used)
        query = query.join(sessions, sessions.c.token_id == tokens.c.id)
        at = now()
        with self._database.read() as connection:
            here = query.where(sessions.c.digest == digest_secret(id_), ~_has_ended(at))
            row = connection.execute(here).one_or_none()
            if row is None:
                return None
            try:
                session = Session(
                    identity_from_row(connection, row), None if row.expires is None else utc(row.expires)
                )
            except Unauthenticated:
                return None
        if at - utc(row.used) >= PRECISION:
            with self._database.write() as connection:
                connection.execute(update(sessions).where(sessions.c.id == row.session_id).values(used=at))
        return session

    def close(self, id_: str) -> None:
        """Log out, if there is such a session."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == digest_secret(id_)))

    def close_all(self, account_id: int) -> int:
        """Close every session of an account; return how many there were."""
        theirs = select(tokens.c.id).where(tokens.c.account_id == account_id)
        with self._database.write() as connection:
            return connection.execute(delete(sessions).where(sessions.c.token_id.in_(theirs))).rowcount


def _has_ended(at: datetime) -> Any:
    return or_(sessions.c.used <= at - IDLE, sessions.c.opened <= at - LONGEST_SESSION)
