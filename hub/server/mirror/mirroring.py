"""Decides what of another hub a client reads here: what is kept, or what that hub says now.

Upstream is asked first without a token: what everyone may read there, everyone may read here. Anything else is for
accounts with a token of their own there that upstream accepted within the age limit.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import AMBIGUOUS, check_repository, folded
from kcard.hub.accounts.upstream_tokens import UpstreamTokens
from kcard.hub.client.upstream import Denied, Upstream, UpstreamDown
from kcard.hub.records.utc import now
from kcard.hub.refusals import Conflict, Gated, Invalid, NotThere, Refused, Unknown, UpstreamFailed
from kcard.hub.repositories.mirrors import Kept, Mirror, Seen
from kcard.hub.repositories.permissions import LOGIN, absent
from kcard.hub.repositories.values import Entry, Type
from kcard.hub.server.mirror.descriptions import allowed, described, listed_refs
from kcard.hub.server.mirror.fetching import Wanted
from kcard.hub.server.mirror.options import FULL, MirrorOptions
from kcard.hub.server.reading.folders import Folders
from kcard.hub.server.reading.repository_json import Json
from kcard.hub.server.reading.sized_cache import SizedCache
from kcard.hub.shared import SharedHub

__all__ = ["Client", "Mirroring", "Reading"]

T = TypeVar("T")
REFUSED_SECONDS = 60.0  # for which "no such repository or revision" is remembered
DOWN_SECONDS = 15.0  # for which upstream is not asked again after it did not answer
MOST_REFUSALS, MOST_ENTRIES, LOCKS = 10_000, 40_000, 64
LONGEST_REVISION = 250


@dataclass(frozen=True)
class Client:
    """Who reads. `mirrors`: it is a hub that mirrors this one, for which this one asks no third."""

    identity: Identity | None
    mirrors: bool = False

    @property
    def account_id(self) -> int | None:
        """None for nobody, and for a token of one repository, which counts as anonymous elsewhere."""
        return (
            None
            if self.identity is None or self.identity.repository_id is not None
            else self.identity.account_id
        )


@dataclass(frozen=True)
class Reading:
    """A commit of a mirror. `stale`: upstream did not answer, so this is what it said last."""

    mirror: Mirror
    kept: Kept
    folders: Folders
    stale: bool = False


class Mirroring:
    """The mirror of a hub. Its methods ask upstream: call them in threads."""

    def __init__(self, hub: SharedHub, options: MirrorOptions, largest: int) -> None:
        self.options, self._largest = options, largest
        self.upstream = Upstream(options.url)
        self.mirrors = hub.registry.mirrors
        folder = hub.registry.home / "hub" / "upstream-tokens"
        self.tokens = UpstreamTokens(hub.database, folder, options.url)
        self._refusals: SizedCache[tuple[object, ...], tuple[float, Refused]] = SizedCache(MOST_REFUSALS)
        self._trees: SizedCache[tuple[int, str], tuple[Kept, Folders]] = SizedCache(MOST_ENTRIES)
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._down_until = 0.0

    def find(self, type_: Type, name: str, client: Client) -> Mirror | None:
        """A mirror that the client may read now, without a question to upstream."""
        mirror = self.mirrors.find(type_, name)
        return mirror if mirror is not None and self._readable(mirror, client) else None

    def read(self, type_: Type, name: str, revision: str, client: Client) -> Reading:
        """A repository at a revision. Raises NotThere, Gated, UpstreamFailed."""
        self._check(type_, name, revision, client)
        if found := self._known(type_, name, revision, client):
            return found
        with self._locks[hash((type_, folded(name), revision)) % LOCKS]:
            return self._known(type_, name, revision, client) or self._asked(type_, name, revision, client)

    def refs(self, type_: Type, name: str, client: Client) -> tuple[Reading, Json]:
        """The branches and tags of a repository. Raises as `read`."""
        reading = self.read(type_, name, "main", client)
        mirror, known = reading.mirror, self.mirrors.refs(reading.mirror)
        if known is not None and (self._current(known[1]) or not self._may_ask(mirror, client)):
            return reading, dict(known[0])
        try:
            token = None if mirror.open else self._token(client)
            found = listed_refs(self._asking(lambda: self.upstream.refs(mirror.type, mirror.name, token)))
        except UpstreamFailed:
            if known is None or not mirror.open:
                raise
            return Reading(mirror, reading.kept, reading.folders, stale=True), dict(known[0])
        except Denied:
            raise absent(name, client.identity) from None
        self.mirrors.keep_refs(mirror, found)
        return reading, dict(found)

    def wanted(self, reading: Reading, entry: Entry, client: Client) -> tuple[Wanted, str | None]:
        """A file to fetch for the client, and its sha256 if it is stored.

        For a file that is not, raises Unknown if this hub fetches nothing for the client, UpstreamFailed if it no
        longer mirrors the source.
        """
        mirror = reading.mirror
        token = None if mirror.open else self._token(client)
        wanted = Wanted(mirror, reading.kept.sha, entry, token)
        found = self.mirrors.file(mirror, wanted.oid)
        sha256 = None if found is None else found.sha256
        if sha256 is None and mirror.upstream != self.options.url:
            raise UpstreamFailed(
                f"{entry.path} was not fetched from {mirror.upstream}, which this hub no longer mirrors"
            )
        if sha256 is None and not self._may_ask(mirror, client):
            raise Unknown(f"{entry.path} was not fetched from {mirror.upstream} yet: {LOGIN}")
        return wanted, sha256

    def _check(self, type_: Type, name: str, revision: str, client: Client) -> None:
        """Raise NotThere for what is never asked for: names of this hub, and what no other one can have."""
        try:
            check_repository(name)
        except Invalid:
            raise absent(name, client.identity) from None
        if folded(name.partition("/")[2]) in AMBIGUOUS or self.mirrors.local(type_, name):
            raise absent(name, client.identity)
        if not revision or len(revision) > LONGEST_REVISION or not revision.isprintable():
            raise NotThere("revision", f"invalid revision {revision[:100]!r}")

    def _known(self, type_: Type, name: str, revision: str, client: Client) -> Reading | None:
        """What is kept, if it is as new as it must be, or upstream is not to be asked for this client."""
        mirror = self.mirrors.find(type_, name)
        if mirror is None or not self._readable(mirror, client):
            return None
        found = self.mirrors.revision(mirror, revision)
        if found is None:
            return None
        sha, checked = found
        current = (checked is None or self._current(checked)) and (
            not mirror.open or self._current(mirror.checked)
        )
        if current or (mirror.open and not self._may_ask(mirror, client)):
            return self._reading(mirror, sha)
        return None

    def _asked(self, type_: Type, name: str, revision: str, client: Client) -> Reading:
        mirror = self.mirrors.find(type_, name)
        if not self._may_ask(mirror, client):
            raise self._unknown(name, client)
        key = (type_, folded(name), revision, client.identity is None, hash(self._token(client)))
        refused = self._refusals.get(key)
        if refused is not None and time.monotonic() < refused[0]:
            raise refused[1].with_traceback(None)
        try:
            return self._ask(mirror, type_, name, revision, client)
        except UpstreamFailed:
            last = self.mirrors.revision(mirror, revision) if mirror is not None and mirror.open else None
            if mirror is None or last is None:
                raise
            return self._reading(mirror, last[0], stale=True)
        except (NotThere, Gated) as error:
            self._refusals.put(key, (time.monotonic() + REFUSED_SECONDS, error), 1)
            raise

    def _ask(self, mirror: Mirror | None, type_: Type, name: str, revision: str, client: Client) -> Reading:
        gated = False
        try:
            seen = self._seen(type_, name, revision, None)
            if seen.open:
                return self._keep(type_, revision, seen, None, client)
            gated = True
        except Denied:
            pass
        if mirror is not None and mirror.open:
            self.mirrors.close(mirror)
        token = self._token(client)
        try:
            if token is None:
                raise Denied
            seen = self._seen(type_, name, revision, token)
            if not self._asking(lambda: self.upstream.may_download(type_, name, token)):
                gated = True
                raise Denied
        except Denied:
            if mirror is not None and client.account_id is not None:
                self.mirrors.deny(mirror, client.account_id)
            raise self._gated(name, client) if gated else absent(name, client.identity) from None
        closed = Seen(seen.name, seen.sha, False, seen.gated, seen.about, seen.files)
        return self._keep(type_, revision, closed, client.account_id, client)

    def _seen(self, type_: Type, name: str, revision: str, token: str | None) -> Seen:
        try:
            found = self._asking(lambda: self.upstream.info(type_, name, revision, token))
        except NotThere:
            why = f"branch, tag or commit {revision!r} not found in {name} on {self.options.url}"
            raise NotThere("revision", why) from None
        return described(self.options.url, name, found)

    def _keep(self, type_: Type, revision: str, seen: Seen, account: int | None, client: Client) -> Reading:
        if self.mirrors.used() > self.options.limit:
            raise UpstreamFailed(FULL.format(limit=self.options.limit))
        try:
            mirror = self.mirrors.keep(type_, self.options.url, revision, seen, account)
        except Conflict:
            raise absent(seen.name, client.identity) from None
        return self._reading(mirror, seen.sha)

    def _reading(self, mirror: Mirror, sha: str, stale: bool = False) -> Reading:
        key = (mirror.id, sha)
        found = self._trees.get(key)
        if found is None:
            kept = self.mirrors.commit(mirror, sha)
            found = kept, Folders(allowed(kept.files, self._largest))
            self._trees.put(key, found, len(kept.files) + 1)
        return Reading(mirror, found[0], found[1], stale)

    def _asking(self, ask: Callable[[], T]) -> T:
        """The answer of upstream, which is not asked for a while after it did not answer."""
        if time.monotonic() < self._down_until:
            raise UpstreamDown(
                f"{self.options.url} did not answer a moment ago: try again in {DOWN_SECONDS:.0f} s"
            )
        try:
            return ask()
        except UpstreamDown:
            self._down_until = time.monotonic() + DOWN_SECONDS
            raise

    def _readable(self, mirror: Mirror, client: Client) -> bool:
        if mirror.open:
            return True
        if client.account_id is None or self.tokens.find(client.account_id) is None:
            return False
        checked = self.mirrors.access(mirror, client.account_id)
        return checked is not None and self._current(checked)

    def _may_ask(self, mirror: Mirror | None, client: Client) -> bool:
        if client.mirrors or (mirror is not None and mirror.upstream != self.options.url):
            return False
        return self.options.anonymous or client.account_id is not None

    def _token(self, client: Client) -> str | None:
        return None if client.account_id is None else self.tokens.find(client.account_id)

    def _current(self, checked: datetime) -> bool:
        return checked > now() - timedelta(seconds=self.options.age)

    def _unknown(self, name: str, client: Client) -> NotThere:
        if client.identity is not None or client.mirrors:
            return absent(name, client.identity)
        why = f"repository {name[:200]!r} not found: with a token of this hub, it is looked for on {self.options.url}"
        return NotThere("repository", why, known=False)

    def _gated(self, name: str, client: Client) -> Gated:
        why = (
            f"{name} is gated on {self.options.url}: ask for access there, and store your own token for that hub here, "
            "under /settings/upstream"
        )
        return Gated(why, known=client.identity is not None)
