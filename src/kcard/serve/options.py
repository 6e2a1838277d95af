"""Options of the endpoint's process, which `kcard serve` takes beside those of asking; read without FastAPI."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kcard.options import Option, OptionGroup

LOCAL_ADDRESSES = frozenset(["127.0.0.1", "::1", "localhost"])  # values of --host


@dataclass(frozen=True, kw_only=True)
class RequestOptions(OptionGroup, panel="The endpoint"):
    """What is served, to whom, and within which limits."""

    also: Annotated[
        str,
        Option("Further LLMs to choose from, comma-separated, each as for --llm; each takes memory."),
    ] = ""
    allowed_hosts: Annotated[
        str,
        Option(
            "Without --keys: further names by which clients may address the endpoint, comma-separated; *: any."
        ),
    ] = ""
    allowed_origins: Annotated[
        str,
        Option("Web pages elsewhere that may ask, comma-separated, such as https://example.org (CORS)."),
    ] = ""
    name: Annotated[str | None, Option("Name under which the LLM is served.", default="the LLM's own")] = None
    max_queue: Annotated[int, Option("Questions that may wait; more are refused.", least=1)] = 256
    timeout: Annotated[float, Option("Maximum seconds of a question, its wait included.", least=1)] = 120.0
    cache: Annotated[
        int, Option("Answers kept for questions that come again (embedded and hf); 0: none.", least=0)
    ] = 1000
    max_body: Annotated[str, Option("Maximum size of a request.")] = "4MB"
    uploads: Annotated[
        bool,
        Option(
            "With --keys: let clients upload files to ask them. On your own computer without keys they may."
        ),
    ] = False
    proxies: Annotated[str, Option("Addresses of trusted proxies, comma-separated.")] = "127.0.0.1,::1"
    shutdown_timeout: Annotated[
        int, Option("Seconds for requests to finish when the endpoint stops.", least=0)
    ] = 30
    log_format: Annotated[Literal["text", "json"], Option("Format of the log on stderr.")] = "text"


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(RequestOptions):
    """How the endpoint is served. Raises UsageError for a value that is out of range."""

    host: Annotated[str, Option("Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1"
    port: Annotated[int, Option("Port to listen on; 0: any free one.", least=0, most=65535)] = 8000
    keys: Annotated[
        Path | None, Option("File of API keys, which `kcard serve-key` writes.", default="no key is needed")
    ] = None
