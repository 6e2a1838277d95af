"""The OpenAI-compatible backend, against a scripted server in a process of its own."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from kcard.errors import LLMError, UsageError
from kcard.integrators.assembly import Endpoint, make_llm
from kcard.integrators.pipeline import Pipeline
from kcard.llms.openai_endpoint import OpenAIEndpoint, completions
from kcard.llms.parsing import option_from_tokens
from kcard.llms.prompts import render
from kcard.types import Choice, Example, Question, Reply, Request
from tests.fakes import notes_to

NEED = Request("need", "Who won the senate race in Oregon?")
ANSWER = Request("answer", "Who won the senate race in Oregon?")


def test_yes_is_read_from_token_probabilities(serve: Callable[..., Any]) -> None:
    server = serve({"text": "No", "top": [["No", -0.5108], ["Yes", -0.9163], ["I", -7.0]]})
    reply = OpenAIEndpoint("tiny", url=server.url).reply(NEED)
    assert reply.yes == pytest.approx(0.4, abs=0.01)
    assert reply.text == "No"
    body = server.requests[0]["body"]
    assert body["logprobs"] is True
    assert body["max_tokens"] <= 8
    assert body["model"] == "tiny"
    assert body["temperature"] == 0.1


def test_a_server_that_refuses_probabilities_is_asked_without_from_then_on(
    serve: Callable[..., Any],
) -> None:
    server = serve({"status": 400, "text": "logprobs are not supported"}, {"text": "Yes"})
    llm = OpenAIEndpoint("tiny", url=server.url)
    assert llm.reply(NEED).yes == 1.0
    assert llm.reply(NEED).yes == 1.0
    sent = [{"logprobs", "top_logprobs"} & set(r["body"]) for r in server.requests]
    assert sent == [{"logprobs", "top_logprobs"}, set(), set()]


def test_a_model_that_refuses_the_usual_parameters_is_asked_as_it_wants(serve: Callable[..., Any]) -> None:
    server = serve(
        {"status": 400, "text": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."},
        {"status": 400, "text": "Unsupported value: 'temperature' does not support 0.1"},
        {"text": "Ann"},
    )
    llm = OpenAIEndpoint("thinker", url=server.url)
    assert llm.reply(Request("answer", "Who won?")).text == "Ann"
    last = server.requests[-1]["body"]
    assert len(server.requests) == 3
    assert last["max_completion_tokens"] > 256
    assert not {"max_tokens", "temperature"} & set(last)


def test_an_answer_comes_from_the_rendered_request_and_needs_no_key(serve: Callable[..., Any]) -> None:
    server = serve({"text": " Ron Wyden \n", "usage": [12, 3]})
    llm = OpenAIEndpoint("tiny", url=server.url, key=None)
    reply = llm.reply(Request("answer", "Who won?", ("Ron Wyden won.",)))
    assert reply == Reply("Ron Wyden", None, 12, 3)
    assert server.url in llm.announcement
    assert server.requests[0]["encoding"] == "identity", "no compressed reply is asked for"
    assert server.requests[0]["path"] == "/v1/chat/completions"
    assert server.requests[0]["body"]["messages"][-1]["content"] == (
        "Knowledge: Ron Wyden won.\nQuestion: Who won?\nAnswer:"
    )


def test_the_users_key_is_sent(serve: Callable[..., Any]) -> None:
    server = serve({"text": "x"})
    OpenAIEndpoint("tiny", url=server.url, key="abc").reply(Request("what", "Who won?"))
    assert server.requests[0]["key"] == "Bearer abc"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"status": 401, "text": "bad key"}, "OPENAI_API_KEY"),
        ({"status": 404, "text": "no such model"}, "--llm"),
        ({"status": 429, "text": "slow down"}, "wait and try again"),
        ({"status": 500, "text": "broken"}, "status 500"),
        ({"status": 400, "text": "context too long"}, "context too long"),
        ({"raw": "{not json"}, "OpenAI-compatible URL"),
        ({"raw": "<html>hello</html>", "type": "text/html"}, "OpenAI-compatible URL"),
        ({"raw": "{}"}, "OpenAI-compatible URL"),
        ({"raw": '{"choices": []}'}, "OpenAI-compatible URL"),
        ({"raw": "[1]"}, "OpenAI-compatible URL"),
        ({"raw": '{"choices": null}'}, "OpenAI-compatible URL"),
        ({"raw": '{"choices": [null]}'}, "OpenAI-compatible URL"),
        ({"raw": '{"choices": [{"message": null}]}'}, "OpenAI-compatible URL"),
        ({"raw": "[" * 100_000}, "OpenAI-compatible URL"),
        (
            {"text": "x", "headers": {"Content-Encoding": "gzip"}},
            "its reply is compressed, which was not asked for",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["answer", "need"])
def test_every_failure_is_one_line_with_url_and_remedy(
    serve: Callable[..., Any], step: dict[str, Any], said: str, kind: Any
) -> None:
    server = serve(step)
    with pytest.raises(LLMError) as caught:
        OpenAIEndpoint("tiny", url=server.url, retries=0).reply(Request(kind, "Who won?"))
    assert server.url in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "logprobs", [1, {"content": 1}, {"content": [{"logprob": None, "top_logprobs": None}]}]
)
def test_malformed_scores_of_tokens_cost_no_answer(serve: Callable[..., Any], logprobs: Any) -> None:
    message = {"role": "assistant", "content": "Ann"}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs}
    server = serve({"raw": json.dumps({"choices": [choice], "usage": {"prompt_tokens": "many"}})})
    assert OpenAIEndpoint("tiny", url=server.url, retries=0).reply(ANSWER).text == "Ann"


@pytest.mark.parametrize(
    "step",
    [
        {"raw": "x" * 20_000},
        {"raw": "data: " + "x" * 20_000, "type": "text/event-stream"},
        {"pieces": ["word "] * 1000},
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_without_end_is_given_up_at_its_limit(
    serve: Callable[..., Any], step: dict[str, Any], streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.connections.MAX_REPLY_BYTES", 10_000)
    server = serve({"text": "word " * 4000, **step})
    llm = OpenAIEndpoint("tiny", url=server.url, retries=0)
    with pytest.raises(LLMError, match=r"its reply has more than 10\.0 kB"):
        list(llm.stream(ANSWER)) if streamed else llm.reply(ANSWER)


@pytest.mark.parametrize(
    "chunk", ['{"choices": [null]}', '{"choices": [{"delta": null}]}', "null", "[" * 100_000]
)
def test_a_malformed_chunk_is_one_line(serve: Callable[..., Any], chunk: str) -> None:
    server = serve({"raw": f"data: {chunk}\n\ndata: [DONE]\n\n", "type": "text/event-stream"})
    with pytest.raises(LLMError) as caught:
        list(OpenAIEndpoint("tiny", url=server.url, retries=0).stream(ANSWER))
    assert "\n" not in str(caught.value)


def test_a_stream_whose_connection_is_lost_is_one_line(serve: Callable[..., Any]) -> None:
    server = serve({"pieces": ["William ", "Lassell"], "cut": 1, "headers": {"Content-Length": "100000"}})
    with pytest.raises(LLMError) as caught:
        list(OpenAIEndpoint("tiny", url=server.url, retries=0).stream(ANSWER))
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_passing_failure_is_tried_again_and_told(serve: Callable[..., Any]) -> None:
    server = serve(
        {"status": 503, "text": "starting", "headers": {"Retry-After-Ms": "1"}},
        {"status": 503, "text": "starting", "headers": {"Retry-After-Ms": "1"}},
        {"raw": '{"id": "1"', "cut": 5},
        {"text": "Ann"},
    )
    told: list[str] = []
    llm = OpenAIEndpoint("tiny", url=server.url, on_event=notes_to(told))
    assert llm.reply(ANSWER).text == "Ann"
    assert told == [f"retrying {server.url} ({n} of 5)" for n in (1, 2, 3)]


def test_a_server_that_asks_to_wait_is_waited_for(serve: Callable[..., Any]) -> None:
    server = serve({"status": 429, "text": "slow down", "headers": {"Retry-After": "1"}}, {"text": "Ann"})
    started = time.monotonic()
    assert OpenAIEndpoint("tiny", url=server.url).reply(ANSWER).text == "Ann"
    assert time.monotonic() - started >= 1


def test_a_long_wait_is_told_before_it_begins(serve: Callable[..., Any]) -> None:
    server = serve({"status": 429, "text": "slow down", "headers": {"Retry-After": "30"}})
    told: list[str] = []
    llm = OpenAIEndpoint("tiny", url=server.url, retries=0, on_event=notes_to(told))
    with pytest.raises(LLMError):
        llm.reply(ANSWER)
    assert told == [f"{server.url} is busy (status 429): waiting 30 s, as requested"]


def test_a_slow_try_is_followed_by_another(serve: Callable[..., Any]) -> None:
    server = serve({"text": "late", "delay": 2}, {"text": "Ann"})
    assert OpenAIEndpoint("tiny", url=server.url, timeout=0.5).reply(ANSWER).text == "Ann"


def test_a_refused_key_is_not_tried_again(serve: Callable[..., Any]) -> None:
    server = serve({"status": 401, "text": "bad key"})
    with pytest.raises(LLMError, match="OPENAI_API_KEY"):
        OpenAIEndpoint("tiny", url=server.url).reply(ANSWER)
    assert len(server.requests) == 1


def test_an_answer_is_streamed_as_it_arrives(serve: Callable[..., Any]) -> None:
    server = serve({"pieces": [" ", "Ron", " Wyden", "\n"], "usage": [9, 2]})
    *pieces, reply = OpenAIEndpoint("tiny", url=server.url).stream(ANSWER)
    assert pieces == ["Ron", " Wyden", "\n"]
    assert reply == Reply("Ron Wyden", None, 9, 2)
    assert server.requests[0]["body"]["stream_options"] == {"include_usage": True}


def test_a_stream_that_breaks_off_is_an_error_of_one_line(serve: Callable[..., Any]) -> None:
    server = serve({"pieces": ["Ron", " Wyden"], "cut": 1})
    stream = OpenAIEndpoint("tiny", url=server.url).stream(ANSWER)
    assert next(stream) == "Ron"
    with pytest.raises(LLMError, match="broke off") as caught:
        next(stream)
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_stream_is_asked_for_the_whole(serve: Callable[..., Any]) -> None:
    server = serve(
        {"status": 400, "text": "unknown field stream_options"},
        {"raw": "", "type": "application/json"},
        {"text": "Ann"},
    )
    assert list(OpenAIEndpoint("tiny", url=server.url).stream(ANSWER)) == ["Ann", Reply("Ann")]


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ("This model's maximum context length is 2048 tokens. However, you requested 5000 tokens", 1792),
        ("the request exceeds the available context size (1,024 tokens)", 768),
        ("prompt is too long: 5000 tokens > 400 maximum", 200),
        # vLLM 0.32: vllm/renderers/params.py, entrypoints/serve/utils/api_utils.py, v1/engine/input_processor.py
        (
            "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            "prompt. (parameter=input_tokens, value=513)",
            256,
        ),
        ("Input length (5000) exceeds model's maximum context length (512).", 256),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 512. Make sure that "
            "`max_model_len` is no smaller than the number of text tokens.",
            256,
        ),
        (
            "The decoder prompt (length 512) plus the number of requested output tokens (at least 1) is longer than "
            "the maximum model length of 512. Make sure that `max_model_len` is no smaller than the number of text "
            "tokens (prompt + requested output tokens).",
            256,
        ),
        ("The engine prompt length 512 exceeds the max_model_len 512. Please reduce prompt.", 256),
    ],
)
def test_how_much_the_model_reads_is_learned_from_its_refusal(
    serve: Callable[..., Any], said: str, window: int
) -> None:
    llm = OpenAIEndpoint("tiny", url=serve({"status": 400, "text": said}).url)
    assert llm.window is None
    with pytest.raises(LLMError):
        llm.reply(Request("answer", "word " * 4000))
    assert llm.window == window


@pytest.mark.parametrize("kind", ["answer", "need"])
def test_a_reply_longer_than_the_context_is_asked_for_again_with_half_of_it(
    serve: Callable[..., Any], kind: Any
) -> None:
    refusal = (  # vLLM 0.32, vllm/renderers/params.py
        "max_tokens=256 cannot be greater than max_model_len=128. Please request fewer output tokens. "
        "(parameter=max_tokens, value=256)"
    )
    server = serve({"status": 400, "text": refusal}, {"text": "Yes"})
    llm = OpenAIEndpoint("tiny", url=server.url)
    llm.reply(ANSWER)
    assert [r["body"]["max_tokens"] for r in server.requests] == [256, 64]
    assert llm.window == 64
    llm.reply(Request(kind, "Who won?"))
    sent = server.requests[2]["body"]
    assert sent["max_tokens"] <= 64
    assert "logprobs" in sent


def test_a_draft_keeps_its_probabilities_where_the_model_reads_less_than_it_may_write(
    serve: Callable[..., Any],
) -> None:
    refusal = "max_tokens=10 cannot be greater than max_model_len=8. Please request fewer output tokens."
    server = serve({"status": 400, "text": refusal}, {"text": "Ann"})
    OpenAIEndpoint("tiny", url=server.url).reply(Request("answer", "Who won?", draft=True))
    assert ["logprobs" in r["body"] for r in server.requests] == [True, True]


def test_a_thinking_model_writes_at_most_half_of_its_context(serve: Callable[..., Any]) -> None:
    server = serve(
        {"status": 400, "text": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."},
        {"status": 400, "text": "max_completion_tokens=2304 cannot be greater than max_model_len=2048."},
        {"text": "Ann"},
    )
    assert OpenAIEndpoint("thinker", url=server.url).reply(ANSWER).text == "Ann"
    assert server.requests[-1]["body"]["max_completion_tokens"] == 1024


def test_a_window_that_is_still_too_large_shrinks(serve: Callable[..., Any]) -> None:
    llm = OpenAIEndpoint(
        "tiny", url=serve({"status": 400, "text": "context length exceeded"}).url, window=4096
    )
    request = Request("answer", "word " * 500)
    with pytest.raises(LLMError):
        llm.reply(request)
    assert llm.window == llm.count(request) * 3 // 4


def test_a_slow_server_is_reported_as_such(serve: Callable[..., Any]) -> None:
    server = serve({"text": "late", "delay": 5})
    with pytest.raises(LLMError, match="in time"):
        OpenAIEndpoint("tiny", url=server.url, timeout=0.3, retries=0).reply(Request("answer", "Who won?"))


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
def test_a_server_that_is_down_is_not_tried_again(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    told: list[str] = []
    llm = OpenAIEndpoint("tiny", url="http://127.0.0.1:9/v1", on_event=notes_to(told))
    started = time.monotonic()
    with pytest.raises(LLMError, match="can't be reached: start the server"):
        llm.reply(NEED)
    assert time.monotonic() - started < 0.4  # the shortest wait before another try
    assert told == []


def test_a_server_that_goes_down_is_not_waited_for(serve: Callable[..., Any]) -> None:
    server = serve({"text": "Ann"})
    told: list[str] = []
    llm = OpenAIEndpoint("tiny", url=server.url, on_event=notes_to(told))
    assert llm.reply(ANSWER).text == "Ann"
    server.kill()
    with pytest.raises(LLMError, match="can't be reached"):
        llm.reply(ANSWER)
    assert told == []


def test_openai_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        OpenAIEndpoint("gpt-x")


def test_several_replies_to_a_request_are_drawn_with_seeds_of_their_own(serve: Callable[..., Any]) -> None:
    server = serve({"text": "x"})
    llm = OpenAIEndpoint("tiny", url=server.url)
    for sample in (0, 1, 2):
        llm.reply(Request("recite", "Who won?", sample=sample, temperature=0.7))
    sent = [(request["body"]["temperature"], request["body"].get("seed")) for request in server.requests]
    assert sent == [(0.7, None), (0.7, 1), (0.7, 2)]


# A base model behind /v1/completions continues the plain prompt; options are chosen by the first token.

OPTIONS = (Choice("A", "Ann"), Choice("B", "Ben"))


def log(probability: float) -> float:
    return math.log(probability)


def test_the_prompt_is_the_rendered_text_and_the_reply_its_first_line(serve: Callable[..., Any]) -> None:
    server = serve({"text": " Ann\nQuestion: who lost?\nAnswer: Ben", "usage": [9, 2]})
    request = Request("answer", "who won?", ("Ann won.",), (Example("answer", "who lost?", "Ben"),))
    llm = make_llm("openai-completions:base", 0.0, Endpoint(server.url))
    reply = llm.reply(request)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("Ann", 9, 2)
    (asked,) = server.requests
    assert asked["path"] == "/v1/completions"
    assert asked["body"]["prompt"] == render(request)
    assert "\n\n" in asked["body"]["stop"]
    assert "messages" not in asked["body"]


def test_need_and_drafts_are_read_from_the_log_probabilities(serve: Callable[..., Any]) -> None:
    server = serve({"text": " Yes", "top": [[" Yes", log(0.6)], [" No", log(0.2)]]})
    llm = completions("base", url=server.url)
    assert llm.reply(Request("need", "who won?")).yes == pytest.approx(0.75)
    draft = llm.reply(Request("answer", "who won?", draft=True))
    assert draft.tokens is not None
    assert draft.tokens[0].margin == pytest.approx(0.4)
    assert [request["body"]["logprobs"] for request in server.requests] == [5, 5]


def test_a_stream_is_the_first_line(serve: Callable[..., Any]) -> None:
    server = serve({"pieces": [" Ann", " Lee", "\nQuestion:", " more"], "usage": [9, 4]})
    *pieces, reply = completions("base", url=server.url).stream(Request("answer", "who won?"))
    assert "".join(map(str, pieces)) == "Ann Lee"
    assert reply.text == "Ann Lee"  # type: ignore[union-attr]


@pytest.mark.parametrize("make", [OpenAIEndpoint, completions])
def test_an_option_is_chosen_by_the_probability_of_the_first_token(
    serve: Callable[..., Any], make: Any
) -> None:
    server = serve(
        {"text": "A", "top": [["A", log(0.3)], [" B", log(0.3)], ["b", log(0.1)], ["The", log(0.2)]]}
    )
    (answer,) = Pipeline(mode="direct", llm=make("m", url=server.url))([Question("who won?", OPTIONS)])
    assert (answer.choice, answer.answer) == ("B", "Ben")
    assert answer.confidence == pytest.approx(4 / 7)


@pytest.mark.parametrize(
    ("tokens", "text", "letter"),
    [
        ([("A", log(0.6)), ("B", log(0.3))], "whatever", "A"),
        ([("The", log(0.7)), ("A", log(0.2))], "The answer is B", None),
        ([("The", log(0.7)), ("A", log(0.1)), ("B", log(0.15))], "The one that won", "B"),
        ([("The", log(0.9)), ("A", log(0.01))], "The one that won", None),
        ([], "B", None),
    ],
)
def test_the_text_decides_where_the_first_token_is_about_something_else(
    tokens: list[tuple[str, float]], text: str, letter: str | None
) -> None:
    found = option_from_tokens(tokens, text, OPTIONS)
    assert (found[0] if found else None) == letter


def test_a_reasoning_model_that_is_cut_off_in_its_thoughts_gets_room_to_answer(
    serve: Callable[..., Any],
) -> None:
    thoughts = "<think>Ann or Ben"
    answered = {"text": "<think>Ann or Ben</think>Ann won."}
    whole = serve({"text": thoughts, "finish": "length"}, answered)
    assert OpenAIEndpoint("tiny", url=whole.url).reply(ANSWER).text == "Ann won."
    first, second = (request["body"]["max_tokens"] for request in whole.requests)
    assert second > 4 * first
    cut = {"text": thoughts, "finish": "length"}
    streamed = serve(cut | {"pieces": ["<think>Ann", " or Ben"]}, cut, answered)
    *pieces, reply = OpenAIEndpoint("tiny", url=streamed.url).stream(ANSWER)
    assert (pieces, reply.text) == (["Ann won."], "Ann won.")  # type: ignore[union-attr]
