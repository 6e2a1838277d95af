"""kcard add: a model of the Hugging Face Hub becomes a card."""

from typing import Annotated

import typer

from kcard.cli.output import counter, note, print_json, size
from kcard.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(add)


def add(
    source: Annotated[
        str | None,
        typer.Argument(
            help="hf:owner/name[@revision], or an LLM that writes: llm:self, llm:openai:MODEL ...",
            show_default=False,
        ),
    ] = None,
    description: Annotated[str | None, typer.Option(help="One line: what the card knows.")] = None,
    name: Annotated[str | None, typer.Option(help="The card's name. [default: the repository's]")] = None,
    domain: Annotated[str, typer.Option(help="Its domain, such as biomedical/oncology.")] = "general",
    licence: Annotated[str | None, typer.Option(help="[default: as its model card says]")] = None,
    language: Annotated[str | None, typer.Option(help="[default: as its model card says]")] = None,
    template: Annotated[
        str | None, typer.Option(help="How a question becomes the prompt, with {question} in it.")
    ] = None,
    convert: Annotated[
        bool, typer.Option("--convert", help="Take pickled weights, opened in a child process.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Add the 26 cards of the Knowledge Card paper, as a pool.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Add a model of the Hugging Face Hub as a card, pinned to its commit; or an LLM that writes documents."""
    if published == (source is not None):
        raise UsageError("name one repository (hf:owner/name), or --published")
    if source is None:
        _add_published(convert, json_)
        return
    if description is None or not description.strip():
        raise UsageError(f"{source} needs --description: one line that says what the card knows")
    from kcard.api.add import add as add_card

    version = add_card(
        source,
        description=description,
        name=name,
        domain=domain,
        licence=licence,
        language=language,
        template=template,
        convert=convert,
    )
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
        typer.echo(
            f"{version.reference}  {version.manifest.kind}  {size(version.size)}  "
            + (f"{base.name}@{base.revision}" if base.revision else base.name)
        )


def _add_published(convert: bool, as_json: bool) -> None:
    from kcard.api.add import add_published
    from kcard.cards.published import PUBLISHED

    with counter("adding", len(PUBLISHED)) as report:
        pool = add_published(convert=convert, report=report)
    if as_json:
        print_json({"pool": pool.name, "cards": list(pool.references)})
        return
    for reference in pool.references:
        typer.echo(reference)
    note(f"ask them with `kcard ask --cards pool:{pool.name} QUESTION`")
