"""Serves questions: routes model names to pipelines, batches questions and caches answers."""

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from kcard.batching import QUESTIONS
from kcard.errors import CardError, HubError, KcardError, MissingExtra, ModelUnavailable, one_line
from kcard.integrators.assembly import make_loader
from kcard.integrators.options import AskOptions, Mode
from kcard.integrators.pipeline import Pipeline, PreparedQuestion
from kcard.interfaces import LLM
from kcard.manifest import MANIFEST, Manifest, file_digest
from kcard.questions import checked
from kcard.serve.schema import CardFailed, NoSuchModel, Overloaded
from kcard.types import Answer, Reply

if TYPE_CHECKING:
    from kcard.hub.registry import Hub, Selection
    from kcard.serve.upstream import Upstream

logger = logging.getLogger("kcard.serve")

# Model names of the endpoint: the LLM, the LLM with a mode, and the LLM with one card.
#
# llama-3.1-8b               as `kcard serve --mode` says
# llama-3.1-8b:direct        without cards; also top-down, bottom-up, hybrid
# llama-3.1-8b:biomedical    with that card

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Route:
    """How a question is answered. `card`: the only card that generates; None: all. `llm`: a name; None: the first."""

    mode: Mode
    card: str | None = None
    llm: str | None = None


# A question with its knowledge, awaiting the reply of the LLM's own server.


@dataclass(frozen=True)
class PendingQuestion:
    """A prepared question, to be completed in the thread that prepared it."""

    pipeline: Pipeline
    prepared: PreparedQuestion


# A cache of answers; concurrent requests with equal questions share one computation.

T = TypeVar("T")
Version = Callable[[], Awaitable[Hashable]]


@dataclass(frozen=True)
class ServedAnswer:
    """An answer. `cached`: from the cache, or from a concurrent request with an equal question."""

    answer: Answer
    cached: bool = False


@dataclass(eq=False)
class _Computation(Generic[T]):
    """An answer in progress, and how many requests wait for it."""

    task: "asyncio.Task[T]"
    waiting: int = 0


class AnswerCache:
    """An LRU cache of at most `most` answers, all for one version of the cards. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version: Hashable = None
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()
        self._computations: dict[Hashable, _Computation[Answer]] = {}

    async def get(
        self, version: Version, key: Hashable, compute: Callable[[], Awaitable[Answer]]
    ) -> ServedAnswer:
        """Return the answer for a key, computed at most once at a time and cancelled when nobody waits for it any more.

        `version`: what else the answers depend on. When it changes, all are dropped; an answer is not cached if the
        version changes during its computation. Raises what `compute` raises, which is not cached either.
        """
        self._update_version(await version())
        if key in self._answers:
            self._answers.move_to_end(key)
            return ServedAnswer(self._answers[key], cached=True)

        async def compute_and_store() -> Answer:
            before = self._version
            answer = await compute()
            self._update_version(await version())
            if before == self._version:
                self._answers[key] = answer
                while len(self._answers) > self._most:
                    self._answers.popitem(last=False)
            return answer

        computation = self._computations.get(key)
        is_shared = computation is not None
        if computation is None:
            computation = self._computations[key] = _Computation(asyncio.ensure_future(compute_and_store()))
        computation.waiting += 1
        try:
            return ServedAnswer(await asyncio.shield(computation.task), is_shared)
        finally:
            computation.waiting -= 1
            if not computation.waiting:
                computation.task.cancel()
            is_over = not computation.waiting or computation.task.done()
            if is_over and self._computations.get(key) is computation:
                del self._computations[key]

    def _update_version(self, version: Hashable) -> None:
        if version != self._version:
            self._version = version
            self._answers.clear()
            self._computations = {}  # those who wait have references of their own


# Questions that arrive during a batch wait for the next one, which answers them together.

BatchKey = TypeVar("BatchKey", bound=Hashable)
Result = TypeVar("Result")
Other = TypeVar("Other")


@dataclass(eq=False)
class _Waiting(Generic[BatchKey]):
    route: BatchKey
    question: str
    future: "asyncio.Future[Any]" = field(repr=False)

    def settle(self, result: object, error: Exception | None = None) -> None:
        """Hand over the result, or the error, unless the client has left."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Batcher(Generic[BatchKey, Result]):
    """A queue that answers questions in one thread, in batches of one route, oldest first. For one event loop.

    Args:
        answer: yields one result for each question, in order; called in the thread
        most: questions in a batch
        waiting: questions that may wait; further ones are refused

    A question whose client has left before its batch begins is not answered.
    """

    def __init__(
        self,
        answer: Callable[[BatchKey, Sequence[str]], Iterator[Result]],
        most: int = QUESTIONS,
        waiting: int = 256,
    ) -> None:
        self._answer, self._most, self._limit = answer, most, waiting
        self._queue: list[_Waiting[BatchKey]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kcard-answers")

    def __len__(self) -> int:
        """Count waiting questions."""
        return len(self._queue)

    async def submit(self, route: BatchKey, question: str) -> Result:
        """Return the question's result. Raises Overloaded where too many wait, and whatever `answer` raises."""
        if len(self._queue) >= self._limit:
            raise Overloaded(f"{self._limit} questions are waiting: try again later", retry_after=1)
        entry = _Waiting(route, question, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        result: Result = await entry.future
        return result

    async def call(self, function: Callable[..., Other], *arguments: object) -> Other:
        """Call a function in the thread, between two batches, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Drop the waiting questions, and end the thread after its batch."""
        self._queue.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _run(self) -> None:
        """Answer batch after batch: the oldest question and those of the same route.

        Each batch is handed to the thread anew, behind calls that wait for it.
        """
        while alive := [entry for entry in self._queue if not entry.future.done()]:
            batch = [entry for entry in alive if entry.route == alive[0].route][: self._most]
            batch_ids = set(map(id, batch))
            self._queue = [entry for entry in alive if id(entry) not in batch_ids]
            await self.call(self._answer_batch, batch, asyncio.get_running_loop())
        self._queue.clear()

    def _answer_batch(self, batch: Sequence[_Waiting[BatchKey]], loop: asyncio.AbstractEventLoop) -> None:
        """Settle each question as soon as its result is there; whoever waits raises the error."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            try:
                results = self._answer(batch[0].route, [entry.question for entry in batch])
                for entry, result in zip(batch, results, strict=True):
                    loop.call_soon_threadsafe(entry.settle, result)
            except Exception as error:  # noqa: BLE001
                for entry in batch:
                    loop.call_soon_threadsafe(entry.settle, None, error)


# Pipelines by route over one pool of cards, kept up to date with the hub.

FRESH = 1.0  # seconds after which the hub is read again
MAX_EXAMPLES = 4  # questions
Cards = tuple[tuple[str, str], ...]  # names and references


class Pipelines:
    """Answers questions by route with cards of the hub; one thread at a time.

    Args:
        options: of asking; `cards` limits the cards that are served
        hub: the hub of the cards
        llm: the name under which the LLM is served
        others: further LLMs, by the names under which they are served; all are loaded at once

    Private and gated cards of the hub are served only if `options.cards` names them. Published, removed and quarantined
    cards take effect with the next question; models of the others stay loaded. Raises what Pipeline raises, except that
    a hub without cards is served without them.
    """

    def __init__(
        self, options: AskOptions, hub: "Hub", llm: str, others: Mapping[str, str] | None = None
    ) -> None:
        self.llm = llm
        self._options, self._hub = options, hub
        direct = replace(options, mode="direct", cards=None)
        self._direct = {llm: Pipeline(direct, hub=hub)}  # by the LLM
        for name, spec in (others or {}).items():
            self._direct[name] = Pipeline(replace(direct, llm=spec), hub=hub)
        self._loader = make_loader(options)
        self._lock = threading.Lock()
        self._selection: Selection | None = None
        self._cards: Cards = ()
        self._trouble = ""  # why there are no cards
        self._changes = 0  # of the cards
        self._has_search_cards = False
        self._read_at = -FRESH
        self._routes: dict[Route, Pipeline] = {}
        self._route_cards: Cards = ()  # the cards of these pipelines

    @property
    def models(self) -> Mapping[str, LLM]:
        """The LLMs by their names, the first one first."""
        return {name: pipeline.llm for name, pipeline in self._direct.items()}

    def cards(self) -> Sequence[str]:
        """Return the names of the cards that are served now; for any thread."""
        return [name for name, _ in self._current_cards()]

    def examples(self) -> Sequence[str]:
        """Return example questions to the cards that are served now, at most MAX_EXAMPLES; for any thread."""
        from kcard.hub.server.web.cards import example_questions

        self._current_cards()
        selection = self._selection
        by_card = []
        for version in (selection.versions if selection else ())[:MAX_EXAMPLES]:
            by_card.append(example_questions(self._hub.blobs, version.files, version.manifest.language))
        rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_card))
        return [*dict.fromkeys(question for question in rounds if question)][:MAX_EXAMPLES]

    def version(self, llm: str | None = None) -> int | None:
        """Return how often the cards have changed, for any thread; None where equal questions may have other answers.

        That is the case with an LLM that is not declared deterministic, or with cards or evidence of remote services.
        """
        self._current_cards()
        is_remote = self._has_search_cards or not set(self._options.evidence) <= {"own", "none"}
        is_repeatable = self._direct[llm or self.llm].llm.is_deterministic and not is_remote
        return self._changes if is_repeatable else None

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | KcardError]:
        """Answer questions as Pipeline.outcomes does. Where there are no cards, the LLM answers alone."""
        return self._pipeline(route).outcomes(questions)

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[PendingQuestion | KcardError]:
        """Prepare questions as Pipeline.prepared does."""
        pipeline = self._pipeline(route)
        for prepared in pipeline.prepared(questions):
            yield prepared if isinstance(prepared, KcardError) else PendingQuestion(pipeline, prepared)

    def _pipeline(self, route: Route) -> Pipeline:
        """Return the pipeline of a route. Raises UnknownCard for a card that was removed meanwhile."""
        cards = self._current_cards()
        if cards != self._route_cards:
            self._routes, self._route_cards = {}, cards
        direct = self._direct[route.llm or self.llm]
        if route.mode == "direct" or not cards:
            return direct
        if route not in self._routes:
            # The pipeline of this route shares its LLM, cards and selectors with the others of its LLM.
            shared = Route("bottom-up", llm=route.llm)
            base = self._routes.get(shared)
            if base is None:
                options = replace(self._options, mode="bottom-up", llm=direct.llm)
                base = Pipeline(options, hub=self._hub, selection=self._selection, loader=self._loader)
                self._routes[shared] = base
            self._routes[route] = base.variant(route.mode, route.card)
        return self._routes[route]

    def _current_cards(self) -> Cards:
        """Return the cards of the hub, read at most FRESH seconds ago."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH:
                self._read_cards()
            return self._cards

    def _read_cards(self) -> None:
        selection, trouble = None, ""
        drafts: list[tuple[Manifest, str]] = []  # with the digest, which tells that a draft was made anew
        try:
            selection = self._hub.select(self._options.card_names, public=True, drafts=True)
            for folder in selection.drafts:
                drafts.append((Manifest.read(folder), file_digest(folder / MANIFEST)))
        except (HubError, CardError) as error:
            selection, trouble = None, one_line(error)
        if trouble and trouble != self._trouble:
            logger.warning("no cards are served: %s", trouble)
        versions = selection.versions if selection else ()
        published = [(version.name, version.reference) for version in versions]
        cards = (*published, *((manifest.name, digest) for manifest, digest in drafts))
        self._changes += cards != self._cards
        self._selection, self._cards, self._trouble = selection, cards, trouble
        manifests = [*(version.manifest for version in versions), *(manifest for manifest, _ in drafts)]
        self._has_search_cards = any(manifest.kind == "search" for manifest in manifests)
        self._read_at = time.monotonic()


class Service:
    """The models of the endpoint.

    Args:
        pipelines: answer the questions
        mode: of questions to an LLM's own name
        upstream: the server of the first LLM, if it takes whole conversations; None: it takes single questions
        waiting: questions that may wait
        timeout: seconds that a question may take, with its wait
        cache: number of answers that are cached
        others: the servers of further LLMs, by name, which take whole conversations
    """

    def __init__(
        self,
        pipelines: Pipelines,
        mode: Mode,
        upstream: "Upstream | None" = None,
        waiting: int = 256,
        timeout: float = 120.0,
        cache: int = 0,
        others: "Mapping[str, Upstream] | None" = None,
    ) -> None:
        self._cache = AnswerCache(cache)
        self._pipelines, self._mode, self._timeout = pipelines, mode, timeout
        self._upstreams: dict[str, Upstream] = dict(others or {})
        if upstream is not None:
            self._upstreams[pipelines.llm] = upstream
        self._batcher: Batcher[Route, Answer | PendingQuestion | KcardError] = Batcher(
            self._process, waiting=waiting
        )

    @property
    def waiting(self) -> int:
        """The number of waiting questions."""
        return len(self._batcher)

    def upstream(self, route: Route) -> "Upstream | None":
        """Return the LLM's server, if it takes whole conversations."""
        return self._upstreams.get(route.llm or self._pipelines.llm)

    def temperature(self, route: Route) -> float | None:
        """Return the temperature at which the LLM answers; None if it has none, as the embedded one."""
        return getattr(self._pipelines.models[route.llm or self._pipelines.llm], "temperature", None)

    async def models(self) -> list[str]:
        """Return the names of all models."""
        cards = await asyncio.to_thread(self._pipelines.cards)
        names = []
        for llm in self._pipelines.models:
            names += [llm, *(f"{llm}:{mode}" for mode in MODES), *(f"{llm}:{card}" for card in cards)]
        return names

    async def route(self, model: str) -> Route:
        """Return the route of a model: an LLM's name, alone or with a mode or card. Raises NoSuchModel."""
        llms = self._pipelines.models
        if model in llms:
            return Route(self._mode, llm=model)
        cards = await asyncio.to_thread(self._pipelines.cards)
        for llm in llms:
            suffix = model.removeprefix(f"{llm}:") if model.startswith(f"{llm}:") else ""
            if suffix in MODES:
                return Route(suffix, llm=llm)
            if suffix and suffix in cards:
                return Route("bottom-up", suffix, llm)
        raise NoSuchModel(f"the model {model!r} does not exist: GET /v1/models lists those that do", "model")

    async def count_cards(self, route: Route) -> int:
        """Count the cards that a question may be answered from."""
        if route.mode == "direct":
            return 0
        return 1 if route.card else len(await asyncio.to_thread(self._pipelines.cards))

    async def describe(self) -> dict[str, Any]:
        """Return what the page shows: the LLMs and what each reads, modes, cards, example questions."""
        llms = [
            {"name": name, "reads": "conversations" if name in self._upstreams else "questions"}
            for name in self._pipelines.models
        ]
        cards = await asyncio.to_thread(self._pipelines.cards)
        examples = await asyncio.to_thread(self._pipelines.examples)
        return {"llms": llms, "modes": [*MODES], "cards": [*cards], "examples": [*examples]}

    async def answer(self, route: Route, question: str) -> ServedAnswer:
        """Answer a question with an LLM that takes single questions.

        Raises UsageError for a question that is empty, too long or not text, CardFailed, Overloaded, TimeoutError, and
        what a pipeline raises.
        """

        async def compute() -> Answer:
            answer = await self._submit(route, question)
            assert isinstance(answer, Answer)
            return answer

        async def version() -> Hashable | None:
            return await asyncio.to_thread(self._pipelines.version, route.llm)

        async with asyncio.timeout(self._timeout):
            if await version() is None:
                return ServedAnswer(await compute())
            return await self._cache.get(version, (route, question), compute)

    async def prepare(self, route: Route, questions: Sequence[str]) -> list[PendingQuestion]:
        """Gather knowledge for questions to an LLM that takes whole conversations. Raises what `answer` raises."""

        async with asyncio.timeout(self._timeout):
            results = await asyncio.gather(*(self._submit(route, question) for question in questions))
        return [result for result in results if isinstance(result, PendingQuestion)]

    async def _submit(self, route: Route, question: str) -> Answer | PendingQuestion:
        checked(question)  # before it joins a batch, whose other questions its error would fail
        try:
            result = await self._batcher.submit(route, question)
        except KcardError as error:  # of the whole batch
            result = error
        if isinstance(result, CardError | ModelUnavailable | MissingExtra):
            # The message names folders of this machine, so it goes to the log.
            logger.error("card: %s", one_line(result))
            what = f"the card {route.card!r}" if route.card else "every card that fits the question"
            raise CardFailed(f"{what} is damaged or can't be loaded: see the log of the endpoint") from result
        if isinstance(result, KcardError):
            raise result
        return result

    def _process(
        self, route: Route, questions: Sequence[str]
    ) -> Iterator[Answer | PendingQuestion | KcardError]:
        """Prepare questions to an LLM that takes whole conversations; answer those to others."""
        if self.upstream(route) is not None:
            yield from self._pipelines.prepared(route, questions)
        else:
            yield from self._pipelines.answers(route, questions)

    async def complete(self, pending: PendingQuestion, reply: Reply, seconds: float) -> Answer:
        """Return the answer, with its citations, for a reply that took so many seconds."""
        return await self._batcher.call(pending.pipeline.complete, pending.prepared, reply, seconds)

    async def close(self) -> None:
        self._batcher.close()
        for upstream in self._upstreams.values():
            await upstream.close()
