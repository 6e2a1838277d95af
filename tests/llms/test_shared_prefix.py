"""Examples that prompts share are read once, and the replies stay the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcard.llms import generation
from kcard.llms.transformers_llm import LocalLLM
from kcard.types import Choice, Example, Reply, Request
from tests.llms.test_local_batches import alike
from tests.llms.test_transformers_llm import TEMPLATE, save

OPTIONS = (Choice("A", "Ann"), Choice("B", "Ben"))
SHOTS = tuple(Example("answer", f"who lost the race of the year {n}?", f"Ben {n}") for n in range(8))
ASKED = [Request("answer", "who won?" + " really" * n, ("Ann won.",) * (n % 3), SHOTS) for n in range(5)]
CHOSEN = [
    Request(
        "answer", f"who won {n}?", (), tuple(replace(s, reply="A", choices=OPTIONS) for s in SHOTS), OPTIONS
    )
    for n in range(3)
]


@pytest.fixture(params=[None, TEMPLATE], ids=["plain", "chat"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save(tmp_path, request.param, positions=2048)
    return tmp_path


def read(llm: LocalLLM) -> list[int]:
    """How many tokens the model reads at a time, from now on."""
    found: list[int] = []

    def note(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        found.append(given["input_ids"].shape[1])

    llm.model.register_forward_pre_hook(note, with_kwargs=True)
    return found


def test_replies_are_those_without_sharing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [*ASKED, *CHOSEN, Request("need", "who won?")]
    shared = list(LocalLLM(str(folder), temperature=0, max_tokens=12).reply_all(requests))
    monkeypatch.setattr(generation.SharedPrefix, "cache", lambda *_: None)
    apart = LocalLLM(str(folder), temperature=0, max_tokens=12)
    alike(shared, [apart.reply(request) for request in requests])
    assert len({reply.text for reply in shared if isinstance(reply, Reply)}) > 1


def test_the_examples_are_read_once(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, max_tokens=1)
    whole = [llm.count(request) for request in ASKED]
    sizes = read(llm)
    for request in ASKED:
        llm.reply(request)
    assert max(sizes[1:]) < min(whole) // 2, "after the first reading only what differs"
    assert sizes[0] > generation.MIN_SHARED_TOKENS
    assert len(sizes) == 1 + len(ASKED)


def test_few_tokens_in_common_are_not_kept(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, max_tokens=1)
    sizes = read(llm)
    llm.reply(Request("answer", "who won?"))
    assert len(sizes) == 1


def test_a_model_without_positions_reads_the_examples_with_each_prompt() -> None:
    class Network:
        class config:  # noqa: N801 - as in transformers
            is_encoder_decoder = False

        def forward(self, input_ids: Any) -> Any:
            return input_ids

    assert generation.SharedPrefix(Network()).cache(range(100), 1) is None
