"""kcard hub: the hub as a whole: what it holds, quarantine, cleaning up, backing up."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kcard.cli import hub_accounts, hub_server
from kcard.cli.completion import published
from kcard.cli.hub_option import here
from kcard.cli.output import Json, as_data, counter, echo, note, print_json
from kcard.errors import UsageError
from kcard.sizes import shown_size

__all__ = ["register"]

MEGABYTE = 1_000_000

whole = typer.Typer(
    no_args_is_help=True, help="The hub as a whole: quarantine, clean up, back up.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    hub_server.register(whole)
    hub_accounts.register(whole)
    app.add_typer(whole, name="hub")


@whole.command()
def path() -> None:
    """Print the location of the hub."""
    echo(str(here().info().path))


@whole.command()
def info(json_: Json = False) -> None:
    """Show the size and contents of the hub."""
    found = here().info()
    facts = {**as_data(found), "path": str(found.path)}
    if json_:
        print_json(facts)
        return
    for key, value in {**facts, "size": shown_size(found.size)}.items():
        echo(f"{key:<9} {value}")


@whole.command()
def threshold(
    value: Annotated[
        str | None, typer.Argument(help="From 0 to 1, or off. [default: show it]", show_default=False)
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Quarantine no card of whose documents the evidence covers less than this. [default: 0.5]",
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Show or set the minimum factuality of cards that are used without being named."""
    hub = here()
    if coverage is not None:
        hub.quarantine.set_coverage(coverage)
    if value is not None:
        hub.quarantine.set(_threshold(value))
    now, floor, held = hub.quarantine.threshold, hub.quarantine.coverage, hub.quarantine.held(hub.list())
    if json_:
        reasons = {key: as_data(reason) for key, reason in held.items()}
        print_json({"threshold": now, "coverage": floor, "quarantined": reasons})
        return
    echo("off" if now is None else f"{now:g}")
    if now is not None:
        note(f"where the evidence covers at least {floor:g} of what a card wrote")
    for reference, reason in held.items():
        note(f"quarantined: {reference}: {reason}")


@whole.command()
def release(
    card: Annotated[str, typer.Argument(help="A card.", autocompletion=published, show_default=False)],
) -> None:
    """Release a card from quarantine until its next audit."""
    hub = here()
    version = hub.get(card)
    hub.quarantine.release(version)
    note(f"{version.reference} is released")


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
    found = here().gc(dry_run=dry_run)
    if json_:
        print_json([{"what": g.what, "path": g.where, "size": g.size} for g in found])
        return
    for garbage in found:
        echo(f"{garbage.what:<8} {shown_size(garbage.size):>9}  {garbage.where}")
    done = "would be freed" if dry_run else "freed"
    note(
        f"{len(found)} items, {shown_size(sum(g.size for g in found))} {done}"
        if found
        else "nothing to clean up"
    )


@whole.command()
def backup(
    file: Annotated[Path, typer.Argument(help="A new file, such as hub.tar.", show_default=False)],
) -> None:
    """Write a consistent copy of the whole hub to one file."""
    hub = here()
    found = hub.info()
    with counter("backing up (MB)", found.size // MEGABYTE + 1) as report:
        made = hub.backup(file, _megabytes(report))
    rows = f"{made.versions} versions of {made.cards} cards, {made.repositories} repositories"
    note(
        f"{rows}, {made.blobs} files of {shown_size(made.size)}; the backup has {shown_size(file.stat().st_size)}"
    )
    echo(str(file))


@whole.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `kcard hub backup` wrote.", show_default=False)],
) -> None:
    """Restore a backup into an empty hub; verifies every sha256 before cards become visible."""
    if not file.is_file():
        raise UsageError(f"{file} is not a file: give one written by `kcard hub backup`")
    with counter("restoring (MB)", file.stat().st_size // MEGABYTE + 1) as report:
        found = here().restore(file, _megabytes(report))
    note(f"restored {len(found)} versions of {len({v.name for v in found})} cards")


def _megabytes(report: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: report(done // MEGABYTE)
