"""A batch of prompts gives what each gives alone, in float32; options are chosen by their probability."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.errors import LLMError
from kcard.llms.generation import common_prefix
from kcard.llms.transformers_llm import LocalLLM
from kcard.types import Choice, Example, Reply, Request
from tests.llms.test_transformers_llm import TEMPLATE, save

pytestmark = pytest.mark.numeric

OPTIONS = (Choice("A", "Ann"), Choice("B", "Ben"), Choice("C", "Cal"))
SHOTS = tuple(Example("answer", f"who lost {n}?", f"Ben {n}") for n in range(4))
OPEN = [
    Request("answer", "who won?" + " really" * n, ("Ann won. " * n,) if n % 2 else (), SHOTS[: n % 5])
    for n in range(7)
]
MIXED = [
    Request("need", "who won?"),
    OPEN[3],
    Request("answer", "who won the race?", choices=OPTIONS),
    Request("answer", "who won?", draft=True),
    Request("need", "who won the very long race?", ("Ann won.",)),
    Request("what", "who won?"),
    Request("answer", "who lost?", ("Ann won.",), choices=OPTIONS[:2]),
    Request("answer", "which?", choices=(Choice("1", "one"), Choice("10", "ten"))),
]


@pytest.fixture(scope="module", params=[None, TEMPLATE], ids=["plain", "chat"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    save(path, request.param)
    return path


def alike(batch: Sequence[Reply | LLMError], single: Sequence[Reply]) -> None:
    """Texts and counts are equal, probabilities as near as rounding allows."""
    for one, other in zip(batch, single, strict=True):
        assert isinstance(one, Reply)
        plain = {"yes": None, "confidence": None, "tokens": None, "shares": None}
        assert replace(one, **plain) == replace(other, **plain)  # type: ignore[arg-type]
        assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
        assert one.shares == (None if other.shares is None else pytest.approx(other.shares, abs=1e-5))
        assert one.yes == pytest.approx(other.yes, abs=1e-5)
        for mine, its in zip(one.tokens or (), other.tokens or (), strict=True):
            assert mine.log_probability == pytest.approx(its.log_probability, abs=1e-4)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_batch_says_what_each_prompt_would_get_alone(folder: Path, temperature: float) -> None:
    llm = LocalLLM(str(folder), temperature=temperature, max_tokens=24)
    alike(list(llm.reply_all(OPEN)), [llm.reply(request) for request in OPEN])
    assert len({llm.reply(request).text for request in OPEN}) > 1


def test_requests_of_all_kinds_may_share_a_batch(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, max_tokens=12)
    alike(list(llm.reply_all(MIXED)), [llm.reply(request) for request in MIXED])


def test_samples_of_one_request_differ_also_within_a_batch(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=1.0, max_tokens=12)
    requests = [replace(OPEN[1], sample=n) for n in range(4)]
    batch = list(llm.reply_all(requests))
    assert len({reply.text for reply in batch if isinstance(reply, Reply)}) > 1
    alike(batch, [llm.reply(request) for request in requests])


def test_a_prompt_that_does_not_fit_costs_the_others_of_its_batch_nothing(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, max_tokens=12)
    long = Request("answer", "who won?", ("Ann won the race. " * 300,))
    first, second, third = llm.reply_all([OPEN[0], long, OPEN[1]])
    assert isinstance(second, LLMError)
    alike([first, third], [llm.reply(OPEN[0]), llm.reply(OPEN[1])])


def test_the_option_is_the_likeliest_letter_and_its_confidence_its_share(folder: Path) -> None:
    import torch

    llm = LocalLLM(str(folder), temperature=0.9)
    request = Request("answer", "who won?", ("Ann won.",), choices=OPTIONS)
    reply = llm.reply(request)
    row, blank = llm.prompts.encoded(request), "" if llm.prompts.tokenizer.chat_template else " "
    letters = [llm.prompts.tokenizer(blank + c.name, add_special_tokens=False).input_ids for c in OPTIONS]
    with torch.inference_mode():
        rows = [torch.tensor([[*row, *letter]]) for letter in letters]
        logs = [llm.model(input_ids=ids).logits[0].log_softmax(-1) for ids in rows]
    scores = torch.tensor([
        sum(float(log[len(row) - 1 + n, token]) for n, token in enumerate(letter))
        for log, letter in zip(logs, letters, strict=True)
    ])  # fmt: skip
    assert reply.choice == reply.text == OPTIONS[int(scores.argmax())].name
    assert reply.confidence == pytest.approx(float(scores.softmax(-1).max()), abs=1e-5)
    assert reply == llm.reply(request), "the same at any temperature"


@pytest.mark.parametrize(
    ("rows", "count"), [([[1, 2, 3], [1, 2, 4]], 2), ([[1, 2], [1, 2, 3]], 1), ([[5], [6]], 0)]
)
def test_the_common_beginning_leaves_each_row_a_token(rows: list[list[int]], count: int) -> None:
    assert common_prefix(rows) == count
