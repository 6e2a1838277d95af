"""Commands on cards and pools: list, search, show, pull, remove, verify, alias."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.options import complete_published
from kcard.cli.output import Json, as_data, cell, console, echo, note, print_json, table
from kcard.cli.publish import LOCAL, HubOption, open_local_hub, remote_url
from kcard.errors import UnknownCard, UsageError
from kcard.io import shown_size

if TYPE_CHECKING:
    from kcard.hub.db.models import StoredPool, Version
    from kcard.manifest import Manifest

Reference = Annotated[
    str,
    typer.Argument(
        help="A card: name, name@v2, name@alias or name@sha256.", autocompletion=complete_published
    ),
]
Domain = Annotated[str | None, typer.Option(help="Only this domain and those below it, such as biomedical.")]
Base = Annotated[str | None, typer.Option(help="Only cards made from this base model.")]

RemoteHub = Annotated[
    str | None, typer.Option("--hub", help="URL of a remote hub to list instead of the local one.")
]

listing = typer.Typer(no_args_is_help=True, help="List and search published cards.", rich_markup_mode=None)


@listing.command("list")
def list_cards(domain: Domain = None, base: Base = None, hub: RemoteHub = None, json_: Json = False) -> None:
    """List the newest version of every card."""
    _list(None, domain, base, hub, json_)


@listing.command()
def search(
    text: Annotated[str, typer.Argument(help="Words of the name, description or domain.")],
    domain: Domain = None,
    base: Base = None,
    hub: RemoteHub = None,
    json_: Json = False,
) -> None:
    """Search cards by text, domain subtree and base."""
    _list(text, domain, base, hub, json_)


def _list(text: str | None, domain: str | None, base: str | None, hub: str | None, as_json: bool) -> None:
    """Print the cards of the local hub, or of a remote one, that match all conditions."""
    # A remote hub.
    if hub is not None and hub != LOCAL:
        from kcard.api.hub import listed

        if domain is not None or base is not None:  # tags there
            raise UsageError("--domain and --base work on the local hub only: search a remote hub by text")
        cards = listed(hub, text)
        if as_json:
            print_json([as_data(card) for card in cards])
            return
        if not cards:
            note("no card matches")
            return
        from rich.markup import escape

        rows = table("card", "changed", "downloads", "likes", "tags", right={"downloads", "likes"})
        for card in cards:
            name = card.repository
            if card.private:
                name += " (private)"
            changed, tags = cell(card.modified, "%Y-%m-%d"), ", ".join(card.tags)
            rows.add_row(escape(name), changed, str(card.downloads), str(card.likes), escape(tags))
        console().print(rows)
        return

    # The local hub, where cards may be in quarantine.
    hub_here = open_local_hub()
    versions = hub_here.list(text=text, domain=domain, base=base)
    if as_json:
        print_json([version_row(version) | _quarantine_mark(version) for version in versions])
        return
    if not versions:
        from kcard.hub.selection import EMPTY_HUB

        note("no card matches" if len(hub_here) > 0 else EMPTY_HUB)
        return
    from rich.markup import escape

    rows = table("card", "domain", "kind", "base", "size", "description", right={"size"})
    rows.columns[0].no_wrap = True  # a name is never broken
    for version in versions:
        manifest = version.manifest
        name = version.reference
        if version.quarantine:
            name += " (quarantined)"
        size, base_name = shown_size(version.size), _base_name(manifest)
        cells = (name, manifest.domain, manifest.kind, base_name, size, manifest.description)
        rows.add_row(*map(escape, cells))
    console().print(rows)


def _base_name(manifest: "Manifest") -> str:
    if manifest.base.name:
        return manifest.base.name
    return "from scratch" if manifest.has_model else "-"


def show(card: Reference, json_: Json = False) -> None:
    """Show a card's manifest and its versions."""
    hub = open_local_hub()
    version = hub.get(card)
    if json_:
        import json

        row = version_row(version) | _quarantine_mark(version)
        row["manifest"] = json.loads(version.manifest.to_json())
        row["versions"] = [version_row(each) for each in hub.versions(version.name)]
        print_json(row)
        return
    from rich.markup import escape

    m, out = version.manifest, console()
    out.print(f"[bold]{m.name}[/bold]  {escape(m.description)}")
    corpus = "its passages" if m.evidence == "passages" else "only hashes of its passages"
    if m.asks_elsewhere:
        corpus = f"none: questions are sent to {m.training.method}"
    # What proves, when the card is loaded, that it still acts as it did when it was made.
    if not m.has_model:
        proof = "-"
    elif m.kind == "reference":
        proof = "pinned sha256, not proven"
    elif "canaries.json" in m.files:
        proof = "fingerprint"
    else:
        proof = "not proven"
    quarantine = "-"
    if version.quarantine is not None:
        quarantine = f"used only if named: {version.quarantine}"
    from kcard.cli.browse import describe_figures
    from kcard.evaluation.browse import make_reports

    [report] = make_reports(hub, [version])
    facts = {
        "version": f"v{version.number}  {version.sha256[:12]}",
        "aliases": ", ".join(version.aliases) or "-",
        "domain": m.domain,
        "kind": f"{m.kind}, method {m.method}" if m.method else m.kind,
        "base": _base_name(m),
        "prompt": m.prompt.style if m.has_model else "-",
        "corpus": corpus,
        "trained": f"{m.training.objective}, {m.training.passages} passages, {m.training.seconds:.0f} s",
        "knowledge": m.knowledge_date or "undated",
        "licence": m.licence,
        "proof": proof,
        "figures": "\n             ".join(describe_figures(report)),
        "unexamined": "it has weights, but no plausible exam" if version.unexamined else "-",
        "quarantine": quarantine,
        "size": shown_size(version.size),
        "versions": ", ".join(f"v{v.number}" for v in hub.versions(version.name)),
    }
    for key, value in facts.items():
        out.print(f"  {key:<10} {value}", markup=False)


def _quarantine_mark(version: "Version") -> dict[str, Any]:
    """Return the JSON field of a quarantined version; nothing for others."""
    return {"quarantined": True} if version.quarantine else {}


def pull(
    card: Annotated[
        str,
        typer.Argument(
            help="A card, or a card of a remote hub: namespace/name, /name@v2, @branch, @commit.",
            autocompletion=complete_published,
        ),
    ],
    destination: Annotated[
        Path | None, typer.Argument(help="A new folder. [default for a card of a remote hub: the local hub]")
    ] = None,
    hub: HubOption = None,
    json_: Json = False,
) -> None:
    """Copy a card to a folder, or fetch it into the local hub. transformers and peft can load the folder."""
    url = remote_url(hub)
    if url is None or (hub is None and "/" not in card):
        if destination is None:
            raise UsageError(
                f"pull {card} needs a destination: give a new folder, or a remote hub with --hub URL"
            )
        pulled = open_local_hub().pull(card, destination)
    else:
        from kcard.api.hub import pull as pull_from

        bars = sys.stderr.isatty()
        if destination is None:
            version = pull_from(card, hub=url, progress=bars)
            if not json_:
                echo(f"{version.reference}  {version.sha256[:12]}  {shown_size(version.size)}")
            else:
                print_json(version_row(version))
            return
        pulled = pull_from(card, destination, hub=url, progress=bars)
    if json_:
        print_json({"folder": str(pulled)})
    else:
        echo(str(pulled))


def remove(
    card: Reference,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a card with all its versions, or one version (name@v2).

    It asks on a terminal; without one, it needs --yes.
    """
    hub = open_local_hub()
    version = hub.get(card)
    what = version.reference
    if "@" not in card:
        what = f"{version.name} with all its versions"
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"no terminal to confirm the removal of {what} on: give --yes")
    if not yes:
        typer.confirm(f"Remove {what}?", abort=True, err=True)
    hub.remove(card)
    note(f"removed {what}")


def verify(
    card: Annotated[
        str | None, typer.Argument(help="A card. [default: the whole hub]", autocompletion=complete_published)
    ] = None,
    json_: Json = False,
) -> None:
    """Verify every sha256; exit code 1 if a file is damaged."""
    problems = open_local_hub().verify(card)
    if json_:
        print_json([as_data(problem, "card", "version", "path", "what") for problem in problems])
    else:
        for problem in problems:
            echo(f"{problem.card}@v{problem.version} {problem.path}: {problem.what}")
    if problems:
        raise typer.Exit(1)
    note("every file is intact")


def alias(card: Reference, name: Annotated[str, typer.Argument(help="The alias, such as stable.")]) -> None:
    """Give a version an alias, which can move later."""
    hub = open_local_hub()
    hub.alias(card, name)
    version = hub.get(card)
    echo(f"{version.name}@{name} -> {version.reference}")


def version_row(version: "Version") -> dict[str, Any]:
    """Return a version as JSON-ready data."""
    return {
        "name": version.name,
        "version": version.number,
        "sha256": version.sha256,
        "description": version.manifest.description,
        "domain": version.manifest.domain,
        "kind": version.manifest.kind,
        "base": version.manifest.base.name,
        "size": version.size,
        "published": version.published.isoformat(),
        "aliases": list(version.aliases),
        "declared": as_data(version.declared),
        "verified": as_data(version.verified),
        "unexamined": version.unexamined,
    }


# kcard pool: named sets of cards, for `kcard ask --cards pool:NAME`.

Name = Annotated[str, typer.Argument(help="The pool's name.")]
CARDS_HELP = "Cards: name (its newest version), name@alias or name@v2."
Cards = Annotated[list[str], typer.Argument(help=CARDS_HELP)]

pools = typer.Typer(no_args_is_help=True, help="Named sets of cards.", rich_markup_mode=None)


@pools.command()
def create(
    name: Name,
    cards: Annotated[list[str] | None, typer.Argument(help=CARDS_HELP)] = None,
) -> None:
    """Create a pool; use it with `kcard ask --cards pool:NAME`."""
    _print_pool(open_local_hub().pools.create(name, cards or ()))


@pools.command("add")
def add_to_pool(name: Name, cards: Cards) -> None:
    """Add cards to a pool, or change the version of cards in it."""
    _print_pool(open_local_hub().pools.add(name, cards))


@pools.command("remove")
def remove_pool(name: Name, cards: Cards) -> None:
    """Remove cards from a pool; the cards themselves stay."""
    _print_pool(open_local_hub().pools.remove(name, cards))


@pools.command("list")
def list_pools(json_: Json = False) -> None:
    """List the pools with their cards."""
    listed = open_local_hub().pools.list()
    if json_:
        print_json([{"name": pool.name, "cards": list(pool.references)} for pool in listed])
        return
    for pool in listed:
        _print_pool(pool)
    if not listed:
        note("no pool yet: create one with `kcard pool create NAME CARD ...`")


@pools.command("show")
def show_pool(
    name: Name,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Also show which of these servers runs each card: vllm=URL. Repeatable."),
    ] = None,
    json_: Json = False,
) -> None:
    """Show the current version of each card in a pool; exit code 1 if one is missing."""
    hub = open_local_hub()
    rows: list[dict[str, Any]] = []
    for reference in hub.pools.get(name).references:
        try:
            version = hub.get(reference)
        except UnknownCard:
            rows.append({"card": reference, "version": None, "description": None})
            continue
        entry = {"card": reference, "version": version.reference, "description": version.manifest.description}
        rows.append(entry | _quarantine_mark(version))
    if engine:
        # What generates for each card: one of the servers, or kcard itself and why.
        from kcard.cards.card import Card
        from kcard.cards.models.loader import Loader
        from kcard.integrators.assembly import make_engines

        engines, models = make_engines(engine), Loader()
        for row in rows:
            if row["version"] is not None and engines is not None:
                version = hub.get(row["version"])
                card = Card(hub.folder(version.reference), version.manifest)
                row["writer"] = engines.describe(card, models)
    if json_:
        print_json({"name": name, "cards": rows})
    else:
        for row in rows:
            line = f"{row['card']}  {row['version'] or 'missing'}"
            if "quarantined" in row:
                line += " (quarantined)"
            line += f"  {row['description'] or ''}"
            if "writer" in row:
                line += f"  [{row['writer']}]"
            echo(line.rstrip())
    if any(row["version"] is None for row in rows):
        raise typer.Exit(1)


@pools.command()
def delete(name: Name) -> None:
    """Delete a pool; its cards stay."""
    open_local_hub().pools.delete(name)
    note(f"deleted the pool {name}")


def _print_pool(pool: "StoredPool") -> None:
    echo(f"{pool.name}: {', '.join(pool.references) or 'no card yet'}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(listing, name="cards")
    for command in (show, pull, remove, verify, alias):
        app.command()(command)
    app.add_typer(pools, name="pool")
