"""A base model behind /v1/completions continues the plain prompt; options are chosen by the first token."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from kcard.errors import LLMError
from kcard.integrators.assembly import Endpoint, make_llm
from kcard.integrators.pipeline import Pipeline
from kcard.llms.openai_endpoint import OpenAIEndpoint, completions
from kcard.llms.parsing import option_from_tokens
from kcard.llms.prompts import render
from kcard.types import Choice, Example, Question, Request

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


def test_what_is_no_completion_is_an_error(serve: Callable[..., Any]) -> None:
    server = serve({"raw": '{"choices": []}'})
    with pytest.raises(LLMError, match="OpenAI-compatible"):
        completions("base", url=server.url).reply(Request("answer", "who won?"))


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


def test_without_log_probabilities_the_letter_is_read_from_the_reply(serve: Callable[..., Any]) -> None:
    server = serve({"status": 400, "text": "logprobs is not supported"}, {"text": "(B) Ben"})
    (answer,) = Pipeline(mode="direct", llm=OpenAIEndpoint("m", url=server.url))(
        [Question("who won?", OPTIONS)]
    )
    assert (answer.choice, answer.confidence) == ("B", None)
    assert "logprobs" not in server.requests[1]["body"]
    assert "top_logprobs" not in server.requests[1]["body"]


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
