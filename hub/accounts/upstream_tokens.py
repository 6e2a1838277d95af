"""The accounts' own tokens for the hub that this one mirrors, which must be sent there as they are.

Each is in a file of its own in the folder `upstream-tokens` of the hub, which only the hub's user can read: not in the
database, its backups, or beside the content. The database has its sha256, so that a file counts only for the account
and the hub that it was stored for.
"""

import hashlib
import hmac
import re
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select

from kcard.files import replacing
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.database import Database
from kcard.hub.records.mirror_tables import mirror_access, upstream_tokens
from kcard.hub.refusals import Invalid

__all__ = ["UpstreamTokens"]

TOKEN = re.compile(r"[\x21-\x7e]{8,512}")
OWNER_ONLY = 0o600


class UpstreamTokens:
    """The tokens for one hub, `upstream`; `folder` has their files."""

    def __init__(self, database: Database, folder: Path, upstream: str) -> None:
        self._database, self._folder, self._upstream = database, folder, upstream

    def store(self, account_id: int, token: str) -> None:
        """Store an account's token in place of its last one. Raises Invalid for what can't be a token."""
        if not TOKEN.fullmatch(token):
            raise Invalid("invalid token: use 8 to 512 printable characters without spaces")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(self._path(account_id), mode=OWNER_ONLY) as stream:
            stream.write(token.encode())
        with self._database.write() as connection:
            _delete(connection, account_id)
            row = {"account_id": account_id, "upstream": self._upstream, "digest": _digest(token)}
            connection.execute(insert(upstream_tokens).values(row))

    def forget(self, account_id: int) -> None:
        """Delete an account's token, if it has one."""
        with self._database.write() as connection:
            _delete(connection, account_id)
        self._path(account_id).unlink(missing_ok=True)

    def find(self, account_id: int) -> str | None:
        """An account's token; None without one. A disabled account has none."""
        mine = (upstream_tokens.c.account_id == account_id, upstream_tokens.c.upstream == self._upstream)
        query = select(upstream_tokens.c.digest).join_from(upstream_tokens, accounts)
        with self._database.read() as connection:
            digest = connection.scalar(query.where(*mine, accounts.c.disabled.is_(False)))
        if digest is None:
            return None
        try:
            token = self._path(account_id).read_text(encoding="ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return token if hmac.compare_digest(_digest(token), digest) else None

    def _path(self, account_id: int) -> Path:
        return self._folder / str(account_id)


def _delete(connection: Connection, account_id: int) -> None:
    """Delete the token's row, and what upstream let it read."""
    for table in (upstream_tokens, mirror_access):
        connection.execute(delete(table).where(table.c.account_id == account_id))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
