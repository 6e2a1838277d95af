"""Cards on vLLM servers: the protocol, with a fake that speaks it (vllm_fake.py). Real ones: test_vllm_backend.py."""

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcard as library
from kcard.cards.card import Card
from kcard.cards.models import vllm_backend, vllm_server
from kcard.cards.models.loader import Loader
from kcard.cards.models.vllm_engines import Engines, adapter_name
from kcard.cards.pool import CardPool
from kcard.errors import CardError, LLMError, ModelUnavailable, UsageError
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.manifest import seal
from kcard.types import Sampling
from tests.cards.served_cards import QUESTIONS, adapter, llama, texts, whole, zeroed
from tests.cards.vllm_fake import FakeVLLM, served
from tests.command import Kcard

GREEDY = Sampling(temperature=0, tokens=12)
SAMPLED = Sampling(temperature=0.8, tokens=12, top_k=7, seed=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def cards(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    folder = tmp_path_factory.mktemp("cards")
    return [adapter(folder / f"c{number}", base, f"rivers.{number}", number) for number in range(4)]


@pytest.fixture
def fake(base: Path) -> FakeVLLM:
    return FakeVLLM(base)


@pytest.fixture
def url(fake: FakeVLLM) -> Iterator[str]:
    with served(fake) as found:
        yield found


WRITTEN: dict[str, list[list[str]]] = {}


def own_texts(cards: list[Card]) -> list[list[str]]:
    """What the cards write greedily with kcard's own engine."""
    key = str([card.folder for card in cards])
    if key not in WRITTEN:
        WRITTEN[key] = texts(CardPool(cards), cards, GREEDY)
    return WRITTEN[key]


def pool_on(url: str, cards: list[Card], places: int | None = None, key: str | None = None) -> CardPool:
    return CardPool(cards, loader=Loader(engines=Engines([f"vllm={url}"], places, key)))


def test_documents_are_those_of_the_own_engine_token_for_token(cards: list[Card], url: str) -> None:
    assert texts(pool_on(url, cards), cards, GREEDY, 2) == texts(CardPool(cards), cards, GREEDY, 2)


def test_questions_of_unlike_cards_are_sent_together(cards: list[Card], fake: FakeVLLM, url: str) -> None:
    names = [[cards[0].name], [cards[1].name, cards[0].name]]
    own = CardPool(cards).generate(QUESTIONS, names, 1, GREEDY)
    fake.gather = 3
    assert pool_on(url, cards).generate(QUESTIONS, names, 1, GREEDY) == own


def test_prompts_are_sent_as_token_ids_and_the_sampling_is_that_of_the_card(
    cards: list[Card], fake: FakeVLLM, url: str
) -> None:
    written = texts(pool_on(url, cards), cards[:1], SAMPLED, 2)
    first = fake.written[0]
    assert len(fake.written) == 4
    assert first["prompt"][0][0] == 1  # <s>, as in training
    wanted = {"temperature": 0.8, "top_k": 7, "max_tokens": 12, "stop_token_ids": [2], "ignore_eos": True}
    wanted |= {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    wanted |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert {key: first[key] for key in wanted} == wanted
    assert len({body["seed"] for body in fake.written}) == 4
    assert texts(pool_on(url, cards), cards[:1], SAMPLED, 2) == written


@pytest.mark.parametrize("places", [2, None])
def test_four_adapters_go_through_as_many_places_as_are_given_or_the_server_takes_into_a_batch(
    cards: list[Card], fake: FakeVLLM, url: str, places: int | None
) -> None:
    fake.metrics = 'vllm:lora_requests_info{max_lora="3",running_lora_adapters="x"} 1.0\n'
    pool, own = pool_on(url, cards, places), own_texts(cards)
    assert [texts(pool, cards, GREEDY) for _ in range(2)] == [own, own]
    assert fake.most == (places or 3)
    assert set(fake.adapters) < {adapter_name(card) for card in cards}


def test_an_adapter_that_was_used_lately_stays(cards: list[Card], fake: FakeVLLM, url: str) -> None:
    pool = pool_on(url, cards, places=2)
    for number in (0, 1, 0, 2, 0):
        texts(pool, [cards[number]], GREEDY)
    loads = [body["lora_name"] for path, body in fake.requests if path == "/v1/load_lora_adapter"]
    assert loads == [adapter_name(cards[number]) for number in (0, 1, 2)]


def test_adapters_that_other_programs_left_make_room_after_a_while(
    cards: list[Card], fake: FakeVLLM, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.adapters |= {"kcard-old-0123456789ab": cards[0].folder, "theirs": cards[0].folder}
    texts(pool_on(url, cards, places=1), cards[:1], GREEDY)
    assert "kcard-old-0123456789ab" in fake.adapters
    monkeypatch.setattr(vllm_backend, "FOREIGN_SECONDS", 0.0)
    fake.restart()
    fake.adapters |= {"kcard-old-0123456789ab": cards[0].folder, "theirs": cards[0].folder}
    texts(pool_on(url, cards, places=1), cards[:1], GREEDY)
    assert [*fake.adapters] == ["theirs", adapter_name(cards[0])]


def test_an_adapter_that_is_loaded_already_is_used_once_it_is_checked(
    cards: list[Card], fake: FakeVLLM, url: str
) -> None:
    fake.adapters[adapter_name(cards[0])] = cards[0].folder
    assert texts(pool_on(url, cards), cards[:1], GREEDY) == own_texts(cards[:1])
    assert not [path for path, _ in fake.requests if path == "/v1/load_lora_adapter"]
    fake.adapters[adapter_name(cards[0])] = cards[1].folder
    fake.restart()
    fake.adapters[adapter_name(cards[0])] = cards[1].folder
    with pytest.raises(CardError, match=r"its adapter is applied, but not as it was trained .*rivers\.0-"):
        texts(pool_on(url, cards), cards[:1], GREEDY)


def test_an_adapter_that_is_zeroed_or_left_out_by_the_server_is_caught_and_writes_nothing(
    cards: list[Card], fake: FakeVLLM, url: str, tmp_path: Path
) -> None:
    wrong = zeroed(cards[0], tmp_path / "zeroed")
    with pytest.raises(CardError, match=r"its adapter is not applied \(shift 0\.00"):
        texts(pool_on(url, [wrong]), [wrong], GREEDY)
    assert (fake.written, fake.adapters) == ([], {})
    fake.unapplied.add(adapter_name(cards[0]))
    pool = pool_on(url, cards)
    with pytest.raises(CardError, match="its adapter is not applied"):
        texts(pool, cards[:1], GREEDY)
    assert fake.written == []
    fake.unapplied.clear()
    assert texts(pool, cards[:1], GREEDY) == own_texts(cards[:1])


def test_a_server_that_starts_anew_has_its_adapters_loaded_and_checked_again(
    cards: list[Card], fake: FakeVLLM, url: str, tmp_path: Path
) -> None:
    pool, own = pool_on(url, cards), own_texts(cards[:2])
    assert texts(pool, cards[:2], GREEDY) == own
    fake.restart()
    assert texts(pool, cards[:2], GREEDY) == own
    fake.restart(llama(tmp_path / "other", seed=9))
    written = len(fake.written)
    with pytest.raises(ModelUnavailable, match="has changed"):
        texts(pool, cards[:2], GREEDY)
    assert fake.written[written:] == []


def test_two_programs_share_the_places_of_a_server(cards: list[Card], url: str) -> None:
    pools = [pool_on(url, cards, places=2), pool_on(url, cards, places=2)]
    own, found = own_texts(cards), []

    def ask(pool: CardPool) -> None:
        for _ in range(2):
            found.append(texts(pool, cards, GREEDY))

    threads = [threading.Thread(target=ask, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [own] * 4


def test_an_adapter_that_is_dropped_again_and_again_is_an_error_in_the_end(
    cards: list[Card], fake: FakeVLLM, url: str
) -> None:
    fake.forgotten = 3
    assert texts(pool_on(url, cards), cards[:1], GREEDY) == own_texts(cards[:1])
    fake.restart()
    fake.forgotten = 1000
    message = r"dropped kcard-rivers\.0-\w+, or its base, 8 times while it was in use"
    with pytest.raises(LLMError, match=message):
        texts(pool_on(url, cards), cards[:1], GREEDY)


NO_LOGPROBS = r"sent no logprobs that can be read: is it vLLM 0\.10 or later\?"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("500", r"failed with status 500: .*EngineCore encountered an issue"),
        ("cut", r"can't be reached, or closed the connection: start vLLM there, or leave out --engine"),
        ("hang", r"did not answer within 0\.3 s: try again"),
        ("<html>", r"sent an answer that can't be read .* is it vLLM\?"),
        ("{}", r"can't be read"),
        ("[]", r"can't be read"),
        ('{"choices": [{"index": 0}]}', NO_LOGPROBS),
        ('{"choices": [{"token_ids": ["x"]}]}', NO_LOGPROBS),
    ],
)
def test_a_failing_server_is_a_clear_error_and_later_served_again(
    fault: str, message: str, cards: list[Card], fake: FakeVLLM, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "hang":
        monkeypatch.setattr(vllm_server.Server.__init__, "__defaults__", (None, 0.3))
    pool = pool_on(url, cards)
    fake.fault = fault
    with pytest.raises(LLMError, match=message) as caught:
        texts(pool, cards[:2], GREEDY)
    assert url in str(caught.value)
    fake.fault = ""
    fake.released.set()
    monkeypatch.undo()
    assert texts(pool_on(url, cards), cards[:2], GREEDY) == own_texts(cards[:2])


def test_a_server_that_is_down_costs_only_cards_that_no_other_has_until_it_is_up(
    cards: list[Card], url: str, tmp_path: Path
) -> None:
    other = adapter(tmp_path / "card", llama(tmp_path / "base", seed=4), "seas", 8)
    with served(FakeVLLM(tmp_path / "base")) as down:
        pass
    pool = CardPool([cards[0], other], loader=Loader(engines=Engines([f"vllm={down}", f"vllm={url}"])))
    assert texts(pool, cards[:1], GREEDY) == own_texts(cards[:1])
    with pytest.raises(LLMError, match=f"{down} can't be reached, or closed the connection"):
        texts(pool, [other], GREEDY)
    with served(FakeVLLM(tmp_path / "base"), port=int(down.rpartition(":")[2])):
        assert texts(pool, [other], GREEDY) == own_texts([other])


def test_a_server_that_can_not_load_adapters_says_how_to_start_it(cards: list[Card], base: Path) -> None:
    fake = FakeVLLM(base, runtime=False)
    with served(fake) as url:
        with pytest.raises(ModelUnavailable, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
            texts(pool_on(url, cards), cards[:1], GREEDY)
        fake.adapters[adapter_name(cards[0])] = cards[0].folder  # --lora-modules
        assert texts(pool_on(url, cards), cards[:1], GREEDY) == own_texts(cards[:1])


def test_an_adapter_that_is_refused_or_not_seen_is_told_with_the_remedy(
    cards: list[Card], fake: FakeVLLM, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.rank = 2
    message = r"refuses the adapter .*rank 4 is greater than max_lora_rank 2"
    with pytest.raises(ModelUnavailable, match=message):
        texts(pool_on(url, cards), cards[:1], GREEDY)
    monkeypatch.setattr(Path, "resolve", lambda self: Path("/elsewhere") / self.name)
    message = r"does not see the folder /elsewhere/c0: .*--lora-modules kcard-rivers"
    with pytest.raises(ModelUnavailable, match=message):
        texts(pool_on(url, cards), cards[:1], GREEDY)


def test_a_server_with_a_key_is_asked_with_it(cards: list[Card], base: Path) -> None:
    with served(FakeVLLM(base, key="secret")) as url:
        with pytest.raises(LLMError, match="refused the key: set VLLM_API_KEY"):
            texts(pool_on(url, cards), cards[:1], GREEDY)
        assert texts(pool_on(url, cards, key="secret"), cards[:1], GREEDY)


def test_a_card_whose_base_no_server_has_is_written_by_the_own_engine_and_that_is_said_once(
    cards: list[Card], url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = adapter(tmp_path / "card", llama(tmp_path / "base", seed=4), "seas", 8)
    both = [cards[0], other]
    pool = pool_on(url, both)
    with caplog.at_level(logging.WARNING):
        assert [texts(pool, both, GREEDY) for _ in range(2)] == [own_texts(both)] * 2
    said = [record.getMessage() for record in caplog.records if "own engine" in record.getMessage()]
    assert len(said) == 1
    assert "seas runs on kcard's own engine: no server has its base" in said[0]


def test_an_adapter_that_trains_tokens_is_written_by_the_own_engine(
    cards: list[Card], fake: FakeVLLM, url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(cards[0].folder, tmp_path / "card")
    config = tmp_path / "card" / "adapter_config.json"
    changed = json.loads(config.read_text(encoding="utf-8")) | {"use_dora": True}
    config.write_text(json.dumps(changed), encoding="utf-8")
    seal(tmp_path / "card", cards[0].manifest)
    engines = Engines([f"vllm={url}"])
    assert engines.card(Card.open(tmp_path / "card"), Loader()) is None
    assert "vLLM can't load its adapter: its use_dora is True" in caplog.text
    assert fake.requests == []


def test_a_whole_model_is_written_by_the_server_that_has_it(tmp_path: Path) -> None:
    card = whole(tmp_path / "card", "lakes")
    fake = FakeVLLM(card.folder, "lakes")
    with served(fake) as url:
        pool = pool_on(url, [card])
        assert texts(pool, [card], GREEDY) == own_texts([card])
        assert fake.written[0]["model"] == "lakes"
        fake.restart(llama(tmp_path / "other", seed=9))
        with pytest.raises(CardError, match="its model no longer computes what it did when it was made"):
            texts(pool_on(url, [card]), [card], GREEDY)


# ---- the option --engine of commands and functions, on cards in the hub


@pytest.fixture
def hub(home: Path, cards: list[Card]) -> Hub:
    made = Hub(home)
    made.publish(cards[0].folder)
    return made


def test_ask_has_documents_written_by_the_server_and_says_so(
    hub: Hub, fake: FakeVLLM, url: str, kcard: Kcard
) -> None:
    found = kcard("ask", QUESTIONS[0], "--cards", "rivers.0", "--engine", f"vllm={url}", "--json")
    assert found.code == 0, found.err
    assert f"sent to {url}" in found.err
    name = adapter_name(Card.open(hub.folder("rivers.0")))
    assert {body["model"] for body in fake.written} == {name}
    assert json.loads(found.out)["passages"][0]["card"] == "rivers.0"


def test_the_setting_holds_where_no_flag_is_given(
    hub: Hub, fake: FakeVLLM, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_ENGINE", f"vllm={url}")
    library.ask(QUESTIONS[0], hub=hub, cards="rivers.0")
    assert fake.written
    count = len(fake.requests)
    library.ask(QUESTIONS[0], hub=hub, cards="rivers.0", engine=())
    assert len(fake.requests) == count


def test_pool_show_tells_who_writes_for_each_card(hub: Hub, url: str, kcard: Kcard, tmp_path: Path) -> None:
    hub.publish(adapter(tmp_path / "card", llama(tmp_path / "base", seed=4), "seas", 8).folder)
    hub.pools.create("waters", ["rivers.0", "seas"])
    found = kcard("pool", "show", "waters", "--engine", f"vllm={url}")
    rivers, seas = found.out.splitlines()
    name = adapter_name(Card.open(hub.folder("rivers.0")))
    assert rivers.endswith(f"[{url}: {name}]")
    assert "[kcard: no server has its base" in seas


@pytest.mark.parametrize(
    "spec", ["http://127.0.0.1:8000", "sglang=http://127.0.0.1:1", "vllm=8000", "vllm=ftp://a"]
)
def test_an_engine_of_another_form_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match=f"engine '{spec}' is unknown: give vllm=URL"):
        AskOptions(engine=[spec])
