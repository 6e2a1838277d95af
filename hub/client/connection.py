"""The connection to a hub: its URL, credentials, limits on its answers, and errors."""

import errno
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from kcard.config import is_on_this_machine
from kcard.connections import require_listener
from kcard.errors import HubError, KcardError, UnknownCard, UsageError, one_line, printable
from kcard.hub.errors import Dangerous, TooLarge
from kcard.io import replacing, shown_size

if TYPE_CHECKING:
    from huggingface_hub import HfApi


# Normalised URLs of hubs, under which tokens are stored.

HUGGING_FACE = "https://huggingface.co"
PORTS = {"http": 80, "https": 443}


def normalise_url(url: str) -> str:
    """Return the URL with lower-case scheme and host, without a default port or trailing slash.

    Raises UsageError unless it is an http or https URL without user, password, query and fragment.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid_address(url) from None
    if parts.scheme not in PORTS or not host or parts.username is not None or parts.query or parts.fragment:
        raise _invalid_address(url)
    shown = f"[{host}]" if ":" in host else host
    where = shown if port in {None, PORTS[parts.scheme]} else f"{shown}:{port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/')}"


def is_hugging_face(url: str) -> bool:
    """Return whether the host belongs to the Hugging Face Hub."""
    host = urlsplit(url).hostname or ""
    return host in {"huggingface.co", "hf.co"} or host.endswith(".huggingface.co")


def _invalid_address(url: str) -> UsageError:
    return UsageError(f"invalid hub URL {url!r}: use one such as https://hub.example.org")


# Stored tokens of hubs, in a file that only its owner can read.
#
# The Hugging Face token stays where `hf auth login` stores it.

OURS, THEIRS = "kc_", "hf_"
TOKEN = re.compile(r"[\x21-\x7e]{8,512}")
OWNER_ONLY = 0o600


@dataclass(frozen=True)
class Credentials:
    """The tokens in the JSON file `path`, by the URL of their hub."""

    path: Path

    def token(self, url: str) -> str | None:
        """Return the token for a hub; None if not logged in."""
        if not is_hugging_face(url):
            return self._read().get(url)
        from huggingface_hub import get_token

        token = get_token()
        if token is not None:
            check_token(url, token)  # HF_TOKEN may be for another hub
        return token

    def store(self, url: str, token: str) -> None:
        """Store a token. Raises UsageError if it belongs to another hub, or if `hf` stores that hub's token."""
        if is_hugging_face(url):
            raise UsageError(f"log in to {url} with `hf auth login`: kcard uses that token")
        check_token(url, token)
        self._write({**self._read(), url: token})

    def forget(self, url: str) -> bool:
        """Delete a token. Returns whether it existed."""
        if is_hugging_face(url):
            raise UsageError(f"log out of {url} with `hf auth logout`: kcard does not store its token")
        tokens = self._read()
        if url not in tokens:
            return False
        self._write({other: token for other, token in tokens.items() if other != url})
        return True

    def _read(self) -> dict[str, str]:
        try:
            tokens = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HubError(f"can't read {self.path} ({error}): delete it and log in again") from error
        if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
            raise HubError(f"{self.path} is not a file of tokens by hub: delete it and log in again")
        return tokens

    def _write(self, tokens: Mapping[str, str]) -> None:
        with replacing(self.path, parents=True, mode=OWNER_ONLY) as stream:
            stream.write(json.dumps(dict(tokens), indent=2, sort_keys=True).encode())


def check_token(url: str, token: str) -> None:
    """Raise UsageError for a malformed token, or one that must not be sent to this hub."""
    if not TOKEN.fullmatch(token):
        raise UsageError("invalid token: expected one word of at least 8 printable characters")
    if is_hugging_face(url):
        if token.startswith(OURS):
            raise UsageError(f"tokens that begin with {OURS} belong to a kcard hub: not sent to {url}")
    elif token.startswith(THEIRS):
        raise UsageError(
            f"tokens that begin with {THEIRS} belong to the Hugging Face Hub: not sent to {url}; ask an administrator "
            "of that hub for a token"
        )


# Limits on what a hub may do to its client, which must not trust it: bytes, requests, waits, redirects, credentials.
#
# Requests and responses are those of httpx, or of the library that huggingface_hub uses in its place.

MAX_ANSWER_BYTES = 64 << 20  # bytes of all answers within a block of `connect`
MAX_ERROR_BYTES = 64 << 10  # bytes that are read of an answer with an error
MAX_REQUESTS = 10_000  # within a block
MAX_WAIT_SECONDS = 300  # seconds that a hub may ask the client to wait
TIMEOUT = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 60.0}
READING_METHODS = ("GET", "HEAD")
# huggingface_hub makes file names of these headers.
NAMING_HEADERS = ("ETag", "X-Linked-Etag", "X-Repo-Commit")
PLAIN_VALUE = re.compile(r'(W/)?"?[\w.+=~-]{0,200}"?', re.ASCII)
# Retry-After: 120, or RateLimit: "api";r=0;t=55 where nothing remains.
WAIT = re.compile(r"^\s*([0-9]{1,20})|r=0\s*;\s*t=([0-9]{1,20})")


@dataclass
class Guard:
    """The limits for one hub, and how much of them has been used.

    largest  bytes of all answers
    """

    url: str
    largest: int = MAX_ANSWER_BYTES
    received: int = 0
    requests: int = 0

    def check_request(self, request: Any) -> None:
        """Check a request before it is sent, also to follow a redirect. Raises Dangerous, TooLarge."""
        # The destination must be encrypted if the hub is, and only the token's own hub gets the token.
        url, authorized = str(request.url), "authorization" in request.headers
        ours, there = _origin(self.url), _origin(url)
        if there[0] not in PORTS or (ours[0] == "https" and there[0] != "https"):
            raise Dangerous(f"{self.url} leads to {there[0]}://{there[1]}, which is not encrypted: refused")
        upgraded = ours[1] == there[1] and (*ours[::2], *there[::2]) == ("http", 80, "https", 443)
        same = ours == there or upgraded or (is_hugging_face(self.url) and is_hugging_face(url))
        if authorized and not same:
            raise Dangerous(
                f"{self.url} leads to {there[0]}://{there[1]}, which must not get your token: refused"
            )
        # Limits of requests and of time.
        request.headers["Accept-Encoding"] = "identity"
        if request.method in READING_METHODS or "/api/" in request.url.path:  # no parts of an upload
            self.requests += 1
        if self.requests > MAX_REQUESTS:
            raise TooLarge(f"{self.url} needs more than {MAX_REQUESTS} requests for one answer: refused")
        if request.method not in READING_METHODS:
            return
        limits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {key: limits.get(key) or TIMEOUT[key] for key in TIMEOUT}

    def check_response(self, response: Any) -> None:
        """Check an answer before its body is read. Raises Dangerous, TooLarge, HubError."""
        headers = response.headers
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise Dangerous(f"{self.url} sent a compressed answer, which was not requested: refused")
        for name in NAMING_HEADERS if "X-Repo-Commit" in headers else ():
            if not PLAIN_VALUE.fullmatch(headers.get(name, "")):
                raise Dangerous(
                    f"{self.url} sent the {name} {headers[name][:80]!r}, which is no plain name: refused"
                )
        if response.status_code >= 400:
            # Seconds for which the hub tells the client to wait.
            waits = WAIT.findall(f"{headers.get('Retry-After', '')} {headers.get('RateLimit', '')}")
            if max((int(retry or reset) for retry, reset in waits), default=0) > MAX_WAIT_SECONDS:
                raise HubError(f"{self.url} is busy for more than {MAX_WAIT_SECONDS} s: try again later")
        if response.request.method == "HEAD":
            return
        length = headers.get("Content-Length", "")
        if response.status_code >= 400:
            response.stream = _wrap_stream(response, self._cut_error)
        elif length.isdecimal() and int(length[:20]) > self.largest - self.received:
            raise self._too_large()
        else:
            response.stream = _wrap_stream(response, self._count_bytes)

    def _count_bytes(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.received += len(part)
            if self.received > self.largest:
                raise self._too_large()
            yield part

    @staticmethod
    def _cut_error(parts: Iterator[bytes]) -> Iterator[bytes]:
        left = MAX_ERROR_BYTES
        for part in parts:
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"{self.url} sends more than the {shown_size(self.largest)} that were expected: refused"
        )


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)


def _wrap_stream(response: Any, through: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Any:
    """Return a stream of the class that the HTTP library requires, which reads the response through a function."""
    base: Any = import_module(type(response).__module__.partition(".")[0]).SyncByteStream
    whole = response.stream

    class Limited(base):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            return through(iter(whole))

        def close(self) -> None:
            whole.close()

    return Limited()


# A guard of huggingface_hub, which has one HTTP client for the whole process.
#
# Event hooks of that client call the guard, but only for requests with its mark: a header that an HfApi adds, and that
# is removed before the request is sent.

MARK = "X-Kcard-Guard"

_guards: dict[str, Guard] = {}


@contextmanager
def guard_requests(guard: Guard) -> Iterator[dict[str, str]]:
    """Apply the guard until the end of the block, to requests with the headers that it yields."""
    # Add the hooks to huggingface_hub's client and to every later one, which it makes after a broken connection.
    from huggingface_hub.utils import _http

    http: Any = _http
    make: Callable[[], Any] = http._GLOBAL_CLIENT_FACTORY  # set_client_factory would close connections
    if not getattr(make, "guarded", False):

        def make_guarded() -> Any:
            return _add_hooks(make())

        make_guarded.guarded = True  # type: ignore[attr-defined]
        http._GLOBAL_CLIENT_FACTORY = make_guarded
        _add_hooks(http.get_session())
    mark = uuid.uuid4().hex
    _guards[mark] = guard
    try:
        yield {MARK: mark}
    finally:
        del _guards[mark]


def _add_hooks(client: Any) -> Any:
    if _on_request not in client.event_hooks["request"]:
        client.event_hooks["request"].append(_on_request)
        client.event_hooks["response"].append(_on_response)
    return client


def _on_request(request: Any) -> None:
    mark = request.headers.pop(MARK, None)
    if mark is not None:
        request.extensions[MARK] = mark  # redirects keep it
    guard = _guards.get(request.extensions.get(MARK))
    if guard is not None:
        guard.check_request(request)


def _on_response(response: Any) -> None:
    guard = _guards.get(response.request.extensions.get(MARK))
    if guard is not None:
        guard.check_response(response)


# Exceptions of huggingface_hub for JSON of an unexpected form.
MALFORMED_REPLY_ERRORS = (KeyError, TypeError, AttributeError)
LOGIN = "`kcard login --hub {url}`"


@contextmanager
def connect(
    url: str, token: str | None, *, progress: bool = False, largest: int = MAX_ANSWER_BYTES
) -> "Iterator[HfApi]":
    """Open the client for a hub. Errors inside the block become a HubError with one line.

    progress  whether huggingface_hub shows progress bars on stderr
    largest   most bytes of all answers within the block; more raise HubError

    Its settings for Xet, progress bars, warnings and offline use are global, and are restored at the end of the block.
    Uploads to other hubs than the Hugging Face Hub use LFS: hubs of this project do not speak Xet. HF_HUB_OFFLINE does
    not concern a hub on this machine.
    """
    from huggingface_hub import HfApi, constants, utils
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    # The bases include the errors of its HTTP library, which differs between versions.
    failures: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, RuntimeError, ValueError)
    bars: Any = utils  # its functions for progress bars are not exported for type checkers
    hidden = bars.are_progress_bars_disabled()
    xet, offline, verbosity = constants.HF_HUB_DISABLE_XET, constants.HF_HUB_OFFLINE, get_verbosity()
    constants.HF_HUB_DISABLE_XET = xet or not is_hugging_face(url)
    constants.HF_HUB_OFFLINE = offline and not is_on_this_machine(url)
    set_verbosity(logging.ERROR)
    if not progress and not hidden:
        bars.disable_progress_bars()
    try:
        if not constants.HF_HUB_OFFLINE:
            require_listener(url)
        with guard_requests(Guard(url, largest)) as marked:
            # False: without a token for this hub, the client must not send the user's Hugging Face token.
            yield HfApi(endpoint=url, token=token or False, library_name="kcard", headers=marked)
    except failures as error:
        raise _translate(url, token, error) from error
    except MALFORMED_REPLY_ERRORS as error:
        raise HubError(f"{url} sent an unexpected answer ({one_line(error)}): is it a hub?") from error
    finally:
        constants.HF_HUB_DISABLE_XET, constants.HF_HUB_OFFLINE = xet, offline
        set_verbosity(verbosity)
        if not progress and not hidden:
            bars.enable_progress_bars()


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of a client's error; None without a response."""
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HfHubHTTPError):
            return int(cause.response.status_code)
        cause = cause.__cause__ or cause.__context__
    return None


def _translate(url: str, token: str | None, error: Exception) -> KcardError:
    """Return the error that a user should see for an error of huggingface_hub."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    cause = _root_cause(error)
    if isinstance(cause, OfflineModeIsEnabled):
        return HubError(f"can't connect to {url}: HF_HUB_OFFLINE is set; unset it")
    if isinstance(cause, HFValidationError):
        return UsageError(f"{one_line(cause)}: use namespace/name")
    # The message of the server, else of the client.
    answer = getattr(cause, "response", None)
    sent = getattr(cause, "server_message", None) or (answer and answer.headers.get("X-Error-Message"))
    message = printable(" ".join(sent.split())[:300]) if sent else one_line(cause)
    # What the hub refused.
    code = http_status(error)
    login = LOGIN.format(url=url)
    if isinstance(cause, GatedRepoError):
        return HubError(f"{url}: access to these files must be requested: {message}")
    if isinstance(cause, RevisionNotFoundError):
        return UnknownCard(f"{url}: no such version, branch or commit: {message}")
    if code == 401:
        if token is None:
            return HubError(f"{url} requires a token: {login}")
        return HubError(f"{url} rejected your token ({message}): {login} with another one")
    if isinstance(cause, RepositoryNotFoundError):
        return UnknownCard(
            f"{url}: repository not found, or private and not readable with your token: {message}"
        )
    if code is not None:
        return HubError(f"{url} {'failed' if code >= 500 else 'refused'} ({code}): {message}")
    # What failed on this machine or on the way.
    if isinstance(cause, OSError) and cause.filename is not None:
        return HubError(f"{cause.filename}: {cause.strerror or cause}")
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return HubError(f"the disk is full: free some space and try again ({one_line(cause)})")
    if isinstance(cause, ValueError | RuntimeError) and not isinstance(cause, OSError):
        return HubError(f"{url}: {one_line(cause)}")
    return HubError(
        f"{url} does not answer ({one_line(cause)}): check that the hub is running, and try again"
    )


def _root_cause(error: BaseException) -> BaseException:
    """Return the innermost cause: the server's response, or why there was none."""
    from huggingface_hub.errors import HfHubHTTPError

    wrapped = error.__cause__
    if isinstance(error, HfHubHTTPError) or wrapped is None:
        return error
    return _root_cause(wrapped)


# The user's account on a hub.


@dataclass(frozen=True)
class HubUser:
    """A user of a hub; `role` is the scope of the token: read, write or admin."""

    hub: str
    name: str
    fullname: str
    organisations: tuple[str, ...]
    token: str
    role: str


def require_login(url: str) -> NoReturn:
    """Raise the HubError for a hub to which the user is not logged in, or for one that does not answer at all."""
    try:
        with connect(url, None) as api:
            next(iter(api.list_models(limit=1)), None)
    except HubError as error:
        if http_status(error) is None:
            raise
    raise HubError(f"not logged in to {url}: run `kcard login --hub {url}`")


def fetch_user(url: str, token: str | None) -> HubUser:
    """Return the owner of the token. Raises HubError if there is no token, or the hub rejects it or does not answer."""
    token = token or require_login(url)
    with connect(url, token) as api:
        account = api.whoami()
        shown = account.get("auth", {}).get("accessToken", {})
        return HubUser(
            hub=url,
            name=str(account["name"]),
            fullname=str(account.get("fullname") or ""),
            organisations=tuple(str(org["name"]) for org in account.get("orgs", [])),
            token=str(shown.get("displayName") or ""),
            role=str(shown.get("role") or ""),
        )
