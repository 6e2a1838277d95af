"""Answers requests for repositories that this hub does not have, from the hub that it mirrors.

An endpoint that does not find a repository raises NotThere; `not_there` then answers in its place. Repositories of this
hub so come first and cost nothing more.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import TypeAlias, TypeVar, TypeVarTuple
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kcard.errors import KcardError
from kcard.hub.client.upstream import MIRRORING
from kcard.hub.refusals import Forbidden, NotThere, TooLarge, Unsupported
from kcard.hub.repositories.values import Entry, Type
from kcard.hub.server.dependencies import base_url, identified, repository_type, web_type
from kcard.hub.server.endpoints import models, refs, resolve, trees
from kcard.hub.server.middleware.raw_path import decoded
from kcard.hub.server.mirror.descriptions import refusal
from kcard.hub.server.mirror.fetching import Fetches
from kcard.hub.server.mirror.mirroring import Client, Mirroring, Reading
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page import pages
from kcard.hub.server.page.refusals import refused
from kcard.hub.server.page.render import page
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.eval_results import declared_model_index
from kcard.hub.server.reading.file_responses import Blocks, Plan, planned
from kcard.hub.server.reading.pagination import next_page
from kcard.hub.server.reading.repository_json import Json
from kcard.hub.shared import SharedHub

__all__ = ["Mirror", "not_there"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

ASKED_AT_ONCE = 8  # requests of a worker that wait for upstream
SAFE = frozenset(["GET", "HEAD", "OPTIONS"])
TRUE = frozenset(["1", "true", "True"])
STALE = '111 - "Revalidation Failed"'
_limiter: RunVar[CapacityLimiter] = RunVar("kcard.mirror")


@dataclass(frozen=True)
class Mirror:
    """The mirror of an application. `largest`: bytes of the largest file that it serves."""

    mirroring: Mirroring
    fetches: Fetches
    largest: int

    @classmethod
    def of(cls, hub: SharedHub, options: ServerOptions) -> "Mirror | None":
        """The mirror that the options want; None: no mirror."""
        if options.mirror is None:
            return None
        mirroring = Mirroring(hub, options.mirror, options.max_file_size)
        fetches = Fetches(hub, mirroring.mirrors, mirroring.upstream, options.mirror.limit)
        return cls(mirroring, fetches, options.max_file_size)


class _Ask:
    """A request for a repository, `type_` and `name`, that this hub does not have."""

    def __init__(self, request: Request, mirror: Mirror, client: Client) -> None:
        self.request, self.mirror, self.client = request, mirror, client
        self._path = {key: decoded(value) for key, value in request.path_params.items()}
        types = self._path.get("types")
        self.type_: Type = web_type(request) if types is None else repository_type(types)
        self.name = f"{self._path['namespace']}/{self._path['name']}"

    @property
    def options(self) -> ServerOptions:
        options: ServerOptions = self.request.app.state.options
        return options

    @property
    def revision(self) -> str:
        return self._path.get("revision", "main")

    @property
    def path(self) -> str:
        return self._path.get("path", "").strip("/")

    def flag(self, name: str) -> bool:
        return self.request.query_params.get(name) in TRUE

    async def read(self) -> Reading:
        return await _in_thread(self.mirror.mirroring.read, self.type_, self.name, self.revision, self.client)


Answer: TypeAlias = Callable[[_Ask], Awaitable[Response]]


async def not_there(request: Request, error: Exception) -> Response:
    """The response of the mirror, if there is one that has the repository; otherwise that for the error."""
    assert isinstance(error, NotThere)
    mirror: Mirror | None = request.app.state.mirror
    if (
        mirror is None
        or error.what != "repository"
        or not {"namespace", "name"} <= request.path_params.keys()
    ):
        return refused(request, error)
    try:
        identity = await identified(request)
        ask = _Ask(request, mirror, Client(identity, MIRRORING in request.headers))
        answer = ANSWERS.get(request.scope["endpoint"])
        if answer is not None:
            return await answer(ask)
        return refused(request, await to_thread.run_sync(_read_only, ask, error))
    except KcardError as failure:
        return refused(request, failure)


def _read_only(ask: _Ask, error: KcardError) -> KcardError:
    """Why something can't be done with a mirrored repository; the error, if it is none."""
    mirror = ask.mirror.mirroring.find(ask.type_, ask.name, ask.client)
    if mirror is None:
        return error
    where = f"{mirror.name} is mirrored from {mirror.upstream}"
    if ask.request.method in SAFE:
        return Unsupported(f"{where}, which has what this hub does not keep of it")
    return Forbidden(f"{where} and read-only here: use a repository in a namespace of your own")


async def _info(ask: _Ask) -> Response:
    reading = await ask.read()
    wanted = frozenset(ask.request.query_params.getlist("expand"))
    found = _described(reading, ask.flag("blobs"))
    shown = repository_json.only(wanted, found) if wanted else found
    return _marked(JSONResponse(shown, headers={"X-Repo-Commit": reading.kept.sha}), reading)


def _described(reading: Reading, blobs: bool) -> Json:
    """As `repository_json.repository`. `kcard` is null: upstream's figures are not this hub's."""
    mirror, about = reading.mirror, dict(reading.kept.about)
    if "model-index" in (card := dict(about.pop("cardData", {}))):
        card["model-index"] = declared_model_index(card)
    files = reading.folders.files
    return {
        "_id": f"{mirror.id:024x}",
        "id": mirror.name,
        **({"modelId": mirror.name} if mirror.type == "model" else {}),
        "author": mirror.name.partition("/")[0],
        "private": not mirror.open and mirror.gated == "no",
        "gated": False if mirror.gated == "no" else mirror.gated,
        "disabled": False,
        "sha": reading.kept.sha,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        **about,
        "cardData": card,
        "siblings": [repository_json.sibling(entry, blobs) for entry in files.values()],
        "spaces": [],
        "usedStorage": sum(entry.size for entry in files.values()),
        "kcard": None,
        "mirroredFrom": mirror.upstream,
    }


async def _tree(ask: _Ask) -> Response:
    reading = await ask.read()
    items = reading.folders.inside(ask.path, ask.flag("recursive"))
    if items is None:
        why = f"folder {ask.path[:200]!r} not found in {ask.name} at {ask.revision[:100]!r}"
        raise NotThere("entry", why, commit=reading.kept.sha)
    cursor = ask.request.query_params.get("cursor", "0")
    start = int(cursor) if cursor.isdecimal() and len(cursor) < 10 else 0
    headers = {"X-Repo-Commit": reading.kept.sha}
    if start + trees.PAGE < len(items):
        here = f"/api/{ask.type_}s/{reading.mirror.name}/tree/{reading.kept.sha}"
        here += f"/{quote(ask.path, safe='')}" if ask.path else ""
        headers |= next_page(ask.request, ask.options, here, cursor=start + trees.PAGE)
    shown = [trees.listed(item) for item in items[start : start + trees.PAGE]]
    return _marked(JSONResponse(shown, headers=headers), reading)


async def _paths(ask: _Ask) -> Response:
    paths, _ = await trees.requested_paths(ask.request)
    if len(paths) > trees.MOST_PATHS:
        raise TooLarge(f"too many paths ({len(paths)}): send at most {trees.MOST_PATHS} in one request")
    reading = await ask.read()
    found = (reading.folders.get(path) for path in dict.fromkeys(path.strip("/") for path in paths) if path)
    shown = [trees.listed(item) for item in found if item is not None]
    return _marked(JSONResponse(shown, headers={"X-Repo-Commit": reading.kept.sha}), reading)


async def _refs(ask: _Ask) -> Response:
    reading, found = await _in_thread(ask.mirror.mirroring.refs, ask.type_, ask.name, ask.client)
    return _marked(JSONResponse(found), reading)


async def _allowed(ask: _Ask) -> Response:
    return _marked(JSONResponse({}), await ask.read())


async def _discussions(ask: _Ask) -> Response:
    return _marked(refs.discussions(None), await ask.read())  # type: ignore[arg-type]  # unused


async def _file(ask: _Ask) -> Response:
    reading = await ask.read()
    entry, commit, request = _entry(ask, reading), reading.kept.sha, ask.request
    plan = planned(request, entry, commit)
    if isinstance(plan, Response):
        return _marked(plan, reading)
    wanted, stored = await to_thread.run_sync(ask.mirror.mirroring.wanted, reading, entry, ask.client)
    found = stored or await ask.mirror.fetches.get(wanted)
    if isinstance(found, int):
        return _marked(_Following(ask.mirror.fetches, found, plan), reading)
    return _marked(await to_thread.run_sync(_stored, request.app.state.hub, found, plan), reading)


def _stored(hub: SharedHub, sha256: str, plan: Plan) -> Response:
    return Blocks(hub.blobs.read(sha256, plan.start, plan.stop), plan.status, plan.headers)


def _entry(ask: _Ask, reading: Reading) -> Entry:
    """The file of the request. Raises NotThere, also for one that this hub does not serve."""
    commit, found = reading.kept.sha, reading.folders.files.get(ask.path)
    if found is not None:
        return found
    hidden = reading.kept.files.get(ask.path)
    why = None if hidden is None else refusal(hidden, ask.mirror.largest)
    if why is None:
        why = f"file {ask.path[:200]!r} not found in {ask.name} at {ask.revision[:100]!r}"
    raise NotThere("entry", why, commit=commit)


class _Following(StreamingResponse):
    """Streams a file while it is being fetched, and closes its handle."""

    def __init__(self, fetches: Fetches, handle: int, plan: Plan) -> None:
        self._handle = handle
        super().__init__(fetches.follow(handle, plan.start, plan.stop), plan.status, plan.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._handle)


async def _page(ask: _Ask) -> Response:
    reading = await ask.read()
    hidden = [path for path in reading.kept.files if path not in reading.folders.files]
    here = "datasets" if ask.type_ == "dataset" else "cards"
    show = partial(
        page, "mirror.html", reading=reading, hidden=hidden, here=here, url=base_url(ask.request, ask.options)
    )
    return _marked(await to_thread.run_sync(show), reading)


def _marked(response: Response, reading: Reading) -> Response:
    """The response, which says where its content is from, and whether upstream did not answer now."""
    response.headers["X-Mirrored-From"] = reading.mirror.upstream
    response.headers["X-Mirrored-At"] = f"{reading.mirror.checked.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if reading.stale:
        response.headers["Warning"] = STALE
    return response


async def _in_thread(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Call a function that may ask upstream, in one of a few threads for that."""
    return await to_thread.run_sync(partial(work, *arguments), limiter=_asking())


def _asking() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(limiter := CapacityLimiter(ASKED_AT_ONCE))
        return limiter


# What answers in place of an endpoint.
ANSWERS: dict[Callable[..., object], Answer] = {
    models.info: _info,
    models.info_at: _info,
    trees.root: _tree,
    trees.tree: _tree,
    trees.paths_info: _paths,
    refs.refs: _refs,
    refs.auth_check: _allowed,
    refs.discussions: _discussions,
    resolve.resolve: _file,
    pages.repository: _page,
    pages.repository_at: _page,
}
