"""A function from a prompt to a reply as the LLM."""

from collections.abc import Callable

import pytest

import kcard
from kcard.errors import LLMError
from kcard.llms.prompts import NEED, FunctionLLM
from kcard.types import Request

QUESTION = "Who keeps the keys of the depot?"
NEGATED = next(number for number, wording in enumerate(NEED) if not wording.yes_needs)


def always(text: str) -> Callable[[str], str]:
    return lambda _: text


def test_the_function_gets_the_prompt_and_its_text_is_the_reply() -> None:
    prompts: list[str] = []

    def keeper(prompt: str) -> str:
        prompts.append(prompt)
        return "Ada Fischer"

    reply = FunctionLLM(keeper).reply(Request("answer", QUESTION, ("Ada Fischer keeps the keys.",)))
    assert (reply.text, reply.yes) == ("Ada Fischer", None)
    (prompt,) = prompts
    assert QUESTION in prompt
    assert "Ada Fischer keeps the keys." in prompt


@pytest.mark.parametrize(
    ("template", "said", "needs"),
    [(0, "Yes.", 1.0), (0, "no", 0.0), (NEGATED, "Yes.", 0.0), (NEGATED, "No", 1.0), (0, "Who knows?", None)],
)
def test_whether_it_needs_more_is_read_off_its_first_word(
    template: int, said: str, needs: float | None
) -> None:
    reply = FunctionLLM(always(said)).reply(Request("need", QUESTION, template=template))
    assert (reply.text, reply.yes) == (said, needs)


def test_a_reply_that_is_no_text_is_one_clear_line() -> None:
    with pytest.raises(LLMError, match="returned NoneType, not a string: return the reply as a string"):
        FunctionLLM(lambda _: None).reply(Request("answer", QUESTION))  # type: ignore[arg-type, return-value]


def test_what_the_function_raises_goes_through() -> None:
    def broken(prompt: str) -> str:
        raise ZeroDivisionError(prompt[:0])

    with pytest.raises(ZeroDivisionError):
        FunctionLLM(broken).reply(Request("answer", QUESTION))


def test_it_is_announced_by_its_name() -> None:
    def oracle(prompt: str) -> str:
        return prompt

    assert FunctionLLM(oracle).announcement == "LLM: the function oracle"


def test_any_callable_answers_a_question() -> None:
    answer = kcard.ask(QUESTION, mode="direct", llm=lambda prompt: f"{len(prompt.split())} words")
    assert answer.answer.endswith("words")
    assert answer.calls == 1
