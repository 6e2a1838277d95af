"""Cards on a real vLLM (tried with 0.32.0 on a CPU): KCARD_TEST_VLLM names a Python that has it."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.cards.card import Card
from kcard.cards.models.loader import Loader
from kcard.cards.models.vllm_engines import Engines, adapter_name
from kcard.cards.models.vllm_server import Server
from kcard.cards.pool import CardPool
from kcard.errors import CardError, KcardError, LLMError
from kcard.types import Sampling
from tests.cards.served_cards import adapter, llama, texts, zeroed
from tests.cards.vllm_process import VLLMProcess

PYTHON = os.environ.get("KCARD_TEST_VLLM", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON, reason="KCARD_TEST_VLLM names no Python that has vLLM"),
]
LOG = logging.getLogger(__name__)
GREEDY = Sampling(temperature=0, tokens=40)
SAMPLED = Sampling(temperature=1.0, tokens=40, seed=3)
PLACES = 4
COUNT = 25
LORA = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", str(PLACES))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("base"), width=256, heads=4)


@pytest.fixture(scope="module")
def cards(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    folder = tmp_path_factory.mktemp("cards")
    return [adapter(folder / f"c{number}", base, f"rivers{number}", number) for number in range(COUNT)]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMProcess]:
    made = VLLMProcess(PYTHON, tmp_path_factory.mktemp("log") / "vllm.log")
    yield made
    made.kill()


@pytest.fixture
def vllm(process: VLLMProcess, base: Path, cards: list[Card]) -> VLLMProcess:
    """It runs, and an adapter was asked, which compiles."""
    process.start(base, *LORA)
    texts(pool_on(process, cards), cards[:1], GREEDY)
    return process


def pool_on(process: VLLMProcess, cards: list[Card], places: int | None = PLACES) -> CardPool:
    return CardPool(cards, loader=Loader(engines=Engines([f"vllm={process.url}"], places)))


def adapters(process: VLLMProcess) -> list[str]:
    return [model.name for model in Server(process.url).models() if model.parent is not None]


def test_documents_are_those_of_the_own_engine_token_for_token(vllm: VLLMProcess, cards: list[Card]) -> None:
    assert texts(pool_on(vllm, cards), cards[:6], GREEDY, 2) == texts(CardPool(cards), cards[:6], GREEDY, 2)


def test_25_adapters_go_through_4_places(vllm: VLLMProcess, cards: list[Card]) -> None:
    pool, own, most, ended = pool_on(vllm, cards), texts(CardPool(cards), cards, GREEDY), 0, threading.Event()
    for name in adapters(vllm):
        Server(vllm.url).unload(name)

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, len(adapters(vllm)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        started = time.perf_counter()
        assert texts(pool, cards, GREEDY) == own
        LOG.info("%d cards: %.2f s", COUNT, time.perf_counter() - started)
        assert texts(pool, [*cards[:12]], GREEDY) == [row[:12] for row in own]
    finally:
        ended.set()
        watching.join()
    assert most == PLACES


def test_a_zeroed_adapter_is_caught_within_a_second(
    vllm: VLLMProcess, cards: list[Card], tmp_path: Path
) -> None:
    wrong = zeroed(cards[0], tmp_path / "zeroed")
    pool, seconds = pool_on(vllm, [wrong]), list[float]()
    for _ in range(3):
        started = time.perf_counter()
        with pytest.raises(CardError, match="its adapter is not applied"):
            texts(pool, [wrong], GREEDY)
        seconds.append(time.perf_counter() - started)
    LOG.info("a zeroed adapter: %s s", seconds)
    assert min(seconds) < 1  # other programs may use the machine, too
    assert adapter_name(wrong) not in adapters(vllm)


def test_kill_9_in_the_middle_is_a_clear_error_and_the_server_is_used_once_it_is_back(
    vllm: VLLMProcess, cards: list[Card], base: Path
) -> None:
    pool, own = pool_on(vllm, cards), texts(CardPool(cards), cards[:6], GREEDY)
    texts(pool, cards[:6], GREEDY)
    failed: list[tuple[float, KcardError]] = []

    def ask() -> None:
        try:
            while True:
                texts(pool, cards[:6], SAMPLED, 8)
        except KcardError as error:
            failed.append((time.perf_counter(), error))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.7)
    killed = time.perf_counter()
    vllm.kill()
    asking.join(30)
    ((seen, error),) = failed
    LOG.info("after kill -9: %.2f s: %s", seen - killed, error)
    assert isinstance(error, LLMError)
    assert vllm.url in str(error)
    with pytest.raises(LLMError, match="can't be reached"):
        texts(pool, cards[:6], GREEDY)
    vllm.start(base, *LORA)
    assert texts(pool, cards[:6], GREEDY) == own
