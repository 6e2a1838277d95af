"""Who may use the endpoint, and how much: API keys in a TOML file that is read again when it changes.

[alice]
sha256 = "0f3c..."            # of the key; `kcard serve-key alice` adds a key
requests_per_minute = 60      # left out: no limit
tokens_per_day = 100000       # tokens of the LLM, by UTC day; left out: no limit
"""

import hashlib
import logging
import re
import secrets
import sqlite3
import threading
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.config import settings
from kcard.errors import UsageError
from kcard.files import replacing
from kcard.serve.errors import Busy, RateLimited, Unauthorized
from kcard.serve.quotas import Quotas

__all__ = ["Key", "Keys", "add_key", "new_key"]

NAMES = {"sha256", "requests_per_minute", "tokens_per_day"}
PREFIX = "kc_"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Key:
    """A key's holder and limits; None: no limit."""

    name: str
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


ANYONE = Key("anonymous")
logger = logging.getLogger("kcard.serve")


def new_key() -> tuple[str, str]:
    """A new key, and its sha256 for the file."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, _digest(key)


def add_key(path: Path, holder: Key) -> str:
    """Add a new key to a file, which only its owner can read, and return it.

    Raises UsageError for a name that is taken or unfit, and for a file that can't be read or written.
    """
    if not NAME.fullmatch(holder.name):
        raise UsageError(f"name {holder.name!r}: use letters, digits, - and _, at most 64 of them")
    if path.exists() and any(known.name == holder.name for known in _keys(path).values()):
        raise UsageError(
            f"keys {path} has a key of {holder.name!r} already: remove it first, or choose another name"
        )
    key, digest = new_key()
    limits = {"requests_per_minute": holder.requests_per_minute, "tokens_per_day": holder.tokens_per_day}
    lines = [
        f"[{holder.name}]",
        f'sha256 = "{digest}"',
        *(f"{n} = {v}" for n, v in limits.items() if v is not None),
    ]
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        separator = "\n" if before else ""
        with replacing(path, mode=0o600) as stream:
            stream.write((before + separator + "\n".join(lines) + "\n").encode())
    except OSError as error:
        raise UsageError(f"keys {path} can't be written: {error.strerror}") from error
    return key


class Keys:
    """The keys of a file; without a file, everyone is ANYONE. Thread-safe.

    spent  file of what was spent, which other processes may share; None: that of the home

    Raises UsageError, which names the file and, where there is one, the key, for files that can't be read.
    """

    def __init__(self, path: Path | None, spent: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._keys: dict[str, Key] = {}
        self._read: tuple[int, int] | None = None
        if path is not None:
            self._read, self._keys = _stamp(path), _keys(path)
            self._quotas = _quotas(spent or settings().home / "serve" / "spent.sqlite")

    def check(self, authorization: str | None) -> Key:
        """The holder of "Bearer KEY". Raises Unauthorized, RateLimited where a limit is reached, and Busy where that
        can't be told."""
        if self._path is None:
            return ANYONE
        scheme, _, given = (authorization or "").partition(" ")
        found = self._current().get(_digest(given.strip())) if scheme.lower() == "bearer" else None
        if found is None:
            raise Unauthorized("the API key is missing or wrong: send it as 'Authorization: Bearer KEY'")
        try:
            self._take(found)
        except sqlite3.Error as error:
            logger.error("what keys have spent can't be read: %s", error)
            raise Busy("the quota of the key can't be checked: try again later", retry_after=5) from None
        return found

    def spend(self, key: Key, tokens: int) -> None:
        """Count tokens of the LLM."""
        if key.tokens_per_day is None or not tokens:
            return
        try:
            self._quotas.spend(self._holder(key), tokens)
        except sqlite3.Error as error:  # the answer is there: it is not held back
            logger.error("%d tokens of %r were not counted: %s", tokens, key.name, error)

    def _take(self, key: Key) -> None:
        holder = self._holder(key)
        if key.tokens_per_day is not None and self._quotas.tokens(holder) >= key.tokens_per_day:
            raise RateLimited(
                f"the key {key.name!r} has spent its {key.tokens_per_day} tokens of today (UTC)",
                retry_after=self._quotas.until_tomorrow(),
            )
        rate = key.requests_per_minute
        if rate is not None and (wait := self._quotas.take(holder, rate)):
            raise RateLimited(f"the key {key.name!r} may send {rate} requests a minute", retry_after=wait)

    def _holder(self, key: Key) -> str:
        """Whose quota it is: another file may name somebody else so."""
        assert self._path is not None
        return f"{self._path.absolute()} {key.name}"

    def _current(self) -> dict[str, Key]:
        """The keys of the file as it is now; a file that became malformed keeps those that it had."""
        assert self._path is not None
        with self._lock:
            try:
                stamp = _stamp(self._path)
                if stamp != self._read:
                    self._keys, self._read = _keys(self._path), stamp
            except UsageError:
                pass
            return self._keys


def _quotas(path: Path) -> Quotas:
    try:
        return Quotas(path)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(
            f"what keys have spent can't be kept in {path}: {error}; make it writable, or delete a damaged file"
        ) from error


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"keys {path} can't be read: {error.strerror}") from error
    return state.st_mtime_ns, state.st_size


def _keys(path: Path) -> dict[str, Key]:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"keys {path} can't be read: {error}") from error
    return {_sha256(path, name, entry): _key(path, name, entry) for name, entry in entries.items()}


def _sha256(path: Path, name: str, entry: Any) -> str:
    digest = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise UsageError(f"keys {path}, [{name}]: sha256 must be 64 hexadecimal digits")
    return digest


def _key(path: Path, name: str, entry: dict[str, Any]) -> Key:
    if unknown := set(entry) - NAMES:
        raise UsageError(f"keys {path}, [{name}]: {', '.join(sorted(unknown))} is unknown")
    limits = {limit: entry.get(limit) for limit in ("requests_per_minute", "tokens_per_day")}
    for limit, value in limits.items():
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"keys {path}, [{name}]: {limit} is {value!r}, expected a whole number from 1")
    return Key(name, **limits)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
