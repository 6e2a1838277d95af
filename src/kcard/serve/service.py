"""Answers the endpoint's questions: routes model names to pipelines, batches questions and caches answers."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from kcard.batching import QUESTIONS
from kcard.errors import CardError, KcardError, MissingExtra, ModelUnavailable, one_line
from kcard.integrators.options import Mode
from kcard.questions import checked
from kcard.serve.pipelines import PendingQuestion, Pipelines, Route
from kcard.serve.schema import CardFailed, NoSuchModel, Overloaded
from kcard.types import Answer, Reply

if TYPE_CHECKING:
    from kcard.serve.uploads import UploadedFiles
    from kcard.serve.upstream import Upstream

logger = logging.getLogger("kcard.serve")

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class ServedAnswer:
    """An answer; `cached`: from the cache."""

    answer: Answer
    cached: bool = False


class AnswerCache:
    """The `most` answers that were used last, all for one version of the cards. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version: Hashable = None
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()

    def get(self, version: Hashable, key: Hashable) -> Answer | None:
        """Return the answer for a key and this version, if it is in the cache."""
        if version != self._version or key not in self._answers:
            return None
        self._answers.move_to_end(key)
        return self._answers[key]

    def put(self, version: Hashable, key: Hashable, answer: Answer) -> None:
        """Add an answer for this version, and drop those for another one."""
        if version != self._version:
            self._version = version
            self._answers.clear()
        self._answers[key] = answer
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)


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
        max_queue: questions that may wait; further ones are refused

    A question whose client has left before its batch begins is not answered.
    """

    def __init__(
        self,
        answer: Callable[[BatchKey, Sequence[str]], Iterator[Result]],
        most: int = QUESTIONS,
        max_queue: int = 256,
    ) -> None:
        self._answer, self._most, self._max_queue = answer, most, max_queue
        self._queue: list[_Waiting[BatchKey]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kcard-answers")

    def __len__(self) -> int:
        """Count waiting questions."""
        return len(self._queue)

    async def submit(self, route: BatchKey, question: str) -> Result:
        """Return the question's result. Raises Overloaded where too many wait, and whatever `answer` raises."""
        if len(self._queue) >= self._max_queue:
            raise Overloaded(f"{self._max_queue} questions are waiting: try again later", retry_after=1)
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
        while True:
            waiting = [entry for entry in self._queue if not entry.future.done()]
            batch: list[_Waiting[BatchKey]] = []
            self._queue = []
            for entry in waiting:
                if entry.route == waiting[0].route and len(batch) < self._most:
                    batch.append(entry)
                else:
                    self._queue.append(entry)
            if not batch:
                return
            await self.call(self._answer_batch, batch, asyncio.get_running_loop())

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


class Service:
    """The models of the endpoint.

    Args:
        pipelines: answer the questions
        mode: of questions to an LLM's own name
        upstreams: the servers of LLMs that take whole conversations, by the LLM's name; others take single questions
        max_queue: questions that may wait
        timeout: seconds that a question may take, with its wait
        cache: number of answers that are cached
        uploads: files that clients upload to ask them; None: no client may
    """

    def __init__(
        self,
        pipelines: Pipelines,
        mode: Mode,
        upstreams: "Mapping[str, Upstream] | None" = None,
        max_queue: int = 256,
        timeout: float = 120.0,
        cache: int = 0,
        uploads: "UploadedFiles | None" = None,
    ) -> None:
        self.uploads = uploads
        self._cache = AnswerCache(cache)
        self._pipelines, self._mode, self._timeout = pipelines, mode, timeout
        self._upstreams = dict(upstreams or {})
        self._batcher: Batcher[Route, Answer | PendingQuestion | KcardError] = Batcher(
            self._process, max_queue=max_queue
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

    async def route(self, model: str, uploader: str | None = None) -> Route:
        """Return the route of a model: an LLM's name, alone or with a mode, a card or a file of the uploader.

        Raises NoSuchModel.
        """
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
            if suffix and self.uploads is not None and uploader is not None:
                uploaded = await asyncio.to_thread(self.uploads.find, uploader, suffix)
                if uploaded is not None:
                    return Route("bottom-up", suffix, llm, uploaded.digest)
        raise NoSuchModel(f"the model {model!r} does not exist: GET /v1/models lists those that do", "model")

    async def count_cards(self, route: Route) -> int:
        """Count the cards that a question may be answered from."""
        if route.mode == "direct":
            return 0
        return 1 if route.card else len(await asyncio.to_thread(self._pipelines.cards))

    async def describe(self, uploader: str | None = None) -> dict[str, Any]:
        """Return what the page shows: LLMs and what each reads, modes, cards, questions, files of the uploader."""
        llms = []
        for name in self._pipelines.models:
            llms.append({"name": name, "reads": "conversations" if name in self._upstreams else "questions"})
        cards = await asyncio.to_thread(self._pipelines.cards)
        examples = await asyncio.to_thread(self._pipelines.examples)
        uploads = None
        if self.uploads is not None and uploader is not None:
            uploads = await asyncio.to_thread(self.uploads.describe, uploader)
        return {
            "llms": llms,
            "modes": [*MODES],
            "cards": [*cards],
            "examples": [*examples],
            "uploads": uploads,
        }

    async def answer(self, route: Route, question: str) -> ServedAnswer:
        """Answer a question with an LLM that takes single questions.

        Raises UsageError for a question that is empty, too long or not text, CardFailed, Overloaded, TimeoutError, and
        what a pipeline raises.
        """
        key = route, question
        async with asyncio.timeout(self._timeout):
            version = await asyncio.to_thread(self._pipelines.version, route.llm)
            if version is not None:
                cached = self._cache.get(version, key)
                if cached is not None:
                    return ServedAnswer(cached, cached=True)
            answer = await self._submit(route, question)
            assert isinstance(answer, Answer)
            # The cards may have changed while it was found.
            if version is not None and version == await asyncio.to_thread(self._pipelines.version, route.llm):
                self._cache.put(version, key, answer)
            return ServedAnswer(answer)

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
