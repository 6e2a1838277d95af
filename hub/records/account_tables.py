"""Tables of accounts, memberships, tokens, sessions and events."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, ForeignKey, Integer, String, Table, Text

from kcard.hub.records.tables import metadata

__all__ = ["accounts", "events", "memberships", "sessions", "tokens"]

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

# Sessions of browsers. `digest` is the sha256 of the id in the cookie. A session goes with the token that opened it.
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
