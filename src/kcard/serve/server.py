"""Serves the endpoint: one process that holds LLM and cards, and its parent, which starts it again if it dies."""

import functools
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kcard.config import settings
from kcard.errors import HubError, MissingExtra, UsageError
from kcard.integrators.assembly import Endpoint, make_llm
from kcard.integrators.options import AskOptions
from kcard.serve.options import EndpointOptions
from kcard.sizes import parse_size

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["serve", "served_name"]

MODULES = ("fastapi", "httptools", "prometheus_client", "uvicorn")  # of the extra `server`
CHEAP = ("embedded", "openai")  # LLMs that are made here too, so that a mistake is told at once
OPENAI = "https://api.openai.com/v1"


def serve(
    asking: AskOptions, endpoint: EndpointOptions | None = None, ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    asking  options of asking; `mode` is that of questions to the LLM's own name, `llm` must be a name
    ready   is called with the URL once it answers

    Raises MissingExtra without the extra `server`, UsageError for a wrong option or a malformed file of keys, HubError
    if the address is in use or the process can't start.
    """
    from kcard.serve.keys import Keys

    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise MissingExtra(f"kcard serve needs {', '.join(missing)}: pip install 'kcard[server]'")
    from kcard.hub.server.processes import listening, run_workers

    endpoint = endpoint or EndpointOptions()
    llm = asking.llm if asking.llm is not None else settings().llm
    if not isinstance(llm, str):
        raise UsageError("the endpoint's process needs the LLM's name, such as openai:MODEL, not an object")
    parse_size(endpoint.largest)
    Keys(endpoint.keys)
    if llm.partition(":")[0] in CHEAP:
        make_llm(llm, asking.temperature, Endpoint(asking.llm_url))
    app = functools.partial(application, replace(asking, llm=llm), endpoint)
    with listening(endpoint.host, endpoint.port) as listener:
        received = run_workers(
            app,
            listener,
            ready,
            workers=1,
            log_format=endpoint.log_format,
            proxies=endpoint.proxies,
            grace=endpoint.grace,
        )
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the endpoint stopped because its process failed to start: see the log above")


def application(asking: AskOptions, endpoint: EndpointOptions) -> "ASGIApp":
    """The application in its own process, which ends when its parent does."""
    from kcard.hub.registry import Hub
    from kcard.hub.server.worker import follow_parent
    from kcard.serve.app import create_app
    from kcard.serve.keys import Keys
    from kcard.serve.pipelines import Pipelines
    from kcard.serve.service import Service
    from kcard.serve.upstream import Upstream

    follow_parent()
    backend, _, model = str(asking.llm).partition(":")
    configured = settings()
    upstream = (
        Upstream(
            asking.llm_url or configured.llm_url or OPENAI, model, configured.llm_key, asking.llm_timeout
        )
        if backend == "openai"
        else None
    )
    pipelines = Pipelines(asking, Hub(), endpoint.name or served_name(str(asking.llm)))
    service = Service(pipelines, asking.mode, upstream, endpoint.waiting, endpoint.timeout, endpoint.cache)
    return create_app(service, Keys(endpoint.keys), parse_size(endpoint.largest))


def served_name(llm: str) -> str:
    """The name of an LLM without its backend: "gpt-4o" for "openai:gpt-4o"."""
    backend, _, model = llm.partition(":")
    return model or backend
