"""Tokens and sessions of accounts.

A token is random (240 bits), shown once, and stored only as its sha256. Lookups are by that digest, which an attacker
can't choose, so their timing reveals nothing and no constant-time comparison is needed.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from kcard.errors import UsageError
from kcard.hub.accounts import Identity, find_account, find_roles, fold_name, write_event
from kcard.hub.db.models import BrowserSession, Repository, Scope, Token, now
from kcard.hub.db.session import Database, count_changed
from kcard.hub.errors import Conflict, NotFound, Unauthenticated

PREFIX = "kc_"
FOREIGN = "hf_"
RANDOM_BYTES = 30
MAX_TOKEN_CHARACTERS = 200
MAX_TOKEN_DAYS = 36_500
DEFAULT_NAME, MAX_NAME_CHARACTERS = "cli", 96
REFERENCE_DIGITS = 16  # digits of a digest, which tell a token from a later one with the same id


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
        if days is not None and not 0 < days <= MAX_TOKEN_DAYS:
            raise UsageError(
                f"invalid token lifetime of {days} days: use more than 0 and at most {MAX_TOKEN_DAYS}"
            )
        token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        created = now()
        with self._database.write() as session:
            account = find_account(session, user)
            if account.kind != "user":
                raise UsageError(f"{account.name} is an organisation: create a token for one of its members")
            # The name: the given one, which must be free, else the next of cli, cli-2, ...
            taken = set(session.scalars(select(Token.name).where(Token.account_id == account.id)))
            if name is None:
                name, number = DEFAULT_NAME, 1
                while name in taken:
                    number += 1
                    name = f"{DEFAULT_NAME}-{number}"
            elif not name.isprintable() or not 0 < len(name) <= MAX_NAME_CHARACTERS:
                raise UsageError(
                    f"invalid token name {name[:100]!r}: use 1 to {MAX_NAME_CHARACTERS} printable characters"
                )
            elif name in taken:
                raise Conflict(f"token {name!r} already exists: revoke it, or choose another name")
            # The only repository, if any.
            repository_id = None
            if repository is not None:
                full_name = repository.removeprefix("datasets/")
                kind = "model" if full_name == repository else "dataset"
                where = (Repository.type == kind, Repository.folded == fold_name(full_name))
                repository_id = session.scalar(select(Repository.id).where(*where))
                if repository_id is None:
                    raise NotFound("repository", f"{kind} repository {full_name[:200]!r} not found")
            row = Token(
                account_id=account.id,
                name=name,
                digest=digest_secret(token),
                scope=scope,
                repository_id=repository_id,
                created=created,
                expires=None if days is None else created + timedelta(days=days),
            )
            session.add(row)
            detail = {"token": name, "scope": scope, "repository": repository, "days": days}
            write_event(session, by, "token.created", account.name, **detail)
        return token

    def list(self, user: str | None = None) -> "list[Token]":
        """Return the tokens of a user, or of all users, oldest first, including expired ones."""
        query = select(Token).order_by(Token.id)
        with self._database.read() as session:
            if user is not None:
                query = query.where(Token.account_id == find_account(session, user).id)
            return [*session.scalars(query)]

    def revoke(self, user: str, name: str, *, by: str | None = None) -> None:
        """Revoke a token at once. Raises NotFound for an unknown name."""
        with self._database.write() as session:
            account = find_account(session, user)
            where = (Token.account_id == account.id, Token.name == name)
            if not name.isprintable() or not count_changed(session, delete(Token).where(*where)):
                raise NotFound("object", f"{account.name} has no token {name[:100]!r}")
            write_event(session, by, "token.revoked", account.name, token=name)

    def identify(self, text: str) -> Identity | None:
        """Return the identity of a token; None for an unknown token.

        Raises Unauthenticated for an expired token, a disabled user or a Hugging Face token.
        """
        if text.startswith(FOREIGN):
            raise Unauthenticated(
                f"a Hugging Face token ({FOREIGN}...) was sent to this hub: create one for this hub with `kcard hub "
                "token create`, and consider revoking the Hugging Face token"
            )
        if not text.startswith(PREFIX) or not text.isascii() or len(text) > MAX_TOKEN_CHARACTERS:
            return None
        return self._identity(Token.digest == digest_secret(text))

    def resume(self, reference: str) -> Identity:
        """Return the identity of the token that a ticket refers to.

        Raises Unauthenticated if the token was revoked or has expired, or its user was disabled.
        """
        owner = self._identity(_is_referred_to(reference))
        if owner is None:
            raise Unauthenticated(
                "the token of this upload was revoked: start the upload again with another one"
            )
        return owner

    def _identity(self, condition: ColumnElement[bool]) -> Identity | None:
        with self._database.read() as session:
            token = session.scalar(select(Token).where(condition))
            return None if token is None else find_identity(session, token)


def find_identity(session: Session, token: Token) -> Identity:
    """Return the identity that a token proves. Raises Unauthenticated for an expired token or a disabled user."""
    user = token.account
    if user.disabled:
        raise Unauthenticated(f"account {user.name} is disabled: contact an administrator of this hub")
    if token.expires is not None and token.expires <= now():
        raise Unauthenticated(
            f"the token of {user.name} has expired: create a new one with `kcard hub token create`"
        )
    return Identity(
        account_id=user.id,
        name=user.name,
        admin=user.admin,
        scope=token.scope,
        repository_id=token.repository_id,
        organisations=find_roles(session, user.id),
        token=f"{token.id}.{token.digest[:REFERENCE_DIGITS]}",
        token_name=token.name,
        fullname=user.fullname,
        email=user.email,
    )


def refresh_identity(session: Session, identity: Identity) -> Identity:
    """Return the identity with the roles that its user has by now.

    Raises Unauthenticated if its token was revoked or has expired, or its user was disabled. An identity without a
    token is returned as it is.
    """
    if not identity.token:
        return identity
    token = session.scalar(select(Token).where(_is_referred_to(identity.token)))
    if token is None:
        raise Unauthenticated("the token of this request was revoked: try again with another one")
    return find_identity(session, token)


def _is_referred_to(reference: str) -> ColumnElement[bool]:
    """Return the condition for the token of a reference: the id of a revoked token may be used again."""
    id_, _, start = reference.partition(".")
    return and_(Token.id == int(id_ or 0), Token.digest.startswith(start))


def digest_secret(secret: str) -> str:
    """Return the sha256 that is stored in place of a token or a session's id."""
    return hashlib.sha256(secret.encode()).hexdigest()


# Sessions of browsers.
#
# A browser logs in with a token and gets a random id (256 bits), of which only the sha256 is stored. A session may do
# what its token may. It ends with the token, or if the account is disabled, after MAX_IDLE without use, and after
# MAX_SESSION.

MAX_IDLE, MAX_SESSION = timedelta(days=7), timedelta(days=30)
# Precision of the time of last use, so that few requests write it.
PRECISION = timedelta(hours=1)
SESSION_BYTES = 32
MAX_ID_CHARACTERS = 100
REFUSED_LOGIN_MESSAGE = "unknown name or token: check both, and whether the token was revoked"


@dataclass(frozen=True)
class Login:
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
            raise Unauthenticated(REFUSED_LOGIN_MESSAGE)
        id_, at = secrets.token_urlsafe(SESSION_BYTES), now()
        of_token = select(Token.id).where(Token.digest == digest_secret(token))
        with self._database.write() as session:
            session.execute(delete(BrowserSession).where(_has_ended(at)))
            token_id = session.scalar(of_token)
            if token_id is None:  # revoked meanwhile
                raise Unauthenticated(REFUSED_LOGIN_MESSAGE)
            session.add(BrowserSession(token_id=token_id, digest=digest_secret(id_), opened=at, used=at))
            write_event(session, who.name, "session.opened", who.name, token=who.token_name)
        return id_

    def find(self, id_: str) -> Login | None:
        """Return the session of an id, and record its use; None if there is none or it has ended."""
        if not id_ or len(id_) > MAX_ID_CHARACTERS or not id_.isascii():
            return None
        at = now()
        query = select(BrowserSession).where(BrowserSession.digest == digest_secret(id_), ~_has_ended(at))
        with self._database.read() as session:
            row = session.scalar(query)
            if row is None:
                return None
            try:
                login = Login(find_identity(session, row.token), row.token.expires)
            except Unauthenticated:
                return None
        if at - row.used >= PRECISION:
            with self._database.write() as session:
                session.execute(update(BrowserSession).where(BrowserSession.id == row.id).values(used=at))
        return login

    def close(self, id_: str) -> None:
        """Log out, if there is such a session."""
        with self._database.write() as session:
            session.execute(delete(BrowserSession).where(BrowserSession.digest == digest_secret(id_)))

    def close_all(self, account_id: int) -> int:
        """Close every session of an account; return how many there were."""
        theirs = select(Token.id).where(Token.account_id == account_id)
        with self._database.write() as session:
            return count_changed(session, delete(BrowserSession).where(BrowserSession.token_id.in_(theirs)))


def _has_ended(at: datetime) -> Any:
    return or_(BrowserSession.used <= at - MAX_IDLE, BrowserSession.opened <= at - MAX_SESSION)
