"""Evidence from Wikipedia.

https://www.mediawiki.org/wiki/API:Etiquette asks for a user agent that names the program and where to find its
makers, for few concurrent requests, for maxlag, and for delays as Retry-After says: while the wiki delays one request,
all of them wait. It is thread-safe.
"""

import email.utils
import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.batching import in_order
from kcard.config import settings
from kcard.errors import CorpusError, UsageError
from kcard.index import Index
from kcard.interfaces import Evidence
from kcard.io import parse, write_text
from kcard.selectors.local_corpus import parts
from kcard.types import Source
from kcard.version import __version__

if TYPE_CHECKING:
    from email.message import Message

USER_AGENT = f"kcard/{__version__} (https://pypi.org/project/kcard/) Python-urllib"
MAX_ATTEMPTS = 5
MAX_WAIT_SECONDS = 60.0
TIMEOUT_SECONDS = 20.0
MAX_REPLY_BYTES = 16_000_000
MAXLAG_SECONDS = "5"  # that the servers may lag behind, else we wait
MAX_REPLY_AGE = 30 * 86_400  # seconds that a reply is kept
TEMPORARY_ERRORS = ("maxlag", "ratelimited", "readonly", "internal_api_error")


class _Refused(CorpusError):
    """A failure that may pass if the request is repeated. `wait`: seconds that the server demands, if it says."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass
class MediaWiki:
    """One wiki, by the URL of its api.php. `stale`: the days of outdated replies that were used."""

    api: str
    cache: Path
    age: float = MAX_REPLY_AGE
    stale: set[str] = field(default_factory=set)
    _resumed: float = 0.0  # time.monotonic() before which nothing is asked

    def get(self, **parameters: str) -> dict[str, Any]:
        """Return the reply to a query, from disk if there is a recent one.

        Raises CorpusError if there is no network, the wiki refuses, or the reply is malformed, unless there is an
        outdated reply on disk: it is then used, and noted.
        """
        query = urllib.parse.urlencode(sorted({"format": "json", "formatversion": "2", **parameters}.items()))
        path = self.cache / f"{hashlib.sha256(query.encode()).hexdigest()}.json"
        old = _read_reply(path)
        if old is not None and 0 <= time.time() - old["asked"] < self.age:
            return dict(old["reply"])
        try:
            reply = self._request_with_retries(f"{self.api}?{query}&maxlag={MAXLAG_SECONDS}")
        except CorpusError:
            if old is None:
                raise
            self.stale.add(datetime.fromtimestamp(old["asked"], UTC).date().isoformat())
            return dict(old["reply"])
        stored = {"asked": time.time(), "api": self.api, "query": query, "reply": reply}
        with suppress(OSError):  # without room on disk, the next query is sent again
            write_text(path, json.dumps(stored, ensure_ascii=False), parents=True)
        return reply

    def _request_with_retries(self, url: str) -> dict[str, Any]:
        if settings().offline:
            raise CorpusError(
                f"{self.api} can't be queried, because HF_HUB_OFFLINE is set: unset it, or use evidence on this machine"
            )
        for attempt in range(MAX_ATTEMPTS):
            pause = self._resumed - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            try:
                return self._request(url)
            except _Refused as refused:
                wait, when = 2.0**attempt, "try again later"
                if refused.wait is not None:
                    wait, when = refused.wait, f"try again in {refused.wait:.0f} s"
                if attempt == MAX_ATTEMPTS - 1 or wait > MAX_WAIT_SECONDS:
                    raise CorpusError(f"{self.api} {refused}: {when}") from refused
                self._resumed = max(self._resumed, time.monotonic() + wait)
        raise AssertionError("unreachable")

    def _request(self, url: str) -> dict[str, Any]:
        request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                body, headers = response.read(MAX_REPLY_BYTES + 1), response.headers
                if len(body) < min(int(headers.get("Content-Length", 0)), MAX_REPLY_BYTES):
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
                raise _Refused(f"did not answer within {TIMEOUT_SECONDS:.0f} s") from error
            raise CorpusError(
                f"{self.api} can't be reached ({error.reason}): check the network, or use evidence on this machine"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Refused(f"broke off ({type(error).__name__})") from error
        return self._parse_reply(body, headers)

    def _parse_reply(self, body: bytes, headers: "Message") -> dict[str, Any]:
        try:
            if headers.get("Content-Encoding") == "gzip":
                body = zlib.decompressobj(wbits=31).decompress(body, MAX_REPLY_BYTES + 1)
            if len(body) > MAX_REPLY_BYTES:
                raise ValueError("too large")
            reply = parse(body.decode())
            if not isinstance(reply, dict):
                raise ValueError("no object")
        except (ValueError, zlib.error) as error:
            raise _Refused(f"sent no JSON ({str(error)[:80]})") from error
        problem = reply.get("error")
        if isinstance(problem, dict):
            message = " ".join(str(problem.get("info") or problem.get("code")).split())[:200]
            if str(problem.get("code")).startswith(TEMPORARY_ERRORS):
                raise _Refused(f"is busy ({message})", _wait(headers))
            raise CorpusError(f"{self.api} refused the query: {message}")
        return reply


def _wait(headers: "Message") -> float | None:
    """Return the seconds of Retry-After, a number or a date; None if there is none that can be parsed."""
    value = (headers.get("Retry-After") or "").strip()
    if value.isdecimal():
        return float(value)
    with suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _read_reply(path: Path) -> dict[str, Any] | None:
    """Read a reply from disk; None if there is none, or a damaged one."""
    try:
        stored = parse(path.read_text(encoding="utf-8"))
        if isinstance(stored["asked"], int | float) and isinstance(stored["reply"], dict):
            return dict(stored)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


LICENCE = "CC BY-SA 4.0"
MAX_PAGES = 3
CONCURRENCY = 3  # requests at a time, so that the encyclopedia is not strained
MAX_REQUIRED_WORDS = 12  # of a claim, that pages must all hold
MAX_QUERY_CHARACTERS = 300  # that the search takes
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*|simple")
TOKEN = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
HEADING = re.compile(r"^=+ .* =+$")
# Words of a question or a claim that are on every page or on none, and would only narrow the search.
STOP_WORDS = {
    "what", "which", "when", "where", "whom", "whose", "does", "that", "this", "these", "those", "with", "from",
    "have", "been", "were", "there", "their", "they",
}  # fmt: skip


def open_wikipedia(argument: str = "") -> "Wikipedia":
    """Open a wiki without a request. `argument`: a language (de; default: English), or the URL of a wiki's api.php.

    Raises UsageError for an argument that is neither.
    """
    if argument.startswith(("http://", "https://")):
        host = urllib.parse.urlsplit(argument).hostname
        if not host or "?" in argument or "#" in argument:
            raise UsageError(
                f"wikipedia:{argument} is not the URL of an api.php, such as https://HOST/w/api.php"
            )
        name, api, licence = f"wikipedia:{host}", argument, ""
    else:
        language = argument or "en"
        if not LANGUAGE.fullmatch(language):
            raise UsageError(f"wikipedia:{argument}: name a language, such as wikipedia:de, or an api.php")
        name, api, licence = f"wikipedia:{language}", f"https://{language}.wikipedia.org/w/api.php", LICENCE
    digest = hashlib.sha256(api.encode()).hexdigest()
    return Wikipedia(
        name, licence, digest, MediaWiki(api, settings().home / "evidence" / f"wiki-{digest[:16]}")
    )


@dataclass(frozen=True)
class Wikipedia(Evidence):
    """A wiki as evidence: paragraphs of the pages that its own search finds for a claim.

    Every claim is sent to the wiki, so it is used only if the user names it. `digest`: of the URL alone, since pages
    change. `licence`: of the texts, if known.
    """

    name: str
    licence: str
    digest: str
    wiki: MediaWiki

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user: that claims leave the machine, and which replies were outdated."""
        host = urllib.parse.urlsplit(self.wiki.api).hostname
        old = ", ".join(sorted(self.wiki.stale))
        notes = [f"evidence {self.name}: queries are sent to {host}"]
        if old:
            notes.append(f"evidence {self.name}: it could not be reached; cached replies of {old} were used")
        return tuple(notes)

    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` paragraphs that share a word with the claim, best first by BM25.

        `file` is the page's title, URL and licence, `line` the number of the paragraph. Raises CorpusError if the wiki
        can't be reached.
        """
        if k < 1:
            return []
        # Pages that hold all that matters of the claim; if there are none, those with any of its names and numbers, or
        # of its words.
        tokens = list(dict.fromkeys(TOKEN.findall(claim)))
        telling = []
        for token in tokens:
            if token.lower() not in STOP_WORDS and (len(token) > 3 or not token[0].islower()):
                telling.append(token)
        telling = telling or tokens
        names = [token for token in telling if token[0].isupper() or token[0].isdigit()]
        pages: list[dict[str, Any]] = []
        strict = _joined(telling[:MAX_REQUIRED_WORDS], " ")
        loose = _joined(names or telling, " OR ")
        for query in dict.fromkeys((strict, loose)):
            if query and not pages:
                pages = self._search(query)
        # Their paragraphs, without headings.
        paragraphs: list[tuple[str, Source]] = []
        for page in pages:
            title = str(page.get("title") or "")
            text = str(page.get("extract") or "")
            url = str(page.get("fullurl") or "")
            if url and isinstance(page.get("lastrevid"), int):
                separator = "&" if "?" in url else "?"
                url = f"{url}{separator}oldid={page['lastrevid']}"
            place = ", ".join(filter(None, (title, url, self.licence)))
            subject = title.partition(" (")[0]
            number = 0
            for line in map(str.strip, text.splitlines()):
                if not line or HEADING.match(line):
                    continue
                number += 1
                for part in parts(line):
                    # Paragraphs speak of "he" and "the city": who that is, the title says.
                    if subject.lower() not in part.lower():
                        part = f"{subject}: {part}"
                    paragraphs.append((title, Source(part, place, number)))
        index = Index.build(f"{title} {source.text}" for title, source in paragraphs)
        sources = []
        for row, score in index.search(claim, k):
            _, source = paragraphs[row]
            sources.append(replace(source, score=score))
        return sources

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """Return the same for each claim, with CONCURRENCY requests at a time."""
        return list(in_order(lambda claim: self.find(claim, k), claims, CONCURRENCY))

    def _search(self, query: str) -> list[dict[str, Any]]:
        """Return pages with their whole text, best first. The API gives one text per reply, and how to continue."""
        parameters = {
            "action": "query",
            "generator": "search",
            "gsrsearch": query,
            "gsrlimit": str(MAX_PAGES),
            "gsrnamespace": "0",
            "prop": "extracts|info",
            "inprop": "url",
            "explaintext": "1",
            "exsectionformat": "wiki",
            "exlimit": "max",
        }
        pages: dict[int, dict[str, Any]] = {}
        onward: dict[str, str] = {}
        for _ in range(MAX_PAGES + 1):
            reply = self.wiki.get(**parameters, **onward)
            result = reply.get("query")
            batch = []
            if isinstance(result, dict) and isinstance(result.get("pages"), list):
                batch = result["pages"]
            for page in batch:
                if isinstance(page, dict) and isinstance(page.get("pageid"), int):
                    pages.setdefault(page["pageid"], {}).update(page)
            if reply.get("batchcomplete") or not isinstance(reply.get("continue"), dict):
                break
            onward = {key: str(value) for key, value in reply["continue"].items()}
        return sorted(pages.values(), key=lambda page: page.get("index", 0))


def _joined(tokens: list[str], between: str) -> str:
    """Join as many tokens as the search takes. In lower case, since AND, OR and NOT are its operators."""
    query = ""
    for token in tokens:
        longer = f"{query}{between}{token.lower()}"
        if not query:
            longer = token.lower()[:MAX_QUERY_CHARACTERS]
        if len(longer) > MAX_QUERY_CHARACTERS:
            break
        query = longer
    return query
