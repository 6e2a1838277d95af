"""kcard login, logout, whoami: who the user is at a hub elsewhere."""

import getpass
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kcard.cli.hub_option import HubOption, named
from kcard.cli.output import Json, echo, note, print_json

if TYPE_CHECKING:
    from kcard.hub.client.whoami import Who

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    for command in (login, logout, whoami):
        app.command()(command)


def login(
    hub: HubOption = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that contains only the token.")] = None,
    json_: Json = False,
) -> None:
    """Log in to a hub with a token, typed on a terminal or read from standard input."""
    from kcard.api.remote import login as log_in

    url = named(hub)
    _show(log_in(url, _token(url, token_file)), json_)


def logout(hub: HubOption = None) -> None:
    """Remove the stored token of a hub."""
    from kcard.api.remote import logout as log_out

    url = named(hub)
    note(f"logged out of {url}" if log_out(url) else f"not logged in to {url}")


def whoami(hub: HubOption = None, json_: Json = False) -> None:
    """Show the account that you use on a hub."""
    from kcard.api.remote import whoami as who_am_i

    _show(who_am_i(named(hub)), json_)


def _token(url: str, file: Path | None) -> str:
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if sys.stdin.isatty():
        return getpass.getpass(f"Token for {url}: ").strip()
    return sys.stdin.readline().strip()


def _show(who: "Who", as_json: bool) -> None:
    if as_json:
        print_json(asdict(who))
        return
    echo(who.name)
    groups = f"; in {', '.join(who.organisations)}" if who.organisations else ""
    note(f"{who.hub}: token {who.token or '-'} ({who.role or 'role unknown'}){groups}")
