"""Serves the endpoint: one process that holds LLM and cards, and its parent, which starts it again if it dies."""

import functools
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.config import ENDPOINTS, GGUF_LLMS, settings, without_shortcut
from kcard.connections import silence
from kcard.errors import HubError, KcardError, UsageError, one_line
from kcard.events import OnEvent, ignore, note
from kcard.gguf_file import read_gguf
from kcard.integrators.assembly import Endpoint, make_llm
from kcard.integrators.options import AskOptions
from kcard.io import counted, parse_size
from kcard.llms.local_models import find_pulled
from kcard.llms.openai_endpoint import OpenAIEndpoint
from kcard.serve.app import create_app
from kcard.serve.auth import Keys
from kcard.serve.options import LOCAL_ADDRESSES, EndpointOptions
from kcard.serve.pipelines import Pipelines
from kcard.serve.service import Service
from kcard.serve.uploads import UploadedFiles
from kcard.serve.upstream import Upstream

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger("kcard.serve")

CHECKED_LLMS = ("embedded", *ENDPOINTS)  # which the parent makes too, so that a mistake is reported at once
OPENAI_URL = "https://api.openai.com/v1"
PROBE_SECONDS = 3.0  # in which the LLM's server should answer at the start


def serve(
    asking: AskOptions,
    endpoint: EndpointOptions | None = None,
    ready: Callable[[str], None] = lambda _: None,
    on_event: OnEvent = ignore,
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    asking  options of asking; `mode` applies to questions to the LLM's own name, `llm` must be a name
    ready   called with the URL once the endpoint answers
    on_event  called with notes on private and gated cards, which are served only if `asking.cards` names them

    Raises UsageError for a wrong option, such as `uploads` without `keys`, or a malformed file of keys, UnknownCard for
    a card that is not there, HubError if the address is in use or the process can't start.
    """
    from kcard.hub.server.run import listening, run_workers

    endpoint = endpoint or EndpointOptions()
    llm = settings().llm if asking.llm is None else asking.llm
    if not isinstance(llm, str):
        raise UsageError("the endpoint's process needs the LLM's name, such as openai:MODEL, not an object")
    parse_size(endpoint.max_body)
    Keys(endpoint.keys)
    if endpoint.uploads and endpoint.keys is None:
        raise UsageError(
            "--uploads needs --keys FILE; without keys, only an endpoint on 127.0.0.1 takes files, from this computer"
        )
    others = _listed(endpoint.also)
    for spec in (llm, *others):
        trouble = check_llm(spec, asking)
        if trouble:
            on_event(note(trouble))
    names = [endpoint.name or served_name(llm), *map(served_name, others)]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise UsageError(
            f"two LLMs would be served as {min(repeated)!r}: leave one out of --also, or give --name"
        )
    for message in check_cards(asking.card_names):
        on_event(note(message))
    app = functools.partial(application, replace(asking, llm=llm), endpoint)
    with listening(endpoint.host, endpoint.port) as listener:
        received = run_workers(
            app,
            listener,
            ready,
            workers=1,
            log_format=endpoint.log_format,
            proxies=endpoint.proxies,
            shutdown_timeout=endpoint.shutdown_timeout,
        )
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the endpoint stopped because its process failed to start: see the log above")


def check_llm(spec: str, asking: AskOptions) -> str:
    """Return why the LLM's server does not answer; empty if it does, or if the LLM runs in this process.

    Raises UsageError or ModelUnavailable for a mistake that can be found without loading the LLM.
    """
    backend, _, model = without_shortcut(spec)[0].partition(":")
    if backend in GGUF_LLMS:
        path = find_pulled(model).path if backend == "local" else Path(model).expanduser()
        read_gguf(path)
    if backend not in CHECKED_LLMS:
        return ""
    llm = make_llm(spec, asking.temperature, Endpoint(asking.llm_url))
    if not isinstance(llm, OpenAIEndpoint):
        return ""
    url = llm.url or OPENAI_URL
    reason = silence(url, PROBE_SECONDS)
    if not reason:
        return ""
    return f"no LLM answers at {url} ({reason}): start its server, or correct --llm-url; until then questions fail"


def check_cards(names: Sequence[str] | None) -> list[str]:
    """Return notes on the private and gated cards of the hub that are served because they are named, or are not served.

    Raises UnknownCard for a name that the hub does not have, and HubError if all of the named cards are excluded.
    """
    from kcard.hub.registry import Hub

    hub = Hub()
    try:
        selection = hub.select(names, public=True, drafts=True)
    except HubError:
        if names is not None:
            raise
        return []
    finally:
        hub.database.close()
    restricted = []
    for version in selection.versions:
        if version.restriction:
            restricted.append(f"{version.reference} ({version.restriction})")
    notes = []
    if restricted:
        notes.append(
            f"everybody who may ask gets answers from {', '.join(restricted)}, since --cards names them"
        )
    if selection.hidden:
        count = counted(len(selection.hidden), "card")
        notes.append(f"{count} left out as private or gated: name a card with --cards to answer from it")
    return notes


def application(asking: AskOptions, endpoint: EndpointOptions) -> "ASGIApp":
    """Make the application in its own process, which ends when its parent does.

    If that is impossible, the process ends with a status that tells its parent not to start it again.
    """
    from uvicorn.config import STARTUP_FAILURE

    from kcard.hub.registry import Hub
    from kcard.hub.server.run import follow_parent
    from kcard.llms.gguf_llm import GgufLLM

    follow_parent()
    try:
        keys = Keys(endpoint.keys)
        others = {served_name(spec): spec for spec in _listed(endpoint.also)}
        pipelines = Pipelines(asking, Hub(), endpoint.name or served_name(str(asking.llm)), others)
    except KcardError as error:
        logger.error("%s", one_line(error))
        raise SystemExit(STARTUP_FAILURE) from None
    # A chat model behind a server of its own takes whole conversations.
    upstreams = {}
    for name, llm in pipelines.models.items():
        if isinstance(llm, OpenAIEndpoint) and llm.is_chat:
            # A remote server has its own defaults; some models refuse any temperature.
            defaults = None
            if isinstance(llm, GgufLLM):
                defaults = {"temperature": llm.temperature, "seed": llm.seed}
            upstreams[name] = Upstream(llm.url or OPENAI_URL, llm.model, llm.key, llm.timeout, defaults)
    has_uploads = endpoint.uploads if keys.is_needed else is_own_computer(endpoint)
    uploads = UploadedFiles() if has_uploads else None
    service = Service(
        pipelines, asking.mode, upstreams, endpoint.max_queue, endpoint.timeout, endpoint.cache, uploads
    )
    own_name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    hosts = [own_name, *_listed(endpoint.allowed_hosts)]
    origins = _listed(endpoint.allowed_origins)
    return create_app(service, keys, parse_size(endpoint.max_body), hosts=hosts, origins=origins)


def is_own_computer(endpoint: EndpointOptions) -> bool:
    """Return whether only this machine reaches the endpoint, by its own names, and no page from elsewhere."""
    is_local = endpoint.host in LOCAL_ADDRESSES
    return is_local and not endpoint.allowed_hosts and not endpoint.allowed_origins


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def served_name(llm: str) -> str:
    """Return the name of an LLM without its backend: "gpt-4o" for "openai:gpt-4o"; of a file, its own name."""
    backend, _, model = llm.partition(":")
    if backend == "gguf":
        return Path(model).stem
    return model or backend
