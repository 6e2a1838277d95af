"""kcard publish: a draft becomes a version of the hub."""

from typing import Annotated

import typer

from kcard.cli.output import note, print_json, size

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(publish)


def publish(
    card: Annotated[
        str | None, typer.Argument(help="A draft's name or a card folder. [default: trained last]")
    ] = None,
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
    from kcard.cli.cards import row
    from kcard.front.publishing import publish as publish_card

    version = publish_card(
        card,
        aliases=tuple(alias or ()),
        min_recall=min_recall,
        min_factuality=min_factuality,
        strict=strict,
        report=lambda text: note(f"note: {text}"),
    )
    if json_:
        print_json(row(version))
    else:
        typer.echo(f"{version.reference}  {version.sha256[:12]}  {size(version.size)}")
