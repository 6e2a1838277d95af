"""kcard publish, login, logout and whoami."""

import getpass
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.hub import publish as publish_card
from kcard.cli.options import command_for
from kcard.cli.output import Json, echo, note, print_json, show_note
from kcard.config import settings
from kcard.errors import UsageError
from kcard.io import shown_size

if TYPE_CHECKING:
    from kcard.hub.client.connection import HubUser
    from kcard.hub.registry import Hub

# --hub: the hub that a command uses, local or remote.

LOCAL = "local"

HubOption = Annotated[
    str | None,
    typer.Option(help="A hub's URL, or local. [default: the setting hub_url, else local]"),
]


def remote_url(hub: str | None) -> str | None:
    """Return the URL of the hub that --hub or the setting names; None for the local one."""
    url = hub or settings().hub_url
    if url == LOCAL:
        return None
    return url


def require_remote_url(hub: str | None) -> str:
    """Return the URL of a remote hub. Raises UsageError if neither --hub nor the setting names one."""
    url = remote_url(hub)
    if url is None:
        raise UsageError("no hub given: use --hub URL, or set hub_url in your config.toml")
    return url


def open_local_hub(database_url: str | None = None) -> "Hub":
    """Open the local hub."""
    from kcard.hub.registry import Hub

    return Hub(database_url=database_url)


@command_for(publish_card)
def publish(
    values: dict[str, Any],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Publish other texts under a name without confirmation.")
    ] = False,
    json_: Json = False,
) -> None:
    """Publish a card as its next version. A version is immutable and verified on every read.

    On a terminal, it asks before a card becomes the next version of one that was made of other texts.
    """
    values["on_event"] = show_note
    if not yes and sys.stdin.isatty():
        values["confirm"] = _confirm
    url = remote_url(values.pop("hub"))
    if url is not None:
        remote = publish_card(**values, hub=url, progress=sys.stderr.isatty())
        if json_:
            print_json({**asdict(remote), "url": remote.url})
        else:
            echo(f"{remote.reference}  {remote.sha256[:12]}  {shown_size(remote.size)}  {remote.url}")
        return
    from kcard.cli.cards import version_row

    version = publish_card(**values)
    if json_:
        print_json(version_row(version))
    else:
        echo(f"{version.reference}  {version.sha256[:12]}  {shown_size(version.size)}")


def _confirm(warning: str) -> bool:
    note(warning)
    return typer.confirm("Publish it as the next version of that card?", err=True)


# kcard login, logout, whoami: the user's account on a remote hub.


def login(
    hub: HubOption = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from standard input, for scripts.")
    ] = False,
    json_: Json = False,
) -> None:
    """Log in to a hub with a token. The token is typed on the terminal and not shown."""
    from kcard.api.hub import login as log_in

    url = require_remote_url(hub)
    if token_stdin:
        token = sys.stdin.readline()
    elif sys.stdin.isatty():
        token = getpass.getpass(f"Token for {url}: ")
    else:
        raise UsageError("no terminal to type the token on: `kcard login --token-stdin < FILE` reads it")
    _print_account(log_in(url, token.strip()), json_)


def logout(hub: HubOption = None) -> None:
    """Remove the stored token of a hub."""
    from kcard.api.hub import logout as log_out

    url = require_remote_url(hub)
    note(f"logged out of {url}" if log_out(url) else f"not logged in to {url}")


def whoami(hub: HubOption = None, json_: Json = False) -> None:
    """Show the account that you use on a hub."""
    from kcard.api.hub import whoami as who_am_i

    _print_account(who_am_i(require_remote_url(hub)), json_)


def _print_account(who: "HubUser", as_json: bool) -> None:
    if as_json:
        print_json(asdict(who))
        return
    echo(who.name)
    remark = f"{who.hub}: token {who.token or '-'} ({who.role or 'role unknown'})"
    if who.organisations:
        remark += f"; in {', '.join(who.organisations)}"
    note(remark)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (publish, login, logout, whoami):
        app.command()(command)
