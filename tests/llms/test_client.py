"""What a question costs is counted; what the LLM said is not asked for twice; odd replies are told."""

import time
from collections.abc import Iterator

import pytest

from kcard.errors import LLMError
from kcard.interfaces import LLM
from kcard.llms.client import LLMClient, fit
from kcard.types import Choice, Example, Kind, Reply, Request
from tests.fakes import questions


class Says(LLM):
    """An LLM that replies with these in turn; an error among them is raised."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def test_calls_tokens_and_seconds_are_counted_by_question() -> None:
    llm = LLMClient(Says(Reply("No", 0.0, 5, 1), Reply("Ann", None, 20, 2), Reply("Ben", None, 7, 1)))
    a, b = questions("a", "b")
    for request in (a.request("need"), a.request("answer"), b.request("answer")):
        llm.reply(request)
    usage = a.trace.usage
    assert (len(a.trace.calls), usage.tokens_in, usage.tokens_out) == (2, 25, 3)
    assert 0 <= usage.llm_seconds < 1
    assert len(b.trace.calls) == 1


def test_tokens_are_unknown_where_one_reply_does_not_tell_them() -> None:
    llm = LLMClient(Says(Reply("No", 0.0, 5, 1), Reply("Ann")))
    (a,) = questions("a")
    llm.reply(a.request("need"))
    llm.reply(a.request("answer"))
    assert (a.trace.usage.tokens_in, a.trace.usage.tokens_out) == (None, None)


def test_after_a_failure_only_what_failed_is_asked_again() -> None:
    told = Says(Reply("Yes", 1.0), LLMError("down"), Reply("Ann"))
    llm = LLMClient(told)
    (a,) = questions("a")
    need, answer = a.request("need"), a.request("answer")
    llm.reply(need)
    with pytest.raises(LLMError):
        llm.reply(answer)
    assert llm.reply(need).yes == 1.0
    assert llm.reply(answer).text == "Ann"
    assert told.requests == [need, answer, answer]
    assert [call.error for call in a.trace.calls] == ["", "down", ""]


@pytest.mark.parametrize(
    ("kind", "reply", "said"),
    [
        ("need", Reply("Well, hm"), "'Well, hm', neither yes nor no"),
        ("need", Reply(""), "neither yes nor no"),
        ("answer", Reply(" "), "answer is empty"),
    ],
)
def test_a_reply_that_says_nothing_is_told(kind: Kind, reply: Reply, said: str) -> None:
    (q,) = questions("q")
    LLMClient(Says(reply)).reply(q.request(kind))
    assert said in q.trace.notes[0]


class Learning(LLM):
    """Its window is known after the first refusal, as of an endpoint."""

    def __init__(self, window: int) -> None:
        self.window: int | None = None
        self._size = window

    def count(self, request: Request) -> int:
        return len(request.question.split()) + sum(len(text.split()) for text in request.knowledge)

    def reply(self, request: Request) -> Reply:
        if self.count(request) > self._size:
            self.window = self._size if self.window is None else self.window * 3 // 4
            raise LLMError("too long")
        return Reply(f"{len(request.knowledge)} passages")

    def stream(self, request: Request) -> Iterator[str | Reply]:
        reply = self.reply(request)
        yield from (reply.text, reply)


def test_a_refusal_that_tells_the_window_is_followed_by_a_request_that_fits() -> None:
    for stream in (False, True):
        llm, (q,) = LLMClient(Learning(5)), questions("q")
        request = q.request("answer", ("a b c", "d e f", "g"))
        *_, reply = llm.stream(request) if stream else [llm.reply(request)]
        assert reply == Reply("1 passages")
        assert len(q.trace.calls) == 2
        assert "2 of 3 passages" in q.trace.notes[0]


def test_a_window_that_nothing_fits_ends_in_the_error() -> None:
    with pytest.raises(LLMError, match="too long"):
        LLMClient(Learning(0)).reply(Request("answer", "q", ("a b c",)))


def test_notes_stand_in_the_order_of_the_requests_whichever_ends_first() -> None:
    class Later(LLM):
        def reply(self, request: Request) -> Reply:
            time.sleep(0.02 * (3 - request.sample))
            return Reply("x", remark=f"remark {request.sample}")

    llm, (q,) = LLMClient(Later(), 4), questions("q")
    assert len(list(llm.reply_all([q.request("recite", sample=n) for n in range(4)]))) == 4
    assert q.trace.notes == tuple(f"remark {n}" for n in range(4))


def test_after_many_failures_in_a_row_nothing_more_is_asked() -> None:
    llm = Says(Reply("yes"), *[LLMError("down")] * 100)
    replies = list(LLMClient(llm).reply_all([Request("answer", f"q{n}") for n in range(101)]))
    assert len(llm.requests) == 1 + 64
    assert len(replies) == 101
    assert str(replies[64]) == "down"
    assert str(replies[65]) == "skipped after 64 consecutive failures; last error: down"


def test_failures_that_are_not_in_a_row_keep_nobody_from_asking() -> None:
    replied: list[Reply | Exception] = [LLMError("odd"), Reply("yes")]
    llm = Says(*replied * 100)
    replies = list(LLMClient(llm).reply_all([Request("answer", f"q{n}") for n in range(200)]))
    assert [isinstance(reply, Reply) for reply in replies] == [False, True] * 100


# What does not fit into the LLM's window is cut, the least relevant first, and the user is told.

SHOWN = Example("answer", "one two", "three")


class Words(LLM):
    """An LLM that reads so many words; the embedded reader's like where knowledge is free."""

    def __init__(self, window: int | None, free: bool = False) -> None:
        self.window = window
        self.free = free

    def reply(self, request: Request) -> Reply:
        return Reply(request.question)

    def count(self, request: Request) -> int:
        shown = [e.question for e in request.examples] + [c.description for c in request.choices]
        texts = [request.question, *shown, *(() if self.free else request.knowledge)]
        return sum(len(text.split()) for text in texts)


class Unlimited(LLM):
    def reply(self, request: Request) -> Reply:
        return Reply(request.question)


def test_what_fits_is_left_alone() -> None:
    request = Request("answer", "a b", ("c d",), (SHOWN,))
    assert fit(request, Words(6)) == (request, None)
    assert fit(request, Words(None)) == (request, None)
    assert fit(request, Unlimited()) == (request, None)


SHOTS = tuple(Example("answer", f"shot {i}", "Ann") for i in range(5))
NEED = Example("need", "who won", "No")
CARDS = tuple(Choice(f"c{i}", "two words") for i in range(5))


@pytest.mark.parametrize(
    ("request_", "window", "expected", "said"),
    [
        (
            Request("answer", "a b", ("c d",), (SHOWN,)),
            5,
            Request("answer", "a b", ("c d",)),
            "the LLM reads 5 tokens at most; left out: 1 of 1 in-context examples",
        ),
        (
            Request("answer", "a b", ("c d",), (*SHOTS, NEED)),
            8,
            Request("answer", "a b", ("c d",), SHOTS[3:]),
            "left out: 3 of 5 in-context examples",
        ),
        (Request("answer", "a b", (), (NEED,)), 3, Request("answer", "a b"), None),
        (
            Request("answer", "a b", ("c d", "e f g", "h")),
            7,
            Request("answer", "a b", ("c d", "e f g")),
            "1 of 3 passages",
        ),
        (
            Request("answer", "a b", ("c d e f g h", "i")),
            5,
            Request("answer", "a b", ("c d e",)),
            "1 of 2 passages and the end of the most relevant passage",
        ),
        (
            Request("choose", "q", choices=CARDS),
            5,
            Request("choose", "q", choices=CARDS[:2]),
            "3 of 5 cards to choose from",
        ),
    ],
)
def test_examples_go_first_then_the_last_passages_or_cards_and_the_user_is_told(
    request_: Request, window: int, expected: Request, said: str | None
) -> None:
    found, note = fit(request_, Words(window))
    assert found == expected
    assert (said or "None") in str(note)


def test_a_question_that_is_too_long_leaves_half_of_the_window_to_knowledge() -> None:
    found, note = fit(Request("answer", "q " * 50000, ("a b c", "d e f")), Words(8))
    assert found.question.split() == ["q"] * 4
    assert found.knowledge == ("a b c",)
    assert "the question after its first 7 characters" in str(note)


def test_knowledge_that_takes_no_room_is_not_cut() -> None:
    found, note = fit(Request("answer", "q " * 100, ("a " * 100,)), Words(8, free=True))
    assert (len(found.question.split()), len(found.knowledge[0].split())) == (8, 100)
    assert "passage" not in str(note)


def test_options_of_a_question_are_never_cut() -> None:
    assert fit(Request("answer", "q", choices=CARDS), Words(5))[0].choices == CARDS


def test_a_text_without_blanks_is_cut_all_the_same() -> None:
    class Characters(Words):
        def count(self, request: Request) -> int:
            return len(request.question)

    found, _ = fit(Request("answer", "問" * 1000), Characters(10))
    assert found.question == "問" * 10
