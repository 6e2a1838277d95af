"""kcard serve: an OpenAI-compatible endpoint, and the keys of its users."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.cli.command import command_for
from kcard.cli.output import echo, note
from kcard.integrators.options import AskOptions
from kcard.serve.options import EndpointOptions

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command("serve-key")(serve_key)


@command_for(AskOptions, EndpointOptions)
def serve(given: dict[str, Any]) -> None:
    """Serve the LLM with its cards as an OpenAI-compatible endpoint; Ctrl-C stops it."""
    from kcard.serve.server import serve as run

    names = EndpointOptions.__dataclass_fields__
    endpoint = EndpointOptions(**{name: value for name, value in given.items() if name in names})
    asking = AskOptions(**{name: value for name, value in given.items() if name not in names})
    if endpoint.keys is None and endpoint.host not in {"127.0.0.1", "::1", "localhost"}:
        note(f"note: {endpoint.host} can be reached from elsewhere, and no key is needed (--keys)")
    run(asking, endpoint, lambda address: echo(f"serving on {address}/v1"))


def serve_key(
    name: Annotated[str, typer.Argument(help="Holder of the key.")],
    keys: Annotated[Path, typer.Option(help="The file of keys; created if it is missing.")],
) -> None:
    """Add an API key to a file for `kcard serve --keys`, and print it; it is shown only once."""
    from kcard.serve.keys import add_key

    echo(add_key(keys.expanduser(), name))
    note(f"{name} can use it at once; `kcard serve --keys {keys}` reads the file again when it changes")
