"""What does not fit into the LLM's window is cut, the least relevant first, and the user is told."""

from kcard.llms.client import fit
from kcard.types import Choice, Example, Reply, Request

SHOWN = Example("answer", "one two", "three")


class Words:
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


class Unlimited:
    def reply(self, request: Request) -> Reply:
        return Reply(request.question)


def test_what_fits_is_left_alone() -> None:
    request = Request("answer", "a b", ("c d",), (SHOWN,))
    assert fit(request, Words(6)) == (request, None)
    assert fit(request, Words(None)) == (request, None)
    assert fit(request, Unlimited()) == (request, None)


def test_examples_go_before_knowledge() -> None:
    found, note = fit(Request("answer", "a b", ("c d",), (SHOWN,)), Words(5))
    assert found == Request("answer", "a b", ("c d",))
    assert note == "the LLM reads 5 tokens at most; left out: 1 of 1 in-context examples"


def test_examples_go_one_by_one_the_first_first() -> None:
    shots = tuple(Example("answer", f"shot {i}", "Ann") for i in range(5))
    found, note = fit(
        Request("answer", "a b", ("c d",), (*shots, Example("need", "who won", "No"))), Words(8)
    )
    assert found == Request("answer", "a b", ("c d",), shots[3:])
    assert "left out: 3 of 5 in-context examples" in str(note)


def test_examples_of_other_kinds_are_not_said_to_be_left_out() -> None:
    found, note = fit(Request("answer", "a b", (), (Example("need", "who won", "No"),)), Words(3))
    assert (found, note) == (Request("answer", "a b"), None)


def test_the_last_passages_go_first() -> None:
    found, note = fit(Request("answer", "a b", ("c d", "e f g", "h")), Words(7))
    assert found.knowledge == ("c d", "e f g")
    assert "1 of 3 passages" in str(note)


def test_of_a_passage_that_is_too_long_the_beginning_is_read() -> None:
    found, note = fit(Request("answer", "a b", ("c d e f g h", "i")), Words(5))
    assert found.knowledge == ("c d e",)
    assert "1 of 2 passages and the end of the most relevant passage" in str(note)


def test_a_question_that_is_too_long_leaves_half_of_the_window_to_knowledge() -> None:
    found, note = fit(Request("answer", "q " * 50000, ("a b c", "d e f")), Words(8))
    assert found.question.split() == ["q"] * 4
    assert found.knowledge == ("a b c",)
    assert "the question after its first 7 characters" in str(note)


def test_a_question_without_knowledge_has_the_whole_window() -> None:
    found, _ = fit(Request("answer", "q " * 100), Words(8))
    assert found.question.split() == ["q"] * 8


def test_knowledge_that_takes_no_room_is_not_cut() -> None:
    found, note = fit(Request("answer", "q " * 100, ("a " * 100,)), Words(8, free=True))
    assert (len(found.question.split()), len(found.knowledge[0].split())) == (8, 100)
    assert "passage" not in str(note)


def test_cards_to_choose_from_are_cut_but_options_of_a_question_never() -> None:
    choices = tuple(Choice(f"c{i}", "two words") for i in range(5))
    found, note = fit(Request("choose", "q", choices=choices), Words(5))
    assert found.choices == choices[:2]
    assert "3 of 5 cards to choose from" in str(note)
    assert fit(Request("answer", "q", choices=choices), Words(5))[0].choices == choices


def test_a_text_without_blanks_is_cut_all_the_same() -> None:
    class Characters(Words):
        def count(self, request: Request) -> int:
            return len(request.question)

    found, _ = fit(Request("answer", "問" * 1000), Characters(10))
    assert found.question == "問" * 10
