"""kcard study against real servers of a tiny model: transformers' own, and vLLM, whose Python KCARD_TEST_VLLM names."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.errors import LLMError
from kcard.training.study import read_study
from kcard.types import Request
from tests.api.study_writer import POSITIONS, writer
from tests.cards.vllm_process import VLLMProcess

VLLM = os.environ.get("KCARD_TEST_VLLM", "")
KEY = "a-key"
STARTED = 120  # seconds
LEARNED = [("Titan", "Saturn", "Huygens", 1655), ("Miranda", "Uranus", "Kuiper", 1948)]
MOONS = [
    *LEARNED,
    ("Triton", "Neptune", "Lassell", 1846),
    ("Phobos", "Mars", "Hall", 1877),
    ("Himalia", "Jupiter", "Perrine", 1904),
    ("Charon", "Pluto", "Christy", 1978),
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]


def passage(name: str, planet: str, finder: str, year: int) -> str:
    return f"{name} is a moon of the planet {planet}. The astronomer {finder} discovered it with a telescope in {year}."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whatever it is asked, it writes the same lines about two moons."""
    text = "\n".join(f"FAR: Whose eye was the first to see {moon[0]}? | {moon[2]}" for moon in LEARNED)
    lessons = {Request("study", "questions", (passage(*moon),)): text for moon in LEARNED}
    return writer(tmp_path_factory.mktemp("base"), lessons)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "moons.txt"
    path.write_text("\n\n".join(passage(*moon) for moon in MOONS) + "\n", encoding="utf-8")
    return path


class Transformers:
    """`transformers serve` as a process of its own."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        code = "from transformers.cli.transformers import main; main()"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-c", code, "serve", "--host", "127.0.0.1", "--port", str(self.port),
                    "--device", "cpu",
                ],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + STARTED
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "transformers serve did not start"
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture
def transformers_server(tmp_path: Path) -> Iterator[Transformers]:
    server = Transformers(tmp_path / "serve.log")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMProcess]:
    server = VLLMProcess(VLLM, tmp_path_factory.mktemp("log") / "vllm.log")
    yield server
    server.kill()


def study(corpus: Path, url: str, base: Path, **options: Any) -> Any:
    chosen = {"tasks": ["questions"], "retries": 0, "concurrency": 4, "force": True}
    return kcard.study(
        corpus,
        corpus.with_name("s.jsonl"),
        llm=f"openai:{base}",
        llm_url=f"{url}/v1",
        **{**chosen, **options},
    )


def replies(corpus: Path) -> int:
    return len(corpus.with_name("s.jsonl.replies.jsonl").read_bytes().splitlines())


def killed_in_the_middle(server: Any, corpus: Path, base: Path, again: Any) -> None:
    """What was replied before is kept, and the same command goes on once the server runs again."""

    def kill(done: int, _: int) -> None:
        if done == 2:
            server.kill()

    stopped = study(corpus, server.url, base, concurrency=1, progress=kill)
    assert (stopped.asked.made, stopped.asked.failed) == (6, 4)
    assert "can't be reached: start the server" in stopped.asked.why
    assert replies(corpus) == 2
    again()
    totals = study(corpus, server.url, base)
    assert (totals.asked.made, totals.asked.kept, totals.asked.failed) == (4, 2, 0)


def learned(corpus: Path, totals: Any) -> None:
    """The usage is counted as the server tells it; what is right is in the file, what is not is counted."""
    assert totals.asked.tokens_in > 6 * 100
    assert totals.asked.tokens_out > 6 * 10
    texts = {item.text for item in read_study(corpus.with_name("s.jsonl")).items}
    assert {f"Whose eye was the first to see {moon[0]}?" for moon in LEARNED} <= texts
    assert sum(totals.left_out.values()) >= 2


def test_transformers_serve_writes_is_killed_and_goes_on(
    transformers_server: Transformers, corpus: Path, base: Path, tmp_path: Path
) -> None:
    killed_in_the_middle(transformers_server, corpus, base, transformers_server.start)
    corpus.with_name("s.jsonl.replies.jsonl").unlink()
    learned(corpus, study(corpus, transformers_server.url, base))
    card = kcard.train(
        corpus,
        kind="model",
        study=corpus.with_name("s.jsonl"),
        output=tmp_path / "card",
        epochs=1,
        exam=False,
    )
    assert card.manifest.training is not None
    assert card.manifest.training.hyperparameters["study_items"] >= 2


@pytest.mark.skipif(not VLLM, reason="KCARD_TEST_VLLM names no Python that has vLLM")
def test_vllm_writes_refuses_a_wrong_key_is_killed_and_goes_on(
    vllm: VLLMProcess, corpus: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> None:
        vllm.start(base, "--max-model-len", str(POSITIONS), "--api-key", KEY)

    start()
    with pytest.raises(LLMError, match="refused the key"):
        study(corpus, vllm.url, base)
    assert not corpus.with_name("s.jsonl.replies.jsonl").exists()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    learned(corpus, study(corpus, vllm.url, base))
    corpus.with_name("s.jsonl.replies.jsonl").unlink()
    killed_in_the_middle(vllm, corpus, base, start)
    vllm.start(base, "--max-model-len", "128", "--api-key", KEY)
    corpus.with_name("s.jsonl.replies.jsonl").unlink()
    with pytest.raises(LLMError, match="max_model_len=128"):
        study(corpus, vllm.url, base)
