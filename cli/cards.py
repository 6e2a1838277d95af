"""kcard cards, show, pull, remove, verify, alias: the local hub."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.completion import published
from kcard.cli.hub_option import LOCAL, HubOption, elsewhere, here
from kcard.cli.output import Json, as_data, console, echo, note, print_json, table
from kcard.errors import UsageError
from kcard.hub.repositories.figures import shown
from kcard.sizes import shown_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcard.hub.client.listing import Listed
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.figures import Reason
    from kcard.hub.repositories.versions import Version
    from kcard.manifest import Manifest

__all__ = ["register", "row"]

Reference = Annotated[
    str,
    typer.Argument(help="A card: name, name@v2, name@alias or name@sha256.", autocompletion=published),
]
Domain = Annotated[str | None, typer.Option(help="Only this domain and those below it, such as biomedical.")]
Base = Annotated[str | None, typer.Option(help="Only cards made from this base model.")]

Elsewhere = Annotated[
    str | None, typer.Option("--hub", help="URL of a remote hub to list instead of the local one.")
]

listing = typer.Typer(no_args_is_help=True, help="List and search published cards.", rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.add_typer(listing, name="cards")
    for command in (show, pull, remove, verify, alias):
        app.command()(command)


@listing.command("list")
def list_cards(domain: Domain = None, base: Base = None, hub: Elsewhere = None, json_: Json = False) -> None:
    """List the newest version of every card."""
    _list(None, domain, base, hub, json_)


@listing.command()
def search(
    text: Annotated[str, typer.Argument(help="Words of the name, description or domain.")],
    domain: Domain = None,
    base: Base = None,
    hub: Elsewhere = None,
    json_: Json = False,
) -> None:
    """Search cards by text, domain subtree and base."""
    _list(text, domain, base, hub, json_)


def _list(text: str | None, domain: str | None, base: str | None, hub: str | None, as_json: bool) -> None:
    if hub is not None and hub != LOCAL:
        _print_listed(hub, text, domain, base, as_json)
        return
    local = here()
    _print_versions(local, local.list(text=text, domain=domain, base=base), as_json)


def show(card: Reference, json_: Json = False) -> None:
    """Show a card's manifest and its versions."""
    hub = here()
    version = hub.get(card)
    held = hub.quarantine.held([version])
    if json_:
        import json

        manifest = json.loads(version.manifest.to_json())
        versions = [row(v) for v in hub.versions(version.name)]
        print_json({**row(version), **_held(version, held), "manifest": manifest, "versions": versions})
        return
    from rich.markup import escape

    m, out = version.manifest, console()
    out.print(f"[bold]{m.name}[/bold]  {escape(m.description)}")
    facts = {
        "version": f"v{version.number}  {version.sha256[:12]}",
        "aliases": ", ".join(version.aliases) or "-",
        "domain": m.domain,
        "kind": f"{m.kind} and index" if m.index else m.kind,
        "base": m.base.name or ("from scratch" if m.has_model else "-"),
        "prompt": m.prompt.style if m.has_model else "-",
        "corpus": _travelling(m),
        "trained": f"{m.training.objective}, {m.training.passages} passages, {m.training.seconds:.0f} s",
        "knowledge": m.knowledge_date or "undated",
        "licence": m.licence,
        "proof": _proof(m),
        "figures": "; ".join(shown(version.declared, version.verified)) or "not measured",
        "unexamined": "it has weights, but no plausible exam" if version.unexamined else "-",
        "quarantine": _quarantine(version, held),
        "size": shown_size(version.size),
        "versions": ", ".join(f"v{v.number}" for v in hub.versions(version.name)),
    }
    for key, value in facts.items():
        out.print(f"  {key:<10} {value}", markup=False)


def _quarantine(version: "Version", held: "Mapping[str, Reason]") -> str:
    if version.reference not in held:
        return "-"
    return f"used only if named: {held[version.reference]}"


def _held(version: "Version", held: "Mapping[str, Reason]") -> dict[str, Any]:
    """The mark of a quarantined version, in JSON."""
    return {"quarantined": True} if version.reference in held else {}


def _travelling(manifest: "Manifest") -> str:
    if manifest.asks_elsewhere:
        return f"none: questions are sent to {manifest.training.method}"
    return "its passages" if manifest.evidence == "passages" else "only hashes of its passages"


def _proof(manifest: "Manifest") -> str:
    """What shows at a load that the card acts as when it was made."""
    if not manifest.has_model:
        return "-"
    if manifest.kind == "reference":
        return "pinned sha256, not proven"
    return "fingerprint" if "canaries.json" in manifest.files else "not proven"


def pull(
    card: Annotated[
        str,
        typer.Argument(
            help="A card, or a card of a remote hub: namespace/name, /name@v2, @branch, @commit.",
            autocompletion=published,
        ),
    ],
    destination: Annotated[
        Path | None, typer.Argument(help="A new folder. [default for a card of a remote hub: the local hub]")
    ] = None,
    hub: HubOption = None,
    json_: Json = False,
) -> None:
    """Copy a card to a folder that transformers and peft can load, or fetch it into the local hub."""
    url = elsewhere(hub)
    if url is None or (hub is None and "/" not in card):
        if destination is None:
            raise UsageError(
                f"pull {card} needs a destination: give a new folder, or a remote hub with --hub URL"
            )
        pulled = here().pull(card, destination)
    else:
        from kcard.api.remote import pull as pull_from

        bars = sys.stderr.isatty()
        if destination is None:
            version = pull_from(card, hub=url, progress=bars)
            if not json_:
                echo(f"{version.reference}  {version.sha256[:12]}  {shown_size(version.size)}")
            else:
                print_json(row(version))
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
    """Remove a card with all its versions, or one version (name@v2)."""
    hub = here()
    version = hub.get(card)
    what = f"{version.name} with all its versions" if "@" not in card else version.reference
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {what}?", abort=True, err=True)
    hub.remove(card)
    note(f"removed {what}")


def verify(
    card: Annotated[
        str | None, typer.Argument(help="A card. [default: the whole hub]", autocompletion=published)
    ] = None,
    json_: Json = False,
) -> None:
    """Verify every sha256; exit code 1 if a file is damaged."""
    problems = here().verify(card)
    rows = [{"card": p.card, "version": p.version, "path": p.path, "what": p.what} for p in problems]
    if json_:
        print_json(rows)
    for row in () if json_ else rows:
        echo(f"{row['card']}@v{row['version']} {row['path']}: {row['what']}")
    if problems:
        raise typer.Exit(1)
    note("every file is intact")


def alias(card: Reference, name: Annotated[str, typer.Argument(help="The alias, such as stable.")]) -> None:
    """Give a version an alias, which can move to another version later."""
    hub = here()
    hub.alias(card, name)
    version = hub.get(card)
    echo(f"{version.name}@{name} -> {version.reference}")


def row(version: "Version") -> dict[str, Any]:
    """A version as JSON-ready data."""
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
        "declared": None if version.declared is None else as_data(version.declared),
        "verified": None if version.verified is None else as_data(version.verified),
        "unexamined": version.unexamined,
    }


def _print_listed(hub: str, text: str | None, domain: str | None, base: str | None, as_json: bool) -> None:
    """The cards of a hub elsewhere. A domain and a base are tags there."""
    from kcard.api.remote import listed

    if domain is not None or base is not None:
        raise UsageError("--domain and --base work on the local hub only: search a remote hub by text")
    found = listed(hub, text)
    if as_json:
        print_json([{**asdict(card), "modified": _iso(card)} for card in found])
        return
    if not found:
        note("no card matches")
        return
    from rich.markup import escape

    rows = table("card", "changed", "downloads", "likes", "tags", right={"downloads", "likes"})
    for card in found:
        name = card.repository + (" (private)" if card.private else "")
        cells = (name, (_iso(card) or "-")[:10], str(card.downloads), str(card.likes), ", ".join(card.tags))
        rows.add_row(*map(escape, cells))
    console().print(rows)


def _iso(card: "Listed") -> str | None:
    return None if card.modified is None else card.modified.isoformat()


def _print_versions(hub: "Hub", versions: "list[Version]", as_json: bool) -> None:
    held = hub.quarantine.held(versions)
    if as_json:
        print_json([row(v) | _held(v, held) for v in versions])
        return
    if not versions:
        note("no card matches")
        return
    from rich.markup import escape

    rows = table("card", "domain", "kind", "base", "size", "description", right={"size"})
    for v in versions:
        m = v.manifest
        mark = " (quarantined)" if v.reference in held else ""
        cells = (
            v.reference + mark,
            m.domain,
            m.kind,
            m.base.name or ("from scratch" if m.has_model else "-"),
            shown_size(v.size),
            m.description,
        )
        rows.add_row(*map(escape, cells))
    console().print(rows)
