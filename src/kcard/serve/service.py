"""Pipelines by the name of a model, questions in batches, answers in a cache."""

import asyncio
import contextlib
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, get_args

import httpx

from kcard.batching import QUESTIONS
from kcard.errors import HubError, LLMError
from kcard.integrators.assembly import make_loader
from kcard.integrators.options import AskOptions, Mode
from kcard.integrators.pipeline import Pipeline, Prepared
from kcard.serve.schema import ApiError, Busy, LLMFailed, NoSuchModel, TimedOut
from kcard.types import Answer, Reply

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = [
    "AnswerCache",
    "Answered",
    "Answering",
    "Batcher",
    "Pending",
    "Pipelines",
    "Route",
    "Service",
    "Upstream",
    "names",
    "route_of",
]


# Model names of the endpoint: the LLM, the LLM with a mode, and the LLM with one card.
#
# llama-3.1-8b               as `kcard serve --mode` says
# llama-3.1-8b:direct        without cards; also top-down, bottom-up, hybrid
# llama-3.1-8b:biomedical    with that card

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Route:
    """How a question is answered. `card`: the only card that is asked; None: all."""

    mode: Mode
    card: str | None = None


def names(llm: str, cards: Iterable[str]) -> Iterator[str]:
    yield llm
    yield from (f"{llm}:{mode}" for mode in MODES)
    yield from (f"{llm}:{card}" for card in cards)


def route_of(model: str, llm: str, default: Mode, cards: Iterable[str]) -> Route:
    """Raises NoSuchModel for a name that is neither the LLM's nor the LLM's with a mode or card."""
    if model == llm:
        return Route(default)
    wanted = model.removeprefix(f"{llm}:") if model.startswith(f"{llm}:") else ""
    if wanted in MODES:
        return Route(wanted)
    if wanted and wanted in set(cards):
        return Route("bottom-up", wanted)
    raise NoSuchModel(f"the model {model!r} does not exist: GET /v1/models lists those that do", "model")


# A question whose passages are ready, for an LLM that is asked elsewhere.


@dataclass(frozen=True)
class Pending:
    """It ends with `complete` or `abandon`, in the thread that prepared it."""

    pipeline: Pipeline
    question: str
    prepared: Prepared

    @property
    def knowledge(self) -> Sequence[str]:
        return self.prepared.gathered.knowledge

    def complete(self, reply: Reply, seconds: float) -> Answer:
        """The answer whose reply the LLM gave in so many seconds."""
        return self.pipeline.complete(self.question, self.prepared, reply, seconds)

    def abandon(self) -> None:
        self.pipeline.abandon(self.question)


# Answers that were given before, for questions that come again; equal questions at a time are answered once.

T = TypeVar("T")
Version = Callable[[], Awaitable[Hashable]]


@dataclass(frozen=True)
class Answered:
    """`cached`: whether it was given before, or with an equal question that was being answered."""

    answer: Answer
    cached: bool = False


@dataclass(eq=False)
class _Flight(Generic[T]):
    """An answer that is being found, and how many wait for it."""

    task: "asyncio.Task[T]"
    waiting: int = 0


class AnswerCache:
    """The answers that were used last, at most `most`; those of one version of the cards. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version: Hashable = None
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._flights: dict[Hashable, _Flight[Answer]] = {}

    async def get(self, version: Version, key: Hashable, find: Callable[[], Awaitable[Answer]]) -> Answered:
        """The answer for a key; found at most once at a time, until nobody waits for it any more.

        `version`: what else the answers depend on. When it changes, all are dropped; an answer during which it changed
        is not kept. Raises what `find` raises, which is not kept either.
        """
        self._follow(await version())
        if key in self._kept:
            self._kept.move_to_end(key)
            return Answered(self._kept[key], cached=True)
        flight = self._flights.get(key)
        shared = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._found(version, key, find)))
        flight.waiting += 1
        try:
            return Answered(await asyncio.shield(flight.task), shared)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
            if (not flight.waiting or flight.task.done()) and self._flights.get(key) is flight:
                del self._flights[key]

    async def _found(self, version: Version, key: Hashable, find: Callable[[], Awaitable[Answer]]) -> Answer:
        before = self._version
        found = await find()
        self._follow(await version())
        if before == self._version:
            self._kept[key] = found
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found

    def _follow(self, version: Hashable) -> None:
        if version != self._version:
            self._version = version
            self._kept.clear()
            self._flights = {}  # those who wait have their own hold on them


# Questions that arrive while others are answered wait, and are answered together in the next batch.

BatchKey = TypeVar("BatchKey", bound=Hashable)
Result = TypeVar("Result")
Other = TypeVar("Other")


@dataclass(eq=False)
class _Waiting(Generic[BatchKey]):
    route: BatchKey
    question: str
    future: "asyncio.Future[object]" = field(repr=False)
    loop: asyncio.AbstractEventLoop = field(repr=False)


class Batcher(Generic[BatchKey, Result]):
    """One thread answers batches of questions of one route, the oldest first.

    Args:
        answer: gives one result a question, in order; called in the thread
        most: questions in a batch
        waiting: questions that may wait; further ones are refused
        dropped: called in the thread with the result of a question whose client left during its batch

    A question whose client has left before its batch begins is not answered.
    """

    def __init__(
        self,
        answer: Callable[[BatchKey, Sequence[str]], Iterator[Result]],
        most: int = QUESTIONS,
        waiting: int = 256,
        dropped: Callable[[Result], object] = lambda _: None,
    ) -> None:
        self._answer, self._most, self._limit, self._dropped = answer, most, waiting, dropped
        self._queue: deque[_Waiting[BatchKey]] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kcard-answers")

    def __len__(self) -> int:
        """Questions that wait."""
        return len(self._queue)

    async def submit(self, route: BatchKey, question: str) -> Result:
        """The question's result. Raises Busy where too many wait, and whatever `answer` raises."""
        loop = asyncio.get_running_loop()
        entry = _Waiting(route, question, loop.create_future(), loop)
        with self._lock:
            if len(self._queue) >= self._limit:
                raise Busy(f"{self._limit} questions are waiting: try again later", retry_after=1)
            self._queue.append(entry)
            if not self._running:
                self._running = True
                self._thread.submit(self._run)
        return await entry.future  # type: ignore[return-value]

    async def call(self, function: Callable[..., Other], *arguments: object) -> Other:
        """Call it in the thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it in the thread some time; nobody waits for it."""
        with contextlib.suppress(RuntimeError):  # closed
            self._thread.submit(function, *arguments)

    def close(self) -> None:
        """Answer nothing that waits, and end the thread after its batch."""
        with self._lock:
            self._queue.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        """Answer one batch; the next is submitted anew, behind calls that wait for the thread."""
        batch = self._next()
        if not batch:
            return
        try:
            results = self._answer(batch[0].route, [entry.question for entry in batch])
            for entry, result in zip(batch, results, strict=True):
                self._settle(entry, result, None)
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            for entry in batch:
                self._settle(entry, None, error)
        self.post(self._run)

    def _next(self) -> "list[_Waiting[BatchKey]]":
        """The oldest question and those of the same route; the others keep their order."""
        with self._lock:
            alive = [entry for entry in self._queue if not entry.future.done()]
            same = [entry for entry in alive if entry.route == alive[0].route][: self._most]
            taken = set(map(id, same))
            self._queue = deque(entry for entry in alive if id(entry) not in taken)
            self._running = bool(same)
            return same

    def _settle(self, entry: "_Waiting[BatchKey]", result: "Result | None", error: Exception | None) -> None:
        def settle() -> None:
            if error is None and entry.future.done():
                self.post(self._dropped, result)
            elif error is None:
                entry.future.set_result(result)
            elif not entry.future.done():
                entry.future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            entry.loop.call_soon_threadsafe(settle)


# Pipelines by route over one pool of cards, which follows the hub.

FRESH = 1.0  # seconds for which the hub is not looked at again
Cards = tuple[tuple[str, str], ...]  # names and references


class Pipelines:
    """Answers questions by route with cards of the hub; one thread at a time.

    Args:
        options: of asking; `cards` limits what is served
        hub: where the cards are
        llm: the name under which the LLM is served

    Published, removed and quarantined cards count from the next question on; models of the others stay loaded.
    Raises what Pipeline raises, but a hub without cards is served without them.
    """

    def __init__(self, options: AskOptions, hub: "Hub", llm: str) -> None:
        self.llm = llm
        self._options, self._hub = options, hub
        self._direct = Pipeline(replace(options, mode="direct", cards=None), hub=hub)
        self._loader = make_loader(options)
        self._lock = threading.Lock()
        self._cards: Cards = ()
        self._changes = 0  # of the cards
        self._searched = False
        self._looked = -FRESH
        self._routes: dict[Route, Pipeline] = {}
        self._routed: Cards = ()  # the cards of these pipelines

    def cards(self) -> Sequence[str]:
        """Their names; for any thread."""
        return [name for name, _ in self._look()]

    def version(self) -> int | None:
        """How often the cards have changed; None where equal questions may have other answers: with an LLM that does
        not say that it is deterministic, or with cards or evidence whose texts change elsewhere."""
        self._look()
        outside = self._searched or not set(self._options.evidence) <= {"own", "none"}
        repeatable = getattr(self._direct.llm, "deterministic", False) and not outside
        return self._changes if repeatable else None

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | LLMError]:
        """See Pipeline.outcomes. Where there are no cards, the LLM answers alone."""
        return self._pipeline(route).outcomes(questions)

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[Pending | LLMError]:
        """See Pipeline.prepared."""
        pipeline = self._pipeline(route)
        for question, found in zip(questions, pipeline.prepared(questions), strict=True):
            yield found if isinstance(found, LLMError) else Pending(pipeline, question, found)

    def _pipeline(self, route: Route) -> Pipeline:
        """Raises UnknownCard for a card that was removed meanwhile."""
        cards = self._look()
        if cards != self._routed:
            self._routes, self._routed = {}, cards
        if route.mode == "direct" or not cards:
            return self._direct
        if route not in self._routes:
            base = self._routes.get(Route("bottom-up")) or self._base()
            self._routes[route] = base.variant(route.mode, route.card)
        return self._routes[route]

    def _base(self) -> Pipeline:
        """The pipeline whose cards, selectors and LLM the others share."""
        options = replace(self._options, mode="bottom-up", llm=self._direct.llm)
        base = Pipeline(options, hub=self._hub, loader=self._loader)
        self._routes[Route("bottom-up")] = base
        return base

    def _look(self) -> Cards:
        """The cards that the hub has now, or had a moment ago."""
        with self._lock:
            if time.monotonic() - self._looked >= FRESH:
                try:
                    found = self._hub.select(self._options.card_names).versions
                except HubError:
                    found = ()
                cards = tuple((version.manifest.name, version.reference) for version in found)
                self._changes += cards != self._cards
                self._cards = cards
                self._searched = any(version.manifest.kind == "search" for version in found)
                self._looked = time.monotonic()
            return self._cards


# The LLM behind the endpoint where it is an OpenAI-compatible server itself: whole conversations go there.

Path = Literal["chat/completions", "completions"]
PASSED_ON = range(400, 500)  # what a client did wrong, the LLM's server says best
OURS = {401, 403, 404, 407}  # of these the endpoint's owner is to blame
LONGEST = 500  # characters of its messages


class Upstream:
    """Chat completions of `model` at `url`, and completions. `timeout`: seconds without a byte.

    Raises ApiError where the server refuses a request, LLMFailed where it fails, TimedOut.
    """

    def __init__(self, url: str, model: str, key: str | None = None, timeout: float = 60.0) -> None:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.model, self._url = model, url.rstrip("/")
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout)

    async def complete(self, request: dict[str, Any], path: Path = "chat/completions") -> dict[str, Any]:
        """The response, whole."""
        async with self._sent(request | {"stream": False}, path) as response:
            try:
                found = _decoded(await response.aread())
                choice = found["choices"][0]  # a page of a proxy, say, has none
                choice["text"] if path == "completions" else choice["message"]["role"]
            except (ValueError, LookupError, TypeError):
                kind = path.removesuffix("s").replace("/", " ")
                raise LLMFailed(f"the LLM behind this endpoint sent no {kind}") from None
        return dict(found)

    async def stream(
        self, request: dict[str, Any], path: Path = "chat/completions"
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of the response as they arrive."""
        ended = False
        async with self._sent(request | {"stream": True}, path) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:"):
                    continue
                if data == "[DONE]":
                    ended = True
                    break
                try:
                    chunk = _decoded(data)
                except ValueError:
                    raise LLMFailed("the LLM behind this endpoint sent a broken stream") from None
                if isinstance(chunk, dict):
                    yield chunk
        if not ended:
            raise LLMFailed("the LLM behind this endpoint broke off in the middle of its answer")

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _sent(self, request: dict[str, Any], path: Path) -> AsyncIterator[httpx.Response]:
        content = _encoded(request | {"model": self.model})
        try:
            async with self._client.stream("POST", f"{self._url}/{path}", content=content) as response:
                if response.is_error:
                    raise _refusal(response.status_code, await response.aread())
                yield response
        except httpx.TimeoutException:
            raise TimedOut("the LLM behind this endpoint took too long", retry_after=5) from None
        except httpx.HTTPError:
            raise LLMFailed("the LLM behind this endpoint can't be reached", retry_after=5) from None


def _encoded(request: dict[str, Any]) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode()
    except ValueError as error:  # NaN, say, which Python's parser takes
        raise ApiError(f"the request can't be passed on as JSON: {error}") from None


def _decoded(content: str | bytes) -> Any:
    """JSON, with null for NaN and infinite numbers, which it does not have; some servers send them."""
    return json.loads(content, parse_constant=lambda _: None)


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        message = str(json.loads(body)["error"]["message"])[:LONGEST]
    except (ValueError, LookupError, TypeError):
        message = f"status {status}"
    if status == 429:
        error: ApiError = LLMFailed("the LLM behind this endpoint has too many requests", retry_after=5)
        error.status = 503
        return error
    if status in PASSED_ON and status not in OURS:
        return ApiError(f"the LLM behind this endpoint refused the request: {message}")
    return LLMFailed(f"the LLM behind this endpoint failed with status {status}", retry_after=5)


class Answering(Protocol):
    """Answers questions by route, in one thread at a time."""

    @property
    def llm(self) -> str:
        """The name under which the LLM is served."""
        ...

    def cards(self) -> Sequence[str]:
        """The names of the cards that can be asked now; called from other threads too."""
        ...

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | LLMError]: ...

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[Pending | LLMError]: ...

    def version(self) -> Hashable | None:
        """What answers depend on beside route and question, such as the cards; None where they depend on more than can
        be told. Called from other threads too."""
        ...


class Service:
    """The models of the endpoint.

    Args:
        answering: what answers
        mode: of questions to the LLM's own name
        upstream: the LLM's server, if it takes whole conversations; None: the LLM is asked single questions
        waiting: questions that may wait
        timeout: seconds that a question may take, with its wait
        cache: answers that are kept for equal questions
    """

    def __init__(
        self,
        answering: Answering,
        mode: Mode,
        upstream: Upstream | None = None,
        waiting: int = 256,
        timeout: float = 120.0,
        cache: int = 0,
    ) -> None:
        self._cache = AnswerCache(cache)
        self._answering, self._mode, self._timeout = answering, mode, timeout
        self.upstream = upstream
        self._answers: Batcher[Route, Answer | Pending | LLMError] = Batcher(
            answering.prepared if upstream else answering.answers, waiting=waiting, dropped=_abandon
        )

    @property
    def waiting(self) -> int:
        """Questions that wait."""
        return len(self._answers)

    async def models(self) -> list[str]:
        cards = await asyncio.to_thread(self._answering.cards)
        return list(names(self._answering.llm, cards))

    async def route(self, model: str) -> Route:
        """Raises NoSuchModel."""
        cards = await asyncio.to_thread(self._answering.cards) if ":" in model else ()
        return route_of(model, self._answering.llm, self._mode, cards)

    async def answer(self, route: Route, question: str) -> Answered:
        """The answer of an LLM that is asked single questions.

        Raises Busy, TimeoutError, and what a pipeline raises.
        """

        async def found() -> Answer:
            answer = await self._submitted(route, question)
            assert isinstance(answer, Answer)
            return answer

        async with asyncio.timeout(self._timeout):
            if await self._version() is None:
                return Answered(await found())
            return await self._cache.get(self._version, (route, question), found)

    async def prepare(self, route: Route, questions: Sequence[str]) -> list[Pending]:
        """The questions with what the LLM is to read that takes whole conversations. Raises what `answer` raises."""
        tasks = [asyncio.ensure_future(self._submitted(route, question)) for question in questions]
        try:
            async with asyncio.timeout(self._timeout):
                found = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
                task.add_done_callback(self._forget)
            raise
        return [pending for pending in found if isinstance(pending, Pending)]

    def _forget(self, task: "asyncio.Task[Answer | Pending]") -> None:
        """The other questions of a request that failed, which may have been prepared."""
        if task.cancelled() or task.exception() is not None:
            return
        if isinstance(found := task.result(), Pending):
            self.abandon(found)

    async def _submitted(self, route: Route, question: str) -> Answer | Pending:
        found = await self._answers.submit(route, question)
        if isinstance(found, LLMError):
            raise found
        return found

    async def _version(self) -> Hashable | None:
        return await asyncio.to_thread(self._answering.version)

    async def complete(self, pending: Pending, reply: Reply, seconds: float) -> Answer:
        """The answer with its citations."""
        return await self._answers.call(pending.complete, reply, seconds)

    def abandon(self, pending: Pending) -> None:
        """Forget a question that will not be completed."""
        self._answers.post(pending.abandon)

    async def close(self) -> None:
        self._answers.close()
        if self.upstream is not None:
            await self.upstream.close()


def _abandon(found: Answer | Pending | LLMError) -> None:
    """Whoever asked has left."""
    if isinstance(found, Pending):
        found.abandon()
