"""kcard hub serve: the hub for several people, over HTTP."""

from typing import Annotated, Literal

import typer

from kcard.cli.output import echo, note
from kcard.errors import UsageError
from kcard.sizes import parse_size

__all__ = ["register"]


def register(hub: typer.Typer) -> None:
    hub.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 2,
    url: Annotated[
        str | None,
        typer.Option(
            help="Public URL, such as https://hub.example.org. [default: taken from each request]",
            show_default=False,
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="The hub's database. [default: the setting database_url]", show_default=False),
    ] = None,
    blobs_url: Annotated[
        str | None,
        typer.Option(help="The hub's files. [default: the setting blobs_url]", show_default=False),
    ] = None,
    max_file_size: Annotated[str, typer.Option(help="Maximum size of an uploaded file.")] = "50GB",
    quota: Annotated[
        str | None,
        typer.Option(help="Storage limit of a namespace, such as 100GB. [default: none]", show_default=False),
    ] = None,
    rate_limit: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum downloads per minute and account or address; other requests cost more. 0: unlimited.",
        ),
    ] = 3000,
    exam: Annotated[
        Literal["required", "optional"],
        typer.Option(help="Whether cards with a model need an exam to be published."),
    ] = "required",
    proxies: Annotated[
        str, typer.Option(help="Addresses of trusted proxies, comma-separated.")
    ] = "127.0.0.1,::1",
    grace: Annotated[
        int, typer.Option(min=0, help="Seconds for requests to finish when the server stops.")
    ] = 30,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Set the organisation of this hub's own cards, now and for later starts. [default: library]",
            show_default=False,
        ),
    ] = None,
    ask_workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=16,
            help="Number of processes that answer questions on the pages; 0: the pages answer none.",
        ),
    ] = 0,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log on stderr.")
    ] = "text",
) -> None:
    """Serve the hub over HTTP with the protocol of the Hugging Face Hub; Ctrl-C stops it.

    The first start creates the account admin and prints its token, then the URL.
    """
    from kcard.api.answering import program
    from kcard.api.audit_hub import checked_evidence
    from kcard.config import settings
    from kcard.hub.server.options import ServerOptions
    from kcard.hub.server.serve import Serving
    from kcard.hub.server.serve import serve as run
    from kcard.hub.server.worker import Location

    options = ServerOptions(
        url=_checked_url(url),
        max_file_size=parse_size(max_file_size),
        quota=None if quota is None else parse_size(quota),
        exam=exam,
        rate=rate_limit,
    )
    evidence = checked_evidence(settings().hub_evidence) if ask_workers else ()
    serving = Serving(host, port, workers, log_format, proxies, grace, namespace, ask_workers)
    places = Location(None, database_url, blobs_url)
    run(
        serving,
        places,
        options,
        first=_first,
        ready=_ready,
        answering=program(evidence),
    )


def _first(token: str) -> None:
    note("this hub is new: this is the token of its administrator, the user admin; it is shown only once")
    echo(token)


def _ready(address: str) -> None:
    echo(f"serving on {address}")


def _checked_url(url: str | None) -> str | None:
    from urllib.parse import urlsplit

    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"url {url!r}: give the public URL of the hub, such as https://hub.example.org")
    return url.rstrip("/")
