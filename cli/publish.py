"""kcard publish: a draft becomes a version of the hub."""

import sys
from dataclasses import asdict
from typing import Any

import typer

from kcard.api.publish import publish as verb
from kcard.cli.command import command_for
from kcard.cli.hub_option import elsewhere
from kcard.cli.output import Json, echo, note, print_json
from kcard.sizes import shown_size

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(publish)


@command_for(verb)
def publish(
    given: dict[str, Any],
    json_: Json = False,
) -> None:
    """Publish a card as its next version, which is immutable and verified on every read."""
    given["report"] = lambda text: note(f"note: {text}")
    if (url := elsewhere(given.pop("hub"))) is not None:
        there = verb(**given, hub=url, progress=sys.stderr.isatty())
        if json_:
            print_json({**asdict(there), "url": there.url})
        else:
            echo(f"{there.reference}  {there.sha256[:12]}  {shown_size(there.size)}  {there.url}")
        return
    from kcard.cli.cards import row

    version = verb(**given)
    if json_:
        print_json(row(version))
    else:
        echo(f"{version.reference}  {version.sha256[:12]}  {shown_size(version.size)}")
