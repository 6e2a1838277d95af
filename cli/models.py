"""Models from and for other programs: add one as a card, serve an LLM with its cards."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.api.add import add as add_card
from kcard.cli.options import LongCommand, command_for
from kcard.cli.output import Json, echo, note, notice, print_json, progress, show_note
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions, PresetOption
from kcard.io import shown_size
from kcard.options import declared
from kcard.serve.options import LOCAL_ADDRESSES, EndpointOptions

# kcard add: a model of the Hugging Face Hub, or an adapter on this machine, becomes a card.


@command_for(add_card, optional={"source", "description"})
def add(
    values: dict[str, Any],
    published: Annotated[
        bool, typer.Option("--published", help="Add the 26 cards of the Knowledge Card paper, as a pool.")
    ] = False,
    json_: Json = False,
) -> None:
    """Add a model, an adapter or an LLM as a card. A model of the Hugging Face Hub is pinned to its commit."""
    if published == (values["source"] is not None):
        raise UsageError("give one repository (hf:owner/name) or adapter, or --published")
    # The cards of the paper.
    if published:
        from kcard.api.add import add_published

        with progress() as on_event:
            pool = add_published(convert=values["convert"], on_event=on_event)
        if json_:
            print_json({"pool": pool.name, "cards": list(pool.references)})
            return
        for reference in pool.references:
            echo(reference)
        note(f"use them with `kcard ask --cards pool:{pool.name} QUESTION`")
        return

    # One model.
    version = add_card(**values | {"description": values["description"] or ""})
    base = version.manifest.base
    model = base.name
    if base.revision:
        model += f"@{base.revision}"
    if json_:
        print_json(
            {
                "name": version.name,
                "version": version.number,
                "kind": version.manifest.kind,
                "sha256": version.sha256,
                "base": base.name,
                "revision": base.revision,
            }
        )
    else:
        echo(f"{version.reference}  {version.manifest.kind}  {shown_size(version.size)}  {model}")


# kcard serve: an OpenAI-compatible endpoint, and the keys of its users.


@command_for(AskOptions, PresetOption, EndpointOptions)
def serve(values: dict[str, Any]) -> None:
    """Serve an OpenAI-compatible endpoint; Ctrl-C stops it."""
    from kcard.serve.run import serve as serve_endpoint

    endpoint = EndpointOptions(**{name: values.pop(name) for name in declared(EndpointOptions)})
    asking = AskOptions(**values)
    if endpoint.keys is None and endpoint.host not in LOCAL_ADDRESSES:
        notice(f"{endpoint.host} can be reached from elsewhere, and no key is needed (--keys)")

    def print_address(address: str) -> None:
        echo(f"serving on {address}/v1")
        note(f"ask in a browser: {address}/")

    serve_endpoint(asking, endpoint, print_address, show_note)


def serve_key(
    name: Annotated[str, typer.Argument(help="Holder of the key.")],
    keys: Annotated[Path, typer.Option(help="The file of keys; created if it is missing.")],
) -> None:
    """Add an API key to a file for `kcard serve --keys`. It is printed, only this once."""
    from kcard.serve.auth import add_key

    echo(add_key(keys.expanduser(), name))
    note(f"{name} can use it at once; `kcard serve --keys {keys}` reads the file again when it changes")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(add)
    app.command(cls=LongCommand)(serve)
    app.command("serve-key")(serve_key)
