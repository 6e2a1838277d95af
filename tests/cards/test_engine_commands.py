"""`--engine` of the commands, on cards in the hub and a fake server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcard
from kcard.cards.card import Card
from kcard.cards.models.vllm_engines import adapter_name
from kcard.errors import UsageError
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from tests.cards.served_cards import QUESTIONS, adapter, llama
from tests.cards.vllm_fake import FakeVLLM, served
from tests.command import Kcard


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    made = Hub(home)
    base = llama(tmp_path / "base")
    made.publish(adapter(tmp_path / "rivers", base, "rivers", 1).folder)
    made.publish(adapter(tmp_path / "seas", llama(tmp_path / "other", seed=5), "seas", 2).folder)
    return made


@pytest.fixture
def fake(tmp_path: Path, hub: Hub) -> FakeVLLM:
    del hub
    return FakeVLLM(tmp_path / "base")


@pytest.fixture
def engine(fake: FakeVLLM) -> Iterator[str]:
    with served(fake) as url:
        yield f"vllm={url}"


def test_ask_has_documents_written_by_the_server_and_says_so(
    hub: Hub, fake: FakeVLLM, engine: str, kcard: Kcard
) -> None:
    found = kcard("ask", QUESTIONS[0], "--cards", "rivers", "--engine", engine, "--json")
    assert found.code == 0, found.err
    assert f"sent to {engine.removeprefix('vllm=')}" in found.err
    name = adapter_name(Card.open(hub.folder("rivers")))
    assert {body["model"] for body in fake.written} == {name}
    assert json.loads(found.out)["passages"][0]["card"] == "rivers"


def test_the_setting_holds_where_no_flag_is_given(
    hub: Hub, fake: FakeVLLM, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_ENGINE", engine)
    kcard.ask(QUESTIONS[0], hub=hub, cards="rivers")
    assert fake.written
    count = len(fake.requests)
    kcard.ask(QUESTIONS[0], hub=hub, cards="rivers", engine=())
    assert len(fake.requests) == count


def test_an_audit_judges_what_the_server_wrote(hub: Hub, fake: FakeVLLM, engine: str, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(QUESTIONS), encoding="utf-8")
    audit = kcard.audit("rivers", queries=queries, documents=2, engine=[engine], hub=hub)
    assert audit.documents == 2
    assert len(fake.written) == 2 * len(QUESTIONS)


def test_pool_show_tells_who_writes_for_each_card(hub: Hub, engine: str, kcard: Kcard) -> None:
    hub.pools.create("waters", ["rivers", "seas"])
    found = kcard("pool", "show", "waters", "--engine", engine)
    rivers, seas = found.out.splitlines()
    name = adapter_name(Card.open(hub.folder("rivers")))
    assert rivers.endswith(f"[{engine.removeprefix('vllm=')}: {name}]")
    assert "[kcard: no server has its base" in seas


@pytest.mark.parametrize(
    "spec", ["http://127.0.0.1:8000", "sglang=http://127.0.0.1:1", "vllm=8000", "vllm=ftp://a"]
)
def test_an_engine_of_another_form_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match=f"engine '{spec}' is unknown: give vllm=URL"):
        AskOptions(engine=[spec])
