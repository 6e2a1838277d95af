"""The endpoint over HTTP in this process, with a card of passages about the moons of Neptune."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from openai import OpenAI
from starlette.types import ASGIApp

import kcard
from kcard.hub.registry import Hub

CORPUS = """Triton was discovered by William Lassell in 1846. Triton orbits Neptune backwards.

Nereid was found by Gerard Kuiper in 1949. Nereid has an eccentric orbit around Neptune.

Proteus was first seen by the probe Voyager 2 in 1989. Proteus is the second largest moon of Neptune.
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose hub has the card `neptune`."""
    home = tmp_path_factory.mktemp("library")
    (home / "corpus").mkdir()
    (home / "corpus" / "neptune.txt").write_text(CORPUS, encoding="utf-8")
    kcard.train(home / "corpus", kind="retrieval", name="neptune", output=home / "draft", exam=False)
    Hub(home).publish(home / "draft")
    return home


@contextmanager
def running(app: ASGIApp) -> Iterator[str]:
    """The application on a port of its own; its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def endpoint() -> Iterator[Callable[[ASGIApp], OpenAI]]:
    """Starts applications and gives a client of each, which does not try again."""
    with ExitStack() as stack:
        yield lambda app: OpenAI(base_url=stack.enter_context(running(app)), api_key="kc_none", max_retries=0)
