"""kcard hub mirrors, unmirror: what a served hub keeps of the hub that it mirrors."""

from typing import Annotated

import typer

from kcard.cli.hub_jobs import DatabaseUrl
from kcard.cli.hub_option import here
from kcard.cli.output import Json, as_data, echo, print_json
from kcard.sizes import shown_size

__all__ = ["register"]


def register(hub: typer.Typer) -> None:
    for command in (mirrors, unmirror):
        hub.command()(command)


def mirrors(database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """List the repositories that this hub mirrors, with the number and size of their stored files."""
    found = here(database_url).mirrors.list()
    if json_:
        print_json([{**as_data(each.mirror), "files": each.files, "size": each.size} for each in found])
        return
    for each in found:
        mirror = each.mirror
        seen = "" if mirror.open else "  not public"
        echo(
            f"{mirror.name}  {mirror.type}  {mirror.upstream}  {each.files} files, {shown_size(each.size)}  "
            f"asked {mirror.checked:%Y-%m-%d %H:%M}{seen}"
        )


def unmirror(
    name: Annotated[str, typer.Argument(help="The repository, namespace/name.")],
    dataset: Annotated[bool, typer.Option("--dataset", help="It is a dataset.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Forget a mirrored repository and delete its files; whoever reads it again has it fetched again."""
    mirror = here(database_url).mirrors.remove("dataset" if dataset else "model", name)
    echo(f"{mirror.name}: no longer mirrored from {mirror.upstream}")
