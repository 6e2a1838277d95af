"""Reads repositories of another hub for this one to mirror.

A guard limits each request: only the hub's own host gets requests with a token, redirects lead to it or over https to
the hosts from which the Hugging Face Hub serves files, and answers have the expected size at most.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from kcard.errors import KcardError, one_line
from kcard.hub.client.guard import LARGEST_ANSWERS, Guard
from kcard.hub.client.hooks import guarded
from kcard.hub.refusals import NotThere, UpstreamFailed

__all__ = ["MIRRORING", "Denied", "Upstream", "UpstreamDown"]

# Marks the requests of a hub that mirrors, which another one answers without asking its own upstream.
MIRRORING = "X-Kcard-Mirroring"
FILE_HOSTS = ("hf.co", "huggingface.co")
# Clients of this hub wait ten seconds for the headers of an answer.
ASKING = {"connect": 4.0, "read": 8.0, "write": 4.0, "pool": 4.0}
FETCHING = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 60.0}
SLOWEST = 50_000  # bytes a second of a file, after the first minute
SHA = re.compile(r"[0-9a-f]{40}")
ABSENT = (401, 403, 404)


class Denied(Exception):
    """Upstream shows no such repository to this token, or to nobody without one."""


class UpstreamDown(UpstreamFailed):
    """Upstream does not answer, or is out of order."""


class Upstream:
    """The hub at `url`. Every call takes the token to send, or None."""

    def __init__(self, url: str) -> None:
        self.url = url

    def info(self, type_: str, name: str, revision: str, token: str | None) -> Mapping[str, Any]:
        """What the hub says of a repository at a revision, with its files and their sizes and hashes.

        Raises Denied, NotThere for an unknown revision, UpstreamFailed if it does not answer as a hub does.
        """
        found = self._json(f"/api/{type_}s/{name}/revision/{quote(revision, safe='')}?blobs=true", token)
        sha = found.get("sha") if isinstance(found, dict) else None
        if (
            not isinstance(sha, str)
            or not SHA.fullmatch(sha)
            or (SHA.fullmatch(revision) and sha != revision)
        ):
            raise UpstreamFailed(f"{self.url} sent no valid description of {name} at {revision[:100]!r}")
        return found  # type: ignore[no-any-return]  # as just checked

    def refs(self, type_: str, name: str, token: str | None) -> Mapping[str, Any]:
        """Branches and tags. Raises as `info`."""
        found = self._json(f"/api/{type_}s/{name}/refs", token)
        if not isinstance(found, dict):
            raise UpstreamFailed(f"{self.url} sent no valid list of the branches of {name}")
        return found

    def may_download(self, type_: str, name: str, token: str) -> bool:
        """Whether the owner of the token may have the repository's files. Raises UpstreamFailed."""
        try:
            self._json(f"/api/{type_}s/{name}/auth-check", token)
        except (Denied, NotThere):
            return False
        return True

    def blocks(
        self, type_: str, name: str, sha: str, path: str, size: int, token: str | None
    ) -> Iterator[bytes]:
        """The bytes of a file of a commit, unverified. Raises UpstreamFailed, also for more than `size` bytes."""
        folder = "/datasets" if type_ == "dataset" else ""
        where = f"{folder}/{name}/resolve/{sha}/{quote(path)}"
        deadline = time.monotonic() + 60 + size / SLOWEST
        with self._got(where, token, size, FETCHING) as response:
            if response.status_code != 200:
                raise UpstreamFailed(f"{self.url} refused {path} of {name} ({response.status_code})")
            for block in response.iter_bytes():
                if time.monotonic() > deadline:
                    raise UpstreamFailed(
                        f"{self.url} sends {path} of {name} too slowly: fewer than {SLOWEST} bytes/s"
                    )
                yield block

    def _json(self, where: str, token: str | None) -> Any:
        with self._got(where, token, LARGEST_ANSWERS, ASKING) as response:
            content = response.read()
            code = response.headers.get("X-Error-Code", "")
            if response.status_code == 404 and code == "RevisionNotFound":
                raise NotThere("revision", "no such branch, tag or commit")
            if response.status_code in ABSENT:
                raise Denied(code)
            if response.status_code != 200:
                raise UpstreamDown(f"{self.url} failed ({response.status_code})")
        try:
            return json.loads(content, parse_constant=_refused)
        except (ValueError, RecursionError):
            raise UpstreamFailed(f"{self.url} sent an answer that is not JSON: is it a hub?") from None

    @contextmanager
    def _got(
        self, where: str, token: str | None, largest: int, timeout: Mapping[str, float]
    ) -> Iterator[Any]:
        """The response to a GET. Errors of the connection and of the guard become UpstreamFailed."""
        from huggingface_hub import errors
        from huggingface_hub.utils import _http

        # They include the errors of its HTTP library, which depends on the version.
        library: tuple[Any, ...] = errors.HfHubHTTPError.__bases__
        session: Any = _http.get_session()
        try:
            with guarded(Guard(self.url, largest, FILE_HOSTS)) as headers:
                headers = {**headers, MIRRORING: "1", "User-Agent": "kcard"}
                if token is not None:
                    headers["Authorization"] = f"Bearer {token}"
                with session.stream(
                    "GET",
                    self.url + where,
                    headers=headers,
                    follow_redirects=True,
                    extensions={"timeout": {**timeout}},
                ) as response:
                    yield response
        except (UpstreamFailed, NotThere):
            raise
        except KcardError as error:
            raise UpstreamFailed(str(error)) from error
        except (*library, RuntimeError, ValueError) as error:
            raise UpstreamDown(f"{self.url} does not answer ({one_line(error)})") from error


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
