"""kcard publish: a draft becomes a version of the hub."""

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kcard.cli.completion import drafts
from kcard.cli.hub_option import HubOption, elsewhere
from kcard.cli.output import note, print_json, size
from kcard.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(publish)


def publish(
    card: Annotated[
        str | None,
        typer.Argument(
            help="A draft's name or a card folder. [default: trained last]", autocompletion=drafts
        ),
    ] = None,
    hub: HubOption = None,
    repository: Annotated[
        str | None, typer.Option(help="There: namespace/name. [default: yours, the card's name]")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="There: only for those who may read it, if it is new.")
    ] = False,
    alias: Annotated[
        list[str] | None, typer.Option(help="A name for this version, such as stable. Repeatable.")
    ] = None,
    min_recall: Annotated[
        float | None, typer.Option(help="Publish only if its exam found at least this recall, from 0 to 1.")
    ] = None,
    min_factuality: Annotated[
        float | None, typer.Option(help="The same for factuality against independent evidence.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict/--no-strict", help="Refuse a card that gives away private data.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish a card: its next version, immutable and verified whenever it is read."""
    from kcard.api.publish import publish as publish_card
    from kcard.cli.cards import row

    checks: dict[str, Any] = {
        "aliases": tuple(alias or ()),
        "min_recall": min_recall,
        "min_factuality": min_factuality,
        "strict": strict,
        "report": lambda text: note(f"note: {text}"),
    }
    if (url := elsewhere(hub)) is not None:
        bars = sys.stderr.isatty()
        there = publish_card(card, hub=url, repository=repository, private=private, progress=bars, **checks)
        if json_:
            print_json({**asdict(there), "url": there.url})
        else:
            typer.echo(f"{there.reference}  {there.sha256[:12]}  {size(there.size)}  {there.url}")
        return
    if repository is not None or private:
        raise UsageError("--repository and --private are for a hub elsewhere: name it with --hub URL")
    version = publish_card(card, **checks)
    if json_:
        print_json(row(version))
    else:
        typer.echo(f"{version.reference}  {version.sha256[:12]}  {size(version.size)}")
