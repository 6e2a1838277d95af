"""A draft and the scores of its tokens, from each backend."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.gates.uncertainty import Uncertainty
from kcard.llms import transformers_llm
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.llms.generation import Continuation
from kcard.llms.openai_endpoint import OpenAIEndpoint
from kcard.llms.parsing import (
    admits_ignorance,
    from_logits,
    from_top,
    named_option,
    spoken_pieces,
    without_thoughts,
)
from kcard.llms.transformers_llm import LocalLLM
from kcard.types import Choice, Request
from tests.fakes import questions
from tests.llms.test_transformers_llm import TEMPLATE, save

DRAFT = Request("answer", "Who won?", draft=True)


def test_what_the_likeliest_tokens_leave_counts_as_one_more() -> None:
    scores = from_top(math.log(0.6), [math.log(0.6), math.log(0.3)])
    assert scores.log_probability == pytest.approx(math.log(0.6))
    assert scores.margin == pytest.approx(0.3)
    assert scores.entropy == pytest.approx(-sum(p * math.log(p) for p in (0.6, 0.3, 0.1)))


def test_where_only_one_token_is_told_the_rest_is_the_second() -> None:
    assert from_top(math.log(0.7), [math.log(0.7)]).margin == pytest.approx(0.4)
    assert from_top(math.log(0.7), []).margin == pytest.approx(0.4)
    assert from_top(math.log(0.2), [math.log(0.2)]).margin == 0.0


def test_odd_values_of_a_server_give_finite_scores() -> None:
    for scores in (from_top(0.001, [0.001, -9999.0]), from_top(-9999.0, [-0.01, -5.0, -9999.0])):
        assert 0 <= scores.margin <= 1
        assert 0 <= scores.entropy < 1
        assert scores.log_probability <= 0


def test_over_a_whole_vocabulary_the_scores_are_exact() -> None:
    import torch

    mass = torch.tensor([[0.5, 0.25, 0.125, 0.125], [1.0, 0.0, 0.0, 0.0]])
    first, second = from_logits(mass.log(), [1, 0])
    assert first.log_probability == pytest.approx(math.log(0.25))
    assert (first.margin, first.entropy) == pytest.approx((0.25, 1.75 * math.log(2)))
    assert (second.log_probability, second.margin, second.entropy) == pytest.approx((0, 1, 0))


def test_an_endpoint_is_asked_for_a_short_draft_at_temperature_0_and_its_tokens_are_scored(
    serve: Callable[..., Any],
) -> None:
    places = [[["Ann", math.log(0.8)], ["Ben", math.log(0.1)]], [[".", math.log(0.5)], ["!", math.log(0.5)]]]
    server = serve({"text": "Ann.", "tokens": places, "usage": [9, 2]})
    reply = OpenAIEndpoint("tiny", url=server.url, temperature=0.7).reply(DRAFT)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("Ann.", 9, 2)
    assert reply.tokens is not None
    assert [token.margin for token in reply.tokens] == pytest.approx([0.7, 0.0])
    body = server.requests[0]["body"]
    assert (body["temperature"], body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (
        0,
        20,
        True,
        5,
    )


@pytest.mark.parametrize(
    "steps",
    [
        [{"text": "Ann"}],
        [{"status": 400, "text": "logprobs are not supported"}, {"text": "Ann"}],
    ],
)
def test_an_endpoint_without_log_probabilities_is_named_by_the_gate(
    serve: Callable[..., Any], steps: list[dict[str, Any]]
) -> None:
    server = serve(*steps)
    llm = OpenAIEndpoint("tiny", url=server.url)
    with pytest.raises(UsageError, match=f"log-probabilities.*gives none: LLM: tiny at {server.url}"):
        Uncertainty(llm).knows(questions("Who won?"))


UNKNOWN = [
    "I don't know.",
    "I don’t know",
    "I'm sorry, but I don't have that information.",
    "I do not know. The documents don't say.",
    "The documents do not mention who founded it [1].",
    "The documents don't provide information about the price. Therefore, I cannot answer.",
    "The price is not mentioned in the documents.",
    "No information is given.",
    "Unknown",
    "Ich weiß es nicht.",
    "Die Dokumente enthalten dazu keine Angaben.",
    "Je ne sais pas.",
    "No lo sé.",
    "我不知道。",
]
KNOWN = [
    "",
    "No.",
    "No, it is not allowed.",
    "There is no limit.",
    "Unknown options are ignored.",
    "I don't know who, but the fee is 3 euros [1].",
    "The documents do not mention a price. The fee is 3 euros [2].",
    "SQLite does not mention names in its errors.",
    "Information is not sent to the server.",
    "It prints 'I don't know this host'.",
]


@pytest.mark.parametrize(("reply", "is_unknown"), [(r, True) for r in UNKNOWN] + [(r, False) for r in KNOWN])
def test_a_reply_that_the_answer_is_not_known_is_understood(reply: str, is_unknown: bool) -> None:
    assert admits_ignorance(reply) == is_unknown


@pytest.mark.parametrize(
    ("pieces", "spoken"),
    [
        (["<thi", "nk>Paris? No.</think>", "\n\nLon", "don"], "London"),
        (["<think>Hm.</think>London"], "London"),
        (["Hm. London it is.", "</think>", "London"], "Hm. London it is.</think>London"),
        (["<think>still thinking"], ""),
        (["<b>", "London"], "<b>London"),
        (["Lon", "don"], "London"),
        (["<", "3"], "<3"),
    ],
)
def test_what_a_reasoning_model_thinks_is_not_streamed(pieces: list[str], spoken: str) -> None:
    assert "".join(spoken_pieces(pieces)) == spoken


def test_thoughts_are_no_answer_also_where_the_prompt_has_opened_them() -> None:
    assert without_thoughts("<think>Paris?</think>\nLondon") == "London"
    assert without_thoughts("Paris? No.</think>\nLondon") == "London"
    assert without_thoughts("<think>Paris?") == ""
    assert without_thoughts("London") == "London"


def test_a_local_model_scores_the_tokens_of_its_likeliest_draft(tmp_path: Path) -> None:
    import torch

    save(tmp_path, TEMPLATE)
    llm = LocalLLM(str(tmp_path), temperature=1.0)
    reply = llm.reply(DRAFT)
    assert reply.tokens is not None
    assert 1 <= len(reply.tokens) <= 20
    assert len(reply.tokens) == reply.tokens_out
    assert llm.reply(DRAFT) == reply, "greedy, whatever the temperature"
    row = llm.prompts.encoded(DRAFT)
    with torch.inference_mode():
        mass = torch.softmax(llm.model(input_ids=torch.tensor([row])).logits[0, -1].double(), -1)
    top = mass.topk(2).values
    first = reply.tokens[0]
    assert first.log_probability == pytest.approx(float(top[0].log()), abs=1e-4)
    assert first.margin == pytest.approx(float(top[0] - top[1]), abs=1e-5)
    assert first.entropy == pytest.approx(float(-(mass * mass.log()).sum()), abs=1e-4)
    assert 0 <= Uncertainty(llm).knows(questions("Who won?"))[0] <= 1


@pytest.mark.parametrize(
    ("words", "count", "text"),
    [(["\n", "A", "n", "\n", "B"], 4, "An"), (["\n", "A", "n"], 3, "An"), ([], 0, "")],
)
def test_a_model_that_only_continues_text_is_scored_up_to_its_first_line(
    words: list[str], count: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    save(tmp_path, None)
    llm = LocalLLM(str(tmp_path), temperature=0)
    ids = [llm.prompts.tokenizer(word, add_special_tokens=False).input_ids[0] for word in words]
    continuation = Continuation(ids, torch.zeros(len(ids), 300))
    monkeypatch.setattr(transformers_llm, "generate", lambda *_, **__: [continuation])
    reply = llm.reply(DRAFT)
    assert (reply.text, len(reply.tokens or ())) == (text, count)


def test_a_grounded_answer_keeps_its_lines_without_blank_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    save(tmp_path, TEMPLATE)
    llm = LocalLLM(str(tmp_path), temperature=0)
    ids = llm.prompts.tokenizer("A\n\n n", add_special_tokens=False).input_ids
    continuation = Continuation(ids, torch.zeros(len(ids), 300))
    monkeypatch.setattr(transformers_llm, "generate", lambda *_, **__: [continuation])
    assert llm.reply(Request("answer", "Who won?", ("Ann won.",), grounded=True)).text == "A\nn"
    assert llm.reply(Request("answer", "Who won?", ("Ann won.",))).text == "A n"


def test_the_embedded_llm_drafts_what_it_remembers_token_by_token() -> None:
    reply = EmbeddedLLM().reply(Request("answer", "What is the capital of France?", draft=True))
    assert reply.text == "Paris"
    assert reply.tokens is not None
    assert all(token.margin > 0.8 and token.entropy < 1 for token in reply.tokens)
    strange = EmbeddedLLM().reply(Request("answer", "Who repaired the third bridge at Lund?", draft=True))
    assert strange.tokens is not None
    assert min(token.margin for token in strange.tokens) < 0.8


def test_the_embedded_llm_drafts_from_knowledge_where_there_is_some() -> None:
    request = Request("answer", "Who built it?", ("Halden & Co built it in 1871.",))
    llm = EmbeddedLLM()
    assert llm.reply(replace(request, draft=True)) == llm.reply(request)


# A reply's option is read from letter or text in the forms that LLMs use; a reply that names none is None.

PEOPLE = (
    Choice("A", "Jan McDowell"),
    Choice("B", "Beth Van Duyne"),
    Choice("C", "Ron Wyden"),
    Choice("D", "Wyden Hill"),
)


@pytest.mark.parametrize(
    "reply",
    [
        "B",
        "b",
        "(B)",
        "B.",
        "b)",
        " B\n",
        "**B**",
        "B. Beth Van Duyne",
        "(B) Beth Van Duyne",
        "B: Beth",
        "B - Beth Van Duyne",
        "B Beth Van Duyne",
        "B\n\nShe won in 2022.",
        "The answer is B.",
        "The correct answer is (B), not A.",
        "Answer: B",
        "I think it is option B because she won.",
        r"\boxed{B}",
        "Beth Van Duyne",
        "beth van duyne!",
        "It was Beth Van Duyne who won.",
        "Van Duyne",
        "First I thought of A. So the answer is B",
    ],
)
def test_a_letter_or_an_options_text_names_it(reply: str) -> None:
    assert named_option(reply, PEOPLE) == "B"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I don't know.",
        "A woman won.",
        "The answer is a matter of taste",
        "The answer is A man from Texas",
        "Neither of them",
        "Jan McDowell or Beth Van Duyne",
        "Wyden",
        "E",
        "(A) or (B)",
    ],
)
def test_a_reply_that_names_none_or_several_is_no_choice(reply: str) -> None:
    assert named_option(reply, PEOPLE) is None


NEW_YORK = (Choice("A", "New York"), Choice("B", "New York City"), Choice("C", "York"))
SIGNS = (Choice("A", "5"), Choice("B", "-5"), Choice("C", "x = 5"))
FIGURES = (Choice("1", "red"), Choice("10", "blue"))
YES_NO = (Choice("A", "Yes, it is"), Choice("B", "No, it never was"))


@pytest.mark.parametrize(
    ("options", "reply", "name"),
    [
        (NEW_YORK, "It is in New York City.", "B"),
        (NEW_YORK, "York", "C"),
        (SIGNS, "-5", "B"),
        (SIGNS, "5", "A"),
        (FIGURES, "10", "10"),
        (FIGURES, "Option 1", "1"),
        (YES_NO, "No", "B"),
    ],
)
def test_options_that_are_part_of_each_other_or_differ_in_signs_are_told_apart(
    options: tuple[Choice, ...], reply: str, name: str
) -> None:
    assert named_option(reply, options) == name
