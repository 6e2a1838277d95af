"""Commands between a hub and other programs: models become cards (add), and cards go to an engine (export)."""

import shlex
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kcard.api.add import add as add_card
from kcard.api.export import export as export_cards
from kcard.cli.options import command_for
from kcard.cli.output import Json, counter, echo, note, print_json
from kcard.errors import UsageError
from kcard.io import shown_size

__all__ = ["register"]


# kcard add: a model of the Hugging Face Hub, or an adapter on this machine, becomes a card.


@command_for(add_card, optional={"source", "description"})
def add(
    values: dict[str, Any],
    published: Annotated[
        bool, typer.Option("--published", help="Add the 26 cards of the Knowledge Card paper, as a pool.")
    ] = False,
    json_: Json = False,
) -> None:
    """Add a model of the Hugging Face Hub as a card, pinned to its commit; an adapter on this machine; or an LLM."""
    if published == (values["source"] is not None):
        raise UsageError("give one repository (hf:owner/name) or adapter, or --published")
    if published:
        from kcard.api.add import add_published
        from kcard.cards.hugging_face import PUBLISHED

        with counter("adding", len(PUBLISHED)) as report:
            pool = add_published(convert=values["convert"], report=report)
        if json_:
            print_json({"pool": pool.name, "cards": list(pool.references)})
            return
        for reference in pool.references:
            echo(reference)
        note(f"use them with `kcard ask --cards pool:{pool.name} QUESTION`")
        return
    version = add_card(**values | {"description": values["description"] or ""})
    base = version.manifest.base
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
        echo(
            f"{version.reference}  {version.manifest.kind}  {shown_size(version.size)}  "
            + (f"{base.name}@{base.revision}" if base.revision else base.name)
        )


# kcard export: cards as an existing engine runs them.


@command_for(export_cards)
def export(
    values: dict[str, Any],
    json_: Json = False,
) -> None:
    """Write what vLLM or llama.cpp needs to run cards, and print the command that starts it."""
    exported = export_cards(**values, report=note)
    if json_:
        print_json(asdict(exported) | {"folder": str(exported.folder)})
    else:
        note("start the engine with this command; export.json says how the cards are prompted")
        echo(f"cd {shlex.quote(str(exported.folder))} && {shlex.join(exported.command)}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(add)
    app.command()(export)
