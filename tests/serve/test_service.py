"""The openai client, unmodified, asks the embedded LLM with a card."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from starlette.types import ASGIApp

from kcard.errors import LLMError, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.questions import MAX_QUESTION_CHARACTERS
from kcard.serve import answers, pipelines
from kcard.serve.app import as_api_error, create_app
from kcard.serve.auth import Keys, add_key
from kcard.serve.pipelines import PendingQuestion, Pipelines, Route
from kcard.serve.schema import ApiError, CompletionRequest
from kcard.serve.service import AnswerCache, Batcher, Service
from kcard.types import Answer, Decision
from tests.serve.conftest import (
    DISCOVERER,
    QUESTION,
    TRITON,
    answer,
    ask,
    embedded_service,
    error,
    post,
    running,
)

NULLS = ("stream", "stop", "max_tokens", "temperature", "response_format", "logprobs", "n", "stream_options")


@pytest.fixture(scope="module")
def client(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key="none", max_retries=0)


@pytest.mark.parametrize("model", ["embedded", "embedded:bottom-up", "embedded:hybrid", "embedded:neptune"])
def test_the_llm_answers_from_its_cards_in_every_mode_and_says_which(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model, messages=TRITON)
    assert raw.headers["X-Kcard-Cards"] == "neptune"
    reply = raw.parse()
    assert reply.choices[0].message.content == DISCOVERER
    assert reply.model == model
    trace: Any = reply.model_dump()["kcard"]
    assert trace["cards"] == ["neptune"]
    assert "Lassell" in trace["passages"][trace["citations"][0]["passage"]]["text"]


def test_without_cards_the_llm_does_not_know_and_null_for_a_parameter_is_none(url: str) -> None:
    assert answer(ask(url, model="embedded:direct")) == "I don't know."
    assert answer(post(url, {"model": "embedded", "messages": TRITON, **dict.fromkeys(NULLS)})) == DISCOVERER


@pytest.mark.parametrize(
    ("parameters", "text", "finish"),
    [
        ({"stop": ["ssell"]}, "William La", "stop"),
        ({"stop": "Kuiper"}, DISCOVERER, "stop"),
        ({"stop": ""}, DISCOVERER, "stop"),
        ({"max_tokens": 1}, "William", "length"),
        ({"max_completion_tokens": 2, "max_tokens": 1}, DISCOVERER, "stop"),
        ({"response_format": {"type": "text"}, "temperature": 2, "logprobs": False}, DISCOVERER, "stop"),
    ],
)
def test_an_answer_ends_where_the_request_says(
    client: OpenAI, parameters: Any, text: str, finish: str
) -> None:
    whole = client.chat.completions.create(model="embedded", messages=TRITON, **parameters).choices[0]
    assert (whole.message.content, whole.finish_reason) == (text, finish)
    counted = {"stream": True, "stream_options": {"include_usage": True}, **parameters}
    *chunks, last = client.chat.completions.create(model="embedded", messages=TRITON, **counted)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == finish
    assert last.usage.prompt_tokens > last.usage.completion_tokens > 0
    assert any("kcard" in chunk.model_dump() for chunk in chunks)
    if not {"response_format", "max_completion_tokens"} & parameters.keys():
        (choice,) = client.completions.create(model="embedded", prompt=QUESTION, **parameters).choices
        assert (choice.text, choice.finish_reason) == (text, finish)


def test_each_llm_has_its_own_models(library: Path, endpoint: Callable[[ASGIApp], OpenAI]) -> None:
    pipelines = Pipelines(AskOptions(), Hub(library), "embedded", {"embedded:7b": "embedded"})
    service = Service(pipelines, "top-down")
    routes = {
        "embedded": Route("top-down", None, "embedded"),
        "embedded:7b": Route("top-down", None, "embedded:7b"),
        "embedded:7b:direct": Route("direct", None, "embedded:7b"),
        "embedded:neptune": Route("bottom-up", "neptune", "embedded"),
        "embedded:7b:neptune": Route("bottom-up", "neptune", "embedded:7b"),
    }
    assert {model: asyncio.run(service.route(model)) for model in routes} == routes
    client = endpoint(create_app(service))
    assert set(routes) <= {model.id for model in client.models.list()}
    reply = client.chat.completions.create(model="embedded:7b:neptune", messages=TRITON)
    assert reply.choices[0].message.content == DISCOVERER


@pytest.mark.parametrize("origins", [[], ["https://a.example"]])
def test_pages_of_named_origins_may_ask_and_no_others(library: Path, origins: list[str]) -> None:
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with running(create_app(embedded_service(library), origins=origins)) as url:
        allowed = []
        for origin in ("https://a.example", "https://b.example"):
            reply = httpx.options(f"{url}/chat/completions", headers={"Origin": origin, **wanted})
            allowed.append(reply.headers.get("access-control-allow-origin"))
    assert allowed == [*origins, None, None][:2]


def test_completions_answer_each_prompt(client: OpenAI) -> None:
    response = client.completions.create(
        model="embedded:neptune", prompt=["Who discovered Triton?", "Who found Nereid?"]
    )
    assert [choice.text for choice in response.choices] == [DISCOVERER, "Gerard Kuiper"]


def test_models_are_the_llm_its_modes_and_its_cards(client: OpenAI) -> None:
    modes = ["top-down", "bottom-up", "hybrid", "direct", "neptune"]
    assert [m.id for m in client.models.list()] == ["embedded", *(f"embedded:{mode}" for mode in modes)]
    assert client.models.retrieve("embedded:neptune").id == "embedded:neptune"


def test_cards_come_and_go_while_it_runs(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "FRESH_SECONDS", 0.0)
    hub = Hub(tmp_path / "hub")
    with running(create_app(embedded_service(hub))) as url:
        assert answer(ask(url)) == "I don't know."
        hub.publish(library / "draft")
        assert answer(ask(url)) == DISCOVERER
        hub.remove("neptune")
        assert answer(ask(url)) == "I don't know."


def test_a_card_that_is_removed_before_its_question_is_answered_is_a_404(
    library: Path, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    hub.publish(library / "draft")
    pipelines = Pipelines(AskOptions(), hub, "embedded")
    assert list(pipelines.cards()) == ["neptune"]
    with pytest.raises(UnknownCard) as gone:
        pipelines.answers(Route("bottom-up", "uranus"), ["Who discovered Triton?"])
    assert as_api_error(gone.value).status == 404


def test_a_question_that_comes_again_has_the_same_answer_and_says_so(library: Path, endpoint: Any) -> None:
    client = endpoint(create_app(embedded_service(library, cache=10)))

    def get_answer(model: str, stream: bool = False) -> tuple[str | None, bytes]:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=TRITON, stream=stream)
        return raw.headers.get("X-Kcard-Cache"), raw.http_response.read()

    first, again = get_answer("embedded"), get_answer("embedded")
    assert (first[0], again[0]) == (None, "hit")
    assert json.loads(first[1])["kcard"] == json.loads(again[1])["kcard"]
    assert get_answer("embedded", stream=True)[0] == "hit"
    assert get_answer("embedded:neptune")[0] is None  # another route
    raw = client.completions.with_raw_response.create(model="embedded", prompt="Who discovered Triton?")
    assert raw.headers.get("X-Kcard-Cache") == "hit"
    metrics = httpx.get(str(client.base_url).replace("/v1/", "/metrics")).text
    assert "kcard_cached_answers_total 3.0" in metrics


@pytest.mark.parametrize(
    "options",
    [{"llm": lambda _: "William Lassell."}, {"evidence": ["own", "wikipedia:de"]}],
    ids=["an LLM that may answer differently", "evidence that changes elsewhere"],
)
def test_answers_that_may_differ_are_not_kept(library: Path, options: dict[str, Any]) -> None:
    assert Pipelines(AskOptions(**options), Hub(library), "llm").version() is None
    assert Pipelines(AskOptions(), Hub(library), "llm").version() is not None


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "gpt-4o"}, 404, "'gpt-4o' does not exist"),
        ({"model": "embedded:saturn"}, 404, "'embedded:saturn' does not exist"),
        ({"messages": []}, 400, "messages: List should have at least 1 item"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "has no text"),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, 400, "has no text"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages.0.role"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "UTF-8"),
        ({"messages": [{"role": "user", "content": "x" * 20_001}]}, 400, "has 20,001 characters"),
        ({"n": 2}, 400, "n: Input should be 1"),
        ({"logprobs": True}, 400, "tells no log-probabilities"),
        ({"response_format": {"type": "json_object"}}, 400, "writes text only"),
        ({"max_tokens": 0}, 400, "max_tokens is 0: it must be 1 or more"),
        ({"tools": [{"type": "function"}]}, 400, "no tools, no images"),
    ],
)
def test_bad_requests_have_openais_errors(url: str, fields: Any, status: int, message: str) -> None:
    reply = post(url, {"model": "embedded", "messages": TRITON} | fields)
    assert reply.status_code == status
    assert message in error(reply)["message"]
    assert (error(reply)["param"] or "messages").partition(".")[0] in {*fields, "messages"}


@pytest.mark.parametrize("body", [b"", b"{bad", b"[]", b'{"model": 3}', b"\xff\xfe", b"null"])
def test_a_body_that_is_not_a_request_is_the_clients_fault(url: str, body: bytes) -> None:
    for path in ("chat/completions", "completions"):
        headers = {"Content-Type": "application/json"}
        reply = httpx.post(f"{url}/{path}", content=body, headers=headers, timeout=60)
        assert (reply.status_code, error(reply)["type"]) == (400, "invalid_request_error")


def test_a_body_without_its_content_type_and_what_is_not_served_are_told(url: str) -> None:
    untyped = httpx.post(f"{url}/chat/completions", content=b'{"model": "embedded"}', timeout=60)
    assert untyped.status_code == 400
    assert "Content-Type: application/json" in error(untyped)["message"]
    nowhere = httpx.get(f"{url}/images", timeout=60)
    assert nowhere.status_code == 404
    assert "unknown path" in error(nowhere)["message"]
    embeddings = post(url, {"model": "embedded", "input": "Triton"}, "embeddings")
    assert (embeddings.status_code, error(embeddings)["code"]) == (404, "not_served")
    assert "no embeddings" in error(embeddings)["message"]


def test_a_temperature_that_the_llm_does_not_have_is_refused() -> None:
    request = CompletionRequest(model="m", prompt="Who?", temperature=1)
    request.check_possible(None)
    request.check_possible(1.0)
    with pytest.raises(ApiError, match=r"answers at temperature 0\.1") as caught:
        request.check_possible(0.1)
    assert caught.value.param == "temperature"


def test_the_page_takes_no_longer_question_than_the_endpoint(url: str) -> None:
    page = httpx.get(url.removesuffix("v1")).text
    assert f'maxlength="{MAX_QUESTION_CHARACTERS}"' in page


def test_a_key_is_needed_where_there_are_keys(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, "alice")
    with running(create_app(embedded_service(library), Keys(path))) as url:
        wrong = OpenAI(base_url=url, api_key="kc_wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with pytest.raises(openai.AuthenticationError):
            wrong.chat.completions.create(model="embedded", messages=TRITON)
        assert OpenAI(base_url=url, api_key=key).models.list().data
        root = url.removesuffix("/v1")
        assert httpx.get(f"{root}/healthz").text == "ok\n"
        assert 'kcard_errors_total{code="invalid_api_key"} 2.0' in httpx.get(f"{root}/metrics").text


class Slow(Pipelines):
    """Answers "QUESTION?" with its own text once it is let through."""

    def __init__(self) -> None:
        self.llm = "slow"
        self.begun, self.let = threading.Event(), threading.Event()
        self.answered: list[str] = []

    @property
    def models(self) -> dict[str, Any]:
        return {self.llm: None}

    def cards(self) -> Sequence[str]:
        return ()

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | LLMError]:
        self.begun.set()
        assert self.let.wait(30)
        for question in questions:
            self.answered.append(question)
            if question == "fails":
                yield LLMError("http://secret.example failed with key kc_abc")
            else:
                yield Answer(question, f"answer to {question}", route.mode, Decision("never", 1.0, False))

    def prepared(self, *_: Any) -> Iterator[PendingQuestion | LLMError]:
        raise AssertionError("this LLM is asked single questions")

    def version(self, llm: str | None = None) -> None:
        del llm


@pytest.fixture
def slow() -> Slow:
    return Slow()


def wait_for(text: str, log: pytest.LogCaptureFixture) -> None:
    """Until a line of the log has this text."""
    deadline = time.monotonic() + 30
    while text not in log.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("question", ["x" * 20_001, "\ud800", " "])
def test_a_question_that_can_not_be_asked_joins_no_batch_whose_others_it_would_fail(
    slow: Slow, question: str
) -> None:
    with pytest.raises(UsageError):
        asyncio.run(Service(slow, "direct").answer(Route("direct"), question))
    assert not slow.begun.is_set()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": TRITON}),
        ("chat/completions", {"messages": TRITON, "stream": True}),
        ("completions", {"prompt": ["one", "two"]}),
    ],
)
def test_a_client_that_hangs_up_leaves_one_line(
    slow: Slow,
    path: str,
    fields: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(answers, "POLL", 0.01)
    with caplog.at_level("INFO"), running(create_app(Service(slow, "direct"))) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/{path}", json={"model": "slow", **fields}, timeout=httpx.Timeout(30, read=0.05)
            )
        wait_for("disconnected", caplog)
        slow.let.set()
    lines = [
        record.getMessage() for record in caplog.records if record.name in ("kcard.serve", "uvicorn.error")
    ]
    assert lines == [f"/v1/{path}: the client disconnected before its answer"]
    assert "Traceback" not in caplog.text


def test_concurrent_questions_get_their_own_answers(slow: Slow) -> None:
    replies: dict[int, str] = {}
    with running(create_app(Service(slow, "direct"))) as url:

        def ask_numbered(number: int) -> None:
            replies[number] = answer(ask(url, f"question {number}", "slow"))

        threads = [threading.Thread(target=ask_numbered, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        slow.let.set()
        for thread in threads:
            thread.join(60)
    assert replies == {number: f"answer to question {number}" for number in range(40)}


def test_what_fails_behind_the_endpoint_is_told_without_secrets(slow: Slow) -> None:
    slow.let.set()
    with running(create_app(Service(slow, "direct"))) as url:
        reply = ask(url, "fails", "slow")
    assert (reply.status_code, error(reply)["code"]) == (502, "llm_error")
    assert "secret" not in reply.text


def test_a_question_that_takes_too_long_and_one_too_many_are_told(slow: Slow) -> None:
    failures: list[int] = []
    with running(create_app(Service(slow, "direct", max_queue=1, timeout=3.0))) as url:

        def count(text: str) -> None:
            failures.append(ask(url, text, "slow").status_code)

        threads = [threading.Thread(target=count, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
            assert slow.begun.wait(30)  # the first is answered, so that the second waits
        for thread in threads:
            thread.join(30)
        assert sorted(failures) == [503, 503, 504, 504]
        slow.let.set()
        # The question whose client gave up leaves the queue when its turn comes.
        deadline = time.monotonic() + 30
        while (reply := ask(url, "after", "slow")).status_code == 503:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert answer(reply) == "answer to after"


def test_a_question_whose_client_left_is_not_answered(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answers, "POLL", 0.02)
    caplog.set_level("INFO")
    with running(create_app(Service(slow, "direct"))) as url:
        first = threading.Thread(target=ask, args=(url, "first", "slow"))
        first.start()
        assert slow.begun.wait(30)
        left = {"model": "slow", "messages": [{"role": "user", "content": "left"}]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/chat/completions", json=left, timeout=httpx.Timeout(30, read=1))
        wait_for("disconnected", caplog)
        slow.let.set()
        first.join(30)
        ask(url, "last", "slow")
    assert slow.answered == ["first", "last"]


# Questions that wait are answered together, oldest first; those whose client has left are not.


class Gated:
    """Answers a batch once it is let through; `batches` are those that began."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.begun, self.let = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, route: str, questions: Sequence[str]) -> Iterator[str]:
        self.batches.append((route, list(questions)))
        self.begun.release()
        assert self.let.acquire(timeout=10)
        for question in questions:
            if question == "fails":
                raise ValueError("no answer")
            yield f"{route}: {question}"


async def begin(
    batcher: Batcher[str, str], gated: Gated, *entries: tuple[str, str]
) -> list["asyncio.Task[str]"]:
    """Ask the first question, and the others once its batch has begun."""
    tasks = [asyncio.create_task(batcher.submit(*entries[0]))]
    await asyncio.to_thread(gated.begun.acquire, timeout=10)
    tasks += [asyncio.create_task(batcher.submit(*one)) for one in entries[1:]]
    await asyncio.sleep(0.01)
    return tasks


def test_what_comes_during_a_batch_is_answered_in_the_next_ones_by_route() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated, most=2)
        tasks = await begin(batcher, gated, ("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("b", "5"))
        for _ in range(9):
            gated.let.release()
        assert await asyncio.gather(*tasks) == ["a: 1", "b: 2", "a: 3", "b: 4", "b: 5"]
        assert gated.batches == [("a", ["1"]), ("b", ["2", "4"]), ("a", ["3"]), ("b", ["5"])]

    asyncio.run(run())


def test_a_failure_reaches_those_who_wait_for_it_and_the_next_batch_is_answered() -> None:
    async def run() -> None:
        gated = Gated()
        batcher: Batcher[str, str] = Batcher(gated)
        first, fails, after = await begin(batcher, gated, ("a", "1"), ("b", "fails"), ("a", "2"))
        gated.let.release(3)
        assert await first == "a: 1"
        with pytest.raises(ValueError, match="no answer"):
            await fails
        assert await after == "a: 2"

    asyncio.run(run())


# Answers are kept for questions that come again.


def test_the_answers_that_were_used_last_are_kept_until_the_cards_change() -> None:
    cache = AnswerCache(2)
    decision = Decision("never", 1.0, False)
    kept = {question: Answer(question, "found", "direct", decision) for question in "abc"}

    def is_kept(version: int, question: str) -> bool:
        stored = cache.get(version, question)
        if stored is None:
            cache.put(version, question, kept[question])
        return stored is kept[question]

    assert [is_kept(1, question) for question in "aabacab"] == [False, True, False, True, False, True, False]
    assert [is_kept(2, question) for question in "bb"] == [False, True]
    assert not is_kept(1, "b")


def test_an_answer_is_not_kept_if_the_cards_change_while_it_is_found(slow: Slow) -> None:
    versions = iter([1, 2, 2, 2, 2])
    slow.version = lambda _llm=None: next(versions)  # type: ignore[method-assign,assignment]
    slow.let.set()
    service = Service(slow, "direct", cache=1)

    async def cached() -> list[bool]:
        return [(await service.answer(Route("direct"), "Who?")).cached for _ in range(3)]

    assert asyncio.run(cached()) == [False, False, True]
