"""The endpoint over HTTP in this process, with a card of passages about the moons of Neptune."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from openai import OpenAI
from starlette.types import ASGIApp

import kcard
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions, Mode
from kcard.serve.app import create_app
from kcard.serve.pipelines import Pipelines
from kcard.serve.service import Service
from kcard.serve.upstream import Upstream
from tests.hub.server.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = "Who discovered Triton?"
TRITON: Any = [{"role": "user", "content": QUESTION}]
DISCOVERER = "William Lassell"
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


def embedded_service(home: Path | Hub, mode: Mode = "top-down", **options: Any) -> Service:
    """The embedded LLM with the cards of a hub, or of that in a home."""
    hub = home if isinstance(home, Hub) else Hub(home)
    return Service(Pipelines(AskOptions(), hub, "embedded"), mode, **options)


def service_before(
    llm_url: str, home: Path, mode: Mode = "bottom-up", timeout: float = 60, **also: str
) -> Service:
    """An LLM at that URL, called big; with a gate that always asks the cards. Also the LLMs of `also`, by name."""
    options = AskOptions(llm="openai:big", llm_url=llm_url, gate="always", retries=0)
    upstream = Upstream(llm_url, "big", "secret", timeout)
    return Service(Pipelines(options, Hub(home), "big", also), mode, {"big": upstream})


def post(url: str, body: Any, path: str = "chat/completions", **headers: str) -> httpx.Response:
    """Post an object as JSON, in which any text may be escaped."""
    headers["Content-Type"] = "application/json"
    return httpx.post(f"{url}/{path}", content=json.dumps(body), headers=headers, timeout=60)


def ask(url: str, question: str = QUESTION, model: str = "embedded", **headers: str) -> httpx.Response:
    messages = [{"role": "user", "content": question}]
    return post(url, {"model": model, "messages": messages}, **headers)


def answer(reply: httpx.Response) -> str:
    """The text of an answer."""
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def error(reply: httpx.Response) -> Any:
    """What a refused request is told, in OpenAI's form."""
    told = reply.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    return told


@pytest.fixture(scope="session")
def url(library: Path) -> Iterator[str]:
    """An endpoint of the embedded LLM with the card neptune."""
    with running(create_app(embedded_service(library))) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with launched() as program:
        yield program


ANSWERED = ".turn:nth-of-type({}) .answer[aria-busy=false]"


@contextmanager
def without_policy(browser: "Browser", address: str) -> Iterator["Page"]:
    """The page without its policy, which refuses scripts: axe is one."""
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


@pytest.fixture
def endpoint() -> Iterator[Callable[[ASGIApp], OpenAI]]:
    """Starts applications and gives a client of each, which does not try again."""
    with ExitStack() as stack:
        yield lambda app: OpenAI(base_url=stack.enter_context(running(app)), api_key="kc_none", max_retries=0)
