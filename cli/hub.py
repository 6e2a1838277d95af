"""kcard hub: the hub as a whole: what it holds, quarantine, cleaning up, backing up."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kcard.cli import hub_accounts, hub_server
from kcard.cli.output import counter, note, print_json, size
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["register"]

MEGABYTE = 1_000_000
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

whole = typer.Typer(
    no_args_is_help=True, help="The hub as a whole: quarantine, clean up, back up.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    hub_server.register(whole)
    hub_accounts.register(whole)
    app.add_typer(whole, name="hub")


def _hub() -> "Hub":
    from kcard.hub.registry import Hub

    return Hub()


@whole.command()
def path() -> None:
    """Print the location of the hub."""
    typer.echo(str(_hub().info().path))


@whole.command()
def info(json_: Json = False) -> None:
    """Show the size and contents of the hub."""
    found = _hub().info()
    facts = {
        "path": str(found.path),
        "database": found.database,
        "blobs": found.blobs,
        "cards": found.cards,
        "versions": found.versions,
        "pools": found.pools,
        "files": found.files,
        "size": found.size,
    }
    if json_:
        print_json(facts)
        return
    for key, value in {**facts, "size": size(found.size)}.items():
        typer.echo(f"{key:<9} {value}")


@whole.command()
def threshold(
    value: Annotated[
        str | None, typer.Argument(help="From 0 to 1, or off. [default: show it]", show_default=False)
    ] = None,
    json_: Json = False,
) -> None:
    """Show or set the minimum factuality of cards that are used without being named."""
    hub = _hub()
    if value is not None:
        hub.quarantine.set(_threshold(value))
    now, held = hub.quarantine.threshold, hub.quarantine.held(hub.list())
    if json_:
        print_json({"threshold": now, "quarantined": held})
        return
    typer.echo("off" if now is None else f"{now:g}")
    for reference, factuality in held.items():
        note(f"quarantined: {reference}, factuality {factuality:.2f}")


def _threshold(text: str) -> float | None:
    try:
        return None if text == "off" else float(text)
    except ValueError:
        raise UsageError(f"threshold {text!r}: give a number between 0 and 1, or off") from None


@whole.command()
def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, without deleting it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Delete unused files and snapshots, and remains of killed processes and of uploads abandoned a day ago."""
    found = _hub().gc(dry_run=dry_run)
    if json_:
        print_json([{"what": g.what, "path": g.where, "size": g.size} for g in found])
        return
    for garbage in found:
        typer.echo(f"{garbage.what:<8} {size(garbage.size):>9}  {garbage.where}")
    done = "would be freed" if dry_run else "freed"
    note(f"{len(found)} items, {size(sum(g.size for g in found))} {done}" if found else "nothing to clean up")


@whole.command()
def backup(
    file: Annotated[Path, typer.Argument(help="A new file, such as hub.tar.", show_default=False)],
) -> None:
    """Write a consistent copy of the whole hub to one file."""
    hub = _hub()
    found = hub.info()
    with counter("backing up (MB)", found.size // MEGABYTE + 1) as report:
        hub.backup(file, _megabytes(report))
    note(f"{found.versions} versions of {found.cards} cards, {size(file.stat().st_size)}")
    typer.echo(str(file))


@whole.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `kcard hub backup` wrote.", show_default=False)],
) -> None:
    """Restore a backup into an empty hub; verifies every sha256 before cards become visible."""
    if not file.is_file():
        raise UsageError(f"{file} is not a file: give one written by `kcard hub backup`")
    with counter("restoring (MB)", file.stat().st_size // MEGABYTE + 1) as report:
        found = _hub().restore(file, _megabytes(report))
    note(f"restored {len(found)} versions of {len({v.name for v in found})} cards")


def _megabytes(report: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: report(done // MEGABYTE)
