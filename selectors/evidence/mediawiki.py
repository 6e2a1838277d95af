"""A client of MediaWiki's action API: polite, patient and with a memory on disk. It knows no claim and no evidence.

https://www.mediawiki.org/wiki/API:Etiquette asks for a user agent that names the program and where to find its
makers, for few requests at a time, for maxlag, and for patience as Retry-After says: while the wiki wants one request
to wait, all of them do. It is thread-safe.
"""

import email.utils
import hashlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kcard
from kcard.config import settings
from kcard.errors import CorpusError
from kcard.files import write_text
from kcard.json_values import parse

if TYPE_CHECKING:
    from email.message import Message

__all__ = ["MediaWiki"]

USER_AGENT = f"kcard/{kcard.__version__} (https://pypi.org/project/kcard/) Python-urllib"
TRIES = 5
LONGEST_WAIT = 60.0  # seconds
TIMEOUT = 20.0
LARGEST = 16_000_000  # bytes of a reply
MAXLAG = "5"  # seconds that the servers may lag behind, else we wait
AGE = 30 * 86_400  # seconds that a reply is kept
PASSING = ("maxlag", "ratelimited", "readonly", "internal_api_error")


class _Refused(CorpusError):
    """A reply that may be another one when it is asked for again. `wait`: seconds that the server wants, if it says."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass
class MediaWiki:
    """One wiki, by the address of its api.php. `stale`: when old replies were made that had to do, as days."""

    api: str
    cache: Path
    age: float = AGE
    stale: set[str] = field(default_factory=set)
    _resumed: float = 0.0  # time.monotonic() before which nothing is asked

    def get(self, **parameters: str) -> dict[str, Any]:
        """The reply to a query, from disk where it was asked before and is not too old.

        Raises CorpusError where there is no network, the wiki refuses, or what it sends is not a reply. An old reply
        is better than none: it is taken then, and noted.
        """
        query = urllib.parse.urlencode(sorted({"format": "json", "formatversion": "2", **parameters}.items()))
        kept = self.cache / f"{hashlib.sha256(query.encode()).hexdigest()}.json"
        old = _kept(kept)
        if old is not None and 0 <= time.time() - old["asked"] < self.age:
            return dict(old["reply"])
        try:
            reply = self._patiently(f"{self.api}?{query}&maxlag={MAXLAG}")
        except CorpusError:
            if old is None:
                raise
            self.stale.add(datetime.fromtimestamp(old["asked"], UTC).date().isoformat())
            return dict(old["reply"])
        _keep(kept, {"asked": time.time(), "api": self.api, "query": query, "reply": reply})
        return reply

    def _patiently(self, url: str) -> dict[str, Any]:
        if settings().offline:
            raise CorpusError(
                f"{self.api} can't be queried, because HF_HUB_OFFLINE is set: unset it, or use evidence on this machine"
            )
        for attempt in range(TRIES):
            if (pause := self._resumed - time.monotonic()) > 0:
                time.sleep(pause)
            try:
                return self._asked(url)
            except _Refused as refused:
                wait = 2.0**attempt if refused.wait is None else refused.wait
                if attempt == TRIES - 1 or wait > LONGEST_WAIT:
                    when = f"try again in {wait:.0f} s" if refused.wait else "try again later"
                    raise CorpusError(f"{self.api} {refused}: {when}") from refused
                self._resumed = max(self._resumed, time.monotonic() + wait)
        raise AssertionError("unreachable")

    def _asked(self, url: str) -> dict[str, Any]:
        request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                body, headers = response.read(LARGEST + 1), response.headers
                if len(body) < min(int(headers.get("Content-Length", 0)), LARGEST):
                    raise http.client.IncompleteRead(body)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 429 or error.code >= 500:
                    raise _Refused(f"answered with status {error.code}", _wait(error.headers)) from error
                raise CorpusError(
                    f"{self.api} answered with status {error.code} ({error.reason}): is it the URL of an api.php?"
                ) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _Refused(f"did not answer within {TIMEOUT:.0f} s") from error
            raise CorpusError(
                f"{self.api} can't be reached ({error.reason}): check the network, or use evidence on this machine"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Refused(f"broke off ({type(error).__name__})") from error
        return self._read(body, headers)

    def _read(self, body: bytes, headers: "Message") -> dict[str, Any]:
        try:
            if headers.get("Content-Encoding") == "gzip":
                body = zlib.decompressobj(wbits=31).decompress(body, LARGEST + 1)
            if len(body) > LARGEST:
                raise ValueError("too large")
            reply = parse(body.decode())
            if not isinstance(reply, dict):
                raise ValueError("no object")
        except (ValueError, zlib.error) as error:
            raise _Refused(f"sent no JSON ({str(error)[:80]})") from error
        if isinstance(found := reply.get("error"), dict):
            said = " ".join(str(found.get("info") or found.get("code")).split())[:200]
            if str(found.get("code")).startswith(PASSING):
                raise _Refused(f"is busy ({said})", _wait(headers))
            raise CorpusError(f"{self.api} refused the query: {said}")
        return reply


def _wait(headers: "Message") -> float | None:
    """Seconds, from Retry-After, which is a number or a date; None where there is none to be understood."""
    given = (headers.get("Retry-After") or "").strip()
    if given.isdecimal():
        return float(given)
    with suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    return None


def _kept(path: Path) -> dict[str, Any] | None:
    """A reply on disk; None where there is none, or one that is damaged."""
    try:
        found = parse(path.read_text(encoding="utf-8"))
        whole = isinstance(found["asked"], int | float) and isinstance(found["reply"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if whole else None


def _keep(path: Path, reply: dict[str, Any]) -> None:
    """Put the reply on disk; where there is no room, the next one will ask again."""
    with suppress(OSError):
        write_text(path, json.dumps(reply, ensure_ascii=False), parents=True)
