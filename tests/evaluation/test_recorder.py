"""Every request to the LLM is recorded once, with the question that it was made for."""

from collections.abc import Iterator, Sequence

import pytest

from kcard.errors import LLMError
from kcard.evaluation.runs.runner import Recorder
from kcard.interfaces import Batching, Streaming, Windowed
from kcard.types import Reply, Request


class Echo:
    """Replies with the question; to "fail", with an error."""

    def reply(self, request: Request) -> Reply:
        if request.question == "fail":
            raise LLMError("the endpoint is down")
        return Reply(request.question.upper(), tokens_in=3, tokens_out=1)


class Narrow(Echo):
    window = 8

    def count(self, request: Request) -> int:
        return len(request.question)


class Batched(Echo):
    concurrency = 3

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        for request in requests:
            try:
                yield self.reply(request)
            except LLMError as error:
                yield error


def test_a_call_holds_prompt_reply_and_tokens() -> None:
    recorder = Recorder(Echo())
    assert recorder.reply(Request("answer", "who?")).text == "WHO?"
    (call,) = recorder.collect("who?")
    assert (call.kind, call.reply, call.tokens_in, call.tokens_out, call.error) == (
        "answer",
        "WHO?",
        3,
        1,
        "",
    )
    assert "Question: who?" in call.prompt
    assert recorder.collect("who?") == ()


def test_a_failed_request_is_recorded_with_its_error() -> None:
    recorder = Recorder(Echo())
    with pytest.raises(LLMError):
        recorder.reply(Request("answer", "fail"))
    assert [call.error for call in recorder.collect("fail")] == ["the endpoint is down"]


def test_requests_for_later_questions_stay_until_those_are_collected() -> None:
    recorder = Recorder(Echo())
    for kind, question in (("need", "one"), ("need", "two"), ("answer", "one"), ("answer", "two")):
        recorder.reply(Request(kind, question))  # type: ignore[arg-type]
    assert [call.kind for call in recorder.collect("one", ["two"])] == ["need", "answer"]
    assert [call.kind for call in recorder.collect("two")] == ["need", "answer"]


def test_a_request_whose_question_was_cut_belongs_to_the_whole_one() -> None:
    recorder = Recorder(Echo())
    recorder.reply(Request("answer", "a long"))
    assert recorder.collect("another", ["a long question"]) == ()
    assert len(recorder.collect("a long question")) == 1


def test_a_request_with_a_text_of_its_own_belongs_to_the_question_in_turn() -> None:
    recorder = Recorder(Echo())
    recorder.reply(Request("knowledge", "something else"))
    assert len(recorder.collect("one", ["two"])) == 1


def test_the_window_is_that_of_the_llm() -> None:
    wide, narrow = Recorder(Echo()), Recorder(Narrow())
    assert wide.window is None
    assert (narrow.window, narrow.count(Request("answer", "four"))) == (8, 4)
    assert isinstance(narrow, Windowed)
    assert not isinstance(narrow, Streaming)


def test_an_llm_that_takes_batches_still_does_and_each_request_is_recorded() -> None:
    recorder = Recorder(Batched())
    assert isinstance(recorder, Batching)
    assert not isinstance(Recorder(Echo()), Batching)
    assert (recorder.concurrency, Recorder(Echo()).concurrency) == (3, 1)
    replies = list(recorder.reply_all([Request("answer", "one"), Request("answer", "fail")]))
    assert [isinstance(reply, Reply) for reply in replies] == [True, False]
    assert [call.reply for call in recorder.collect("one", ["fail"])] == ["ONE"]
    assert [call.error for call in recorder.collect("fail")] == ["the endpoint is down"]
