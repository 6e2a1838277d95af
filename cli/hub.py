"""kcard hub: the local hub's contents and quarantine, and the server that shares it."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from kcard.cli import accounts
from kcard.cli.accounts import DatabaseUrl
from kcard.cli.options import complete_published
from kcard.cli.output import Json, as_data, echo, note, print_facts, print_json
from kcard.cli.publish import open_local_hub
from kcard.errors import UsageError
from kcard.io import parse_size, shown_size


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 2,
    url: Annotated[
        str | None,
        typer.Option(help="Public URL, such as https://hub.example.org. [default: taken from each request]"),
    ] = None,
    database_url: DatabaseUrl = None,
    blobs_url: Annotated[
        str | None,
        typer.Option(help="The hub's files. [default: the setting blobs_url]"),
    ] = None,
    max_file_size: Annotated[str, typer.Option(help="Maximum size of an uploaded file.")] = "50GB",
    quota: Annotated[
        str | None,
        typer.Option(help="Storage limit of a namespace, such as 100GB. [default: none]"),
    ] = None,
    rate_limit: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum downloads per minute and account or address; other requests cost more. 0: unlimited.",
        ),
    ] = 3000,
    default_visibility: Annotated[
        Literal["public", "private"],
        typer.Option(help="Who sees a new repository whose creator does not choose."),
    ] = "public",
    exam: Annotated[
        Literal["required", "optional"],
        typer.Option(help="Whether cards with a model need an exam to be published."),
    ] = "required",
    proxies: Annotated[
        str, typer.Option(help="Addresses of trusted proxies, comma-separated.")
    ] = "127.0.0.1,::1",
    shutdown_timeout: Annotated[
        int, typer.Option(min=0, help="Seconds for requests to finish when the server stops.")
    ] = 30,
    chat: Annotated[
        str | None,
        typer.Option(help="URL of the page to ask (`kcard serve`), which the pages link to."),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log on stderr.")
    ] = "text",
) -> None:
    """Serve the hub over HTTP with the protocol of the Hugging Face Hub; Ctrl-C stops it.

    The first start creates the account admin and prints its token, then the URL.
    """
    from kcard.hub.server.dependencies import ServerOptions
    from kcard.hub.server.run import Location, Serving
    from kcard.hub.server.run import serve as serve_hub

    # Check the options.
    if url is not None:
        url = url.rstrip("/")
        if not _is_web_address(url) or urlsplit(url).path:
            raise UsageError(f"url {url!r}: give the public URL of the hub, such as https://hub.example.org")
    if chat is not None:
        if not _is_web_address(chat):
            raise UsageError(
                f"chat {chat!r}: give the URL of the page to ask, such as https://hub.example.org"
            )
        chat = chat.rstrip("/") + "/"
    options = ServerOptions(
        url=url,
        max_file_size=parse_size(max_file_size),
        quota=accounts.parse_quota(quota),
        visibility=default_visibility,
        exam=exam,
        rate=rate_limit,
        chat=chat,
    )

    # Serve until Ctrl-C; a new hub reports its administrator's token first.
    serving = Serving(host, port, workers, log_format, proxies, shutdown_timeout)
    location = Location(None, database_url, blobs_url)

    def print_token(token: str) -> None:
        note("this hub is new: this is the token of its administrator, the user admin; it is shown only once")
        echo(token)

    serve_hub(
        serving,
        location,
        options,
        first=print_token,
        ready=lambda address: echo(f"serving on {address}"),
    )


def _is_web_address(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and not parts.query


hub_commands = typer.Typer(
    no_args_is_help=True, help="The hub as a whole: quarantine, clean up.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    hub_commands.command()(serve)
    accounts.register(hub_commands)
    app.add_typer(hub_commands, name="hub")


@hub_commands.command()
def path() -> None:
    """Print the location of the hub."""
    echo(str(open_local_hub().info().path))


@hub_commands.command()
def info(json_: Json = False) -> None:
    """Show the size and contents of the hub."""
    summary = open_local_hub().info()
    facts = {**as_data(summary), "path": str(summary.path)}
    if json_:
        print_json(facts)
        return
    print_facts(facts | {"size": shown_size(summary.size)}, 9)


@hub_commands.command()
def threshold(
    value: Annotated[str | None, typer.Argument(help="From 0 to 1, or off. [default: show it]")] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Minimum share of a card's documents that evidence must cover to quarantine it. [default: 0.5]"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Show or set the minimum factuality of cards that are used without being named."""
    hub = open_local_hub()
    if coverage is not None:
        hub.quarantine.set_coverage(coverage)
    if value == "off":
        hub.quarantine.set(None)
    elif value is not None:
        try:
            hub.quarantine.set(float(value))
        except ValueError:
            raise UsageError(f"threshold {value!r}: give a number between 0 and 1, or off") from None
    current, least_coverage = hub.quarantine.threshold, hub.quarantine.coverage
    quarantined = [version for version in hub.list() if version.quarantine]
    if json_:
        reasons = {version.reference: as_data(version.quarantine) for version in quarantined}
        print_json({"threshold": current, "coverage": least_coverage, "quarantined": reasons})
        return
    if current is None:
        echo("off")
    else:
        echo(f"{current:g}")
        note(f"where the evidence covers at least {least_coverage:g} of a card's documents")
    for version in quarantined:
        note(f"quarantined: {version.reference}: {version.quarantine}")


@hub_commands.command()
def release(
    card: Annotated[str, typer.Argument(help="A card.", autocompletion=complete_published)],
) -> None:
    """Release a card from quarantine until its next audit."""
    hub = open_local_hub()
    version = hub.get(card)
    hub.quarantine.release(version)
    note(f"{version.reference} is released")


@hub_commands.command()
def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, without deleting it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Delete unused files and snapshots, and remains of killed processes and of uploads abandoned a day ago."""
    garbage = open_local_hub().gc(dry_run=dry_run)
    if json_:
        print_json([{"what": item.what, "path": item.where, "size": item.size} for item in garbage])
        return
    freed = 0
    for item in garbage:
        echo(f"{item.what:<8} {shown_size(item.size):>9}  {item.where}")
        freed += item.size
    if not garbage:
        note("nothing to clean up")
    elif dry_run:
        note(f"{len(garbage)} items, {shown_size(freed)} would be freed")
    else:
        note(f"{len(garbage)} items, {shown_size(freed)} freed")
