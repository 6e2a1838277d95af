"""kcard add: a model of the Hugging Face Hub, or an adapter on this machine, becomes a card."""

from typing import Annotated, Any

import typer

from kcard.api.add import add as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, counter, echo, note, print_json
from kcard.errors import UsageError
from kcard.sizes import shown_size

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(add)


@command_for(verb, optional={"source", "description"})
def add(
    given: dict[str, Any],
    published: Annotated[
        bool, typer.Option("--published", help="Add the 26 cards of the Knowledge Card paper, as a pool.")
    ] = False,
    json_: Json = False,
) -> None:
    """Add a model of the Hugging Face Hub as a card, pinned to its commit; an adapter on this machine; or an LLM."""
    if published == (given["source"] is not None):
        raise UsageError("give one repository (hf:owner/name) or adapter, or --published")
    if published:
        _add_published(given["convert"], json_)
        return
    version = verb(**given | {"description": given["description"] or ""})
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


def _add_published(convert: bool, as_json: bool) -> None:
    from kcard.api.add import add_published
    from kcard.cards.format.importing.published import PUBLISHED

    with counter("adding", len(PUBLISHED)) as report:
        pool = add_published(convert=convert, report=report)
    if as_json:
        print_json({"pool": pool.name, "cards": list(pool.references)})
        return
    for reference in pool.references:
        echo(reference)
    note(f"use them with `kcard ask --cards pool:{pool.name} QUESTION`")
