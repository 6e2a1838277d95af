"""kcard pool: named sets of cards, for `kcard ask --cards pool:NAME`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.hub_option import here
from kcard.cli.output import Json, echo, note, print_json
from kcard.errors import UnknownCard

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.pools import Pool

__all__ = ["register"]

Name = Annotated[str, typer.Argument(help="The pool's name.", show_default=False)]
Cards = Annotated[
    list[str],
    typer.Argument(help="Cards: name (its newest version), name@alias or name@v2.", show_default=False),
]

named = typer.Typer(no_args_is_help=True, help="Named sets of cards.", rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.add_typer(named, name="pool")


@named.command()
def create(
    name: Name,
    cards: Annotated[
        list[str] | None,
        typer.Argument(help="Cards: name (its newest version), name@alias or name@v2.", show_default=False),
    ] = None,
) -> None:
    """Create a pool; use it with `kcard ask --cards pool:NAME`."""
    _print(here().pools.create(name, cards or ()))


@named.command()
def add(name: Name, cards: Cards) -> None:
    """Add cards to a pool, or change the version of cards in it."""
    _print(here().pools.add(name, cards))


@named.command()
def remove(name: Name, cards: Cards) -> None:
    """Remove cards from a pool; the cards themselves stay."""
    _print(here().pools.remove(name, cards))


@named.command("list")
def list_pools(json_: Json = False) -> None:
    """List the pools with their cards."""
    found = here().pools.list()
    if json_:
        print_json([{"name": pool.name, "cards": list(pool.references)} for pool in found])
        return
    for pool in found:
        _print(pool)
    if not found:
        note("no pool yet: create one with `kcard pool create NAME CARD ...`")


@named.command()
def show(
    name: Name,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Also show which of these servers writes for each card: vllm=URL. Repeatable."),
    ] = None,
    json_: Json = False,
) -> None:
    """Show the current version of each card in a pool; exit code 1 if one is missing."""
    hub = here()
    rows = [_row(hub, reference) for reference in hub.pools.get(name).references]
    if engine:
        rows = _with_writers(hub, rows, engine)
    if json_:
        print_json({"name": name, "cards": rows})
    for row in () if json_ else rows:
        mark = " (quarantined)" if "quarantined" in row else ""
        writer = f"  [{row['writer']}]" if "writer" in row else ""
        echo(
            f"{row['card']}  {row['version'] or 'missing'}{mark}  {row['description'] or ''}{writer}".rstrip()
        )
    if any(row["version"] is None for row in rows):
        raise typer.Exit(1)


@named.command()
def delete(name: Name) -> None:
    """Delete a pool; its cards stay."""
    here().pools.delete(name)
    note(f"deleted the pool {name}")


def _row(hub: "Hub", reference: str) -> dict[str, Any]:
    try:
        version = hub.get(reference)
    except UnknownCard:
        return {"card": reference, "version": None, "description": None}
    row = {"card": reference, "version": version.reference, "description": version.manifest.description}
    return row | ({"quarantined": True} if hub.quarantine.held([version]) else {})


def _with_writers(hub: "Hub", rows: list[dict[str, Any]], specs: list[str]) -> list[dict[str, Any]]:
    """The rows with what writes for each card: a server, or kcard itself and why."""
    from kcard.cards.format.folder import Card
    from kcard.cards.lm.loader import Loader
    from kcard.integrators.assembly import make_engines

    engines, models, found = make_engines(specs), Loader(), []
    for row in rows:
        if row["version"] is not None and engines is not None:
            version = hub.get(row["version"])
            row = row | {
                "writer": engines.writer(Card(hub.folder(version.reference), version.manifest), models)
            }
        found.append(row)
    return found


def _print(pool: "Pool") -> None:
    echo(f"{pool.name}: {', '.join(pool.references) or 'no card yet'}")
