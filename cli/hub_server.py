"""kcard hub serve: the hub for several people, over HTTP."""

from typing import Annotated, Literal

import typer

from kcard.cli.output import note
from kcard.errors import UsageError
from kcard.sizes import parse_size

__all__ = ["register"]


def register(hub: typer.Typer) -> None:
    hub.command()(serve)


def serve(
    host: Annotated[
        str, typer.Option(help="Where it listens; 0.0.0.0: wherever it is reached.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="On which port; 0: any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 2,
    url: Annotated[
        str | None,
        typer.Option(
            help="What clients reach it by, such as https://hub.example.org. [default: what each request says]",
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
    max_file_size: Annotated[str, typer.Option(help="The largest file that is taken.")] = "50GB",
    quota: Annotated[
        str | None,
        typer.Option(help="What a namespace may hold, such as 100GB. [default: any]", show_default=False),
    ] = None,
    rate_limit: Annotated[
        int, typer.Option(min=0, help="Requests a minute from one account or address; 0: any number.")
    ] = 0,
    exam: Annotated[
        Literal["required", "optional"],
        typer.Option(help="Whether a card with a model is only published with its exam."),
    ] = "required",
    xet: Annotated[bool, typer.Option(help="Take large files by Xet from clients that offer it.")] = True,
    proxies: Annotated[
        str, typer.Option(help="Proxies that are believed who asks: addresses, with commas.")
    ] = "127.0.0.1,::1",
    grace: Annotated[
        int, typer.Option(min=0, help="Seconds that requests get to finish when the server is stopped.")
    ] = 30,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="The organisation in which this hub's own cards appear: from now on. [default: library]",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Of the log, which is on stderr.")
    ] = "text",
) -> None:
    """Serve the hub to several people, over HTTP, by the Hugging Face Hub's protocol; Ctrl-C stops it.

    The first start makes the account admin and prints a token for it. Then one line tells the address.
    """
    from kcard.hub.server.options import ServerOptions
    from kcard.hub.server.serve import Serving
    from kcard.hub.server.serve import serve as run
    from kcard.hub.server.worker import Location

    options = ServerOptions(
        url=_checked_url(url),
        max_file_size=parse_size(max_file_size),
        quota=None if quota is None else parse_size(quota),
        exam=exam,
        xet=xet,
        rate=rate_limit,
    )
    serving = Serving(host, port, workers, log_format, proxies, grace, namespace)
    places = Location(None, database_url, blobs_url)
    run(serving, places, options, first=_first, ready=_ready)


def _first(token: str) -> None:
    note("this hub is new: here is a token of its administrator, the user admin; it is shown this once")
    typer.echo(token)


def _ready(address: str) -> None:
    typer.echo(f"serving on {address}")


def _checked_url(url: str | None) -> str | None:
    from urllib.parse import urlsplit

    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"url {url!r}: give what clients reach the hub by, such as https://hub.example.org")
    return url.rstrip("/")
