"""Who may use the endpoint: API keys in a TOML file that is read again when it changes; without keys, by which names.

[alice]
sha256 = "0f3c..."            # of the key; `kcard serve-key alice` adds a key
"""

import hashlib
import logging
import re
import secrets
import threading
import tomllib
from collections.abc import Collection
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kcard.errors import UsageError, one_line
from kcard.io import replacing
from kcard.serve.schema import Unauthorized, UnknownHost, error_body

PREFIX = "kc_"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ANYONE = "anonymous"
logger = logging.getLogger("kcard.serve")


def add_key(path: Path, holder: str) -> str:
    """Add a new key to a file, which only its owner can read, and return it.

    Raises UsageError for a name that is taken or invalid, and for a file that can't be read or written.
    """
    if not NAME.fullmatch(holder):
        raise UsageError(f"name {holder!r}: use letters, digits, - and _, at most 64 of them")
    if path.exists() and holder in _read_holders(path).values():
        raise UsageError(
            f"keys {path} has a key of {holder!r} already: remove it first, or choose another name"
        )
    key = PREFIX + secrets.token_urlsafe(32)
    entry = f'[{holder}]\nsha256 = "{_digest(key)}"\n'
    try:
        before = path.read_text(encoding="utf-8") + "\n" if path.exists() else ""
        with replacing(path, mode=0o600) as stream:
            stream.write((before + entry).encode())
    except OSError as error:
        raise UsageError(f"keys {path} can't be written: {error.strerror}") from error
    return key


class Keys:
    """The keys of a file, read again when it changes; without a file, everyone is ANYONE. Thread-safe.

    A file that is deleted or becomes malformed has no keys, so that nobody gets in, and the log says why. Raises
    UsageError, which names the file and, where there is one, the key, for files that can't be read at the start.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._holders: dict[str, str] = {}  # by the sha256 of the key
        self._stamp: tuple[int, int] | None = None
        self._trouble = ""  # why the file has no keys
        if path is not None:
            self._stamp, self._holders = _read_stamp(path), _read_holders(path)

    @property
    def is_needed(self) -> bool:
        """Whether a key is needed."""
        return self._path is not None

    def check(self, authorization: str | None) -> str:
        """Return the holder of "Bearer KEY". Raises Unauthorized."""
        if self._path is None:
            return ANYONE
        scheme, _, key = (authorization or "").partition(" ")
        holder = None
        if scheme.lower() == "bearer":
            holder = self._current_holders(self._path).get(_digest(key.strip()))
        if holder is None:
            raise Unauthorized("the API key is missing or wrong: send it as 'Authorization: Bearer KEY'")
        return holder

    def _current_holders(self, path: Path) -> dict[str, str]:
        with self._lock:
            try:
                stamp = _read_stamp(path)
                if stamp != self._stamp:
                    self._holders, self._stamp = _read_holders(path), stamp
                self._trouble = ""
            except UsageError as error:
                self._holders, self._stamp = {}, None
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    logger.error("no key is accepted: %s", one_line(error))
            return self._holders


# Names by which an endpoint without keys is addressed. A website that has its own name lead to this machine (DNS
# rebinding) could otherwise ask from its visitors' browsers. Starlette's TrustedHostMiddleware can't tell [::1].

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ANY_HOST = "*"
UNCHECKED_PATH = (
    "/healthz"  # probes address a container by its changing address, and learn only that it is up
)


class HostCheck:
    """ASGI middleware: 403 unless the header Host is a local name or one of `names`, whatever the port."""

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = {name.lower() for name in (*LOCAL_HOSTS, *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != UNCHECKED_PATH and ANY_HOST not in self._names:
            host = Headers(scope=scope).get("host", "")
            name = re.sub(r":\d*$", "", host).lower()
            if name not in self._names:
                error = UnknownHost(
                    f"this endpoint has no keys and is not called {name[:100]!r}: use http://localhost, or start "
                    "it with --allowed-hosts or --keys"
                )
                await JSONResponse(error_body(error), error.status)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _read_stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"keys {path} can't be read: {error.strerror}") from error
    return state.st_mtime_ns, state.st_size


def _read_holders(path: Path) -> dict[str, str]:
    """Return the holders by the sha256 of their keys. Raises UsageError."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"keys {path} can't be read: {error}") from error
    holders = {}
    for name, entry in entries.items():
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise UsageError(f"keys {path}, [{name}]: sha256 must be 64 hexadecimal digits")
        unknown = set(entry) - {"sha256"}
        if unknown:
            raise UsageError(f"keys {path}, [{name}]: {', '.join(sorted(unknown))} is unknown")
        holders[digest] = name
    return holders


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
