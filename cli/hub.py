"""kcard hub: accounts, the server, quarantine, backups."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.cli.options import published
from kcard.cli.output import Json, as_data, counter, echo, note, print_json
from kcard.cli.publish import here
from kcard.errors import UsageError
from kcard.io import parse_size, shown_size

if TYPE_CHECKING:
    from kcard.hub.accounts import Account, Accounts, Role, Scope
    from kcard.hub.db.session import Database
    from kcard.hub.tokens import Token, Tokens

__all__ = ["register"]


# kcard hub user, organisation, token, log: who may use a shared hub, and what was done there.

NONE = "none"
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="The hub's database. [default: the setting database_url]", show_default=False),
]
User = Annotated[str, typer.Argument(help="The user's name.", show_default=False)]
Organisation = Annotated[str, typer.Argument(help="The organisation's name.", show_default=False)]
Owner = Annotated[str, typer.Option("--user", help="The token's user.", show_default=False)]
Quota = Annotated[
    str | None,
    typer.Option(help="Storage limit of its repositories, such as 10GB; none: the hub's default."),
]

users = typer.Typer(no_args_is_help=True, help="The users of a shared hub.", rich_markup_mode=None)
groups = typer.Typer(no_args_is_help=True, help="Organisations and their members.", rich_markup_mode=None)
keys = typer.Typer(no_args_is_help=True, help="Access tokens.", rich_markup_mode=None)


def _register_accounts(hub: typer.Typer) -> None:
    hub.add_typer(users, name="user")
    hub.add_typer(groups, name="organisation")
    hub.add_typer(keys, name="token")
    hub.command()(log)


def _database(url: str | None) -> "Database":
    from kcard.hub.registry import Hub

    return Hub(database_url=url).database


def _accounts(url: str | None) -> "Accounts":
    from kcard.hub.accounts import Accounts

    return Accounts(_database(url))


def _tokens(url: str | None) -> "Tokens":
    from kcard.hub.tokens import Tokens

    return Tokens(_database(url))


@users.command("add")
def add_user(
    name: User,
    admin: Annotated[bool, typer.Option("--admin", help="The user administers the hub.")] = False,
    quota: Quota = None,
    fullname: Annotated[str, typer.Option(help="Display name.")] = "",
    email: Annotated[str, typer.Option(help="E-mail address.")] = "",
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Add a user and print a token for them, only this once. Its scope is write, with --admin admin."""
    accounts, tokens = _accounts(database_url), _tokens(database_url)
    made = accounts.add_user(name, fullname=fullname, email=email, admin=admin, quota=_quota(quota))
    scope: Scope = "admin" if admin else "write"
    token = tokens.create(made.name, scope=scope)
    note(f"{made.name} was added with a token of scope {scope}, which is shown only once")
    _print_token(token, made.name, scope, json_)


@users.command("list")
def list_users(database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """List the users."""
    _print_accounts(_accounts(database_url), "user", json_)


@users.command("show")
def show_user(name: User, database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """Show a user: rights, storage, names of tokens."""
    accounts, tokens = _accounts(database_url), _tokens(database_url)
    account = accounts.get(name)
    facts = _facts(account, accounts.used(account.name))
    owned = [_token_facts(token) for token in tokens.list(account.name)] if account.kind == "user" else []
    if json_:
        print_json(facts | {"tokens": owned})
        return
    for key, value in facts.items():
        echo(f"{key:<9} {'-' if value in (None, '') else value}")
    for token in owned:
        echo(f"token     {_line(token.values())}")


@users.command("disable")
def disable_user(name: User, database_url: DatabaseUrl = None) -> None:
    """Disable a user immediately; their repositories stay."""
    note(
        f"{_accounts(database_url).update(name, disabled=True).name} is disabled: their tokens no longer work"
    )


@users.command("enable")
def enable_user(name: User, database_url: DatabaseUrl = None) -> None:
    """Enable a disabled user again; their tokens work as before."""
    note(f"{_accounts(database_url).update(name, disabled=False).name} is enabled")


@users.command("change")
def change_user(
    name: User,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="Whether the user administers the hub.")
    ] = None,
    quota: Quota = None,
    fullname: Annotated[str | None, typer.Option(help="Display name.")] = None,
    email: Annotated[str | None, typer.Option(help="E-mail address.")] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Change the quota, name, address or rights of a user or organisation."""
    changes: dict[str, Any] = {} if quota is None else {"quota": _quota(quota)}
    accounts = _accounts(database_url)
    changed = accounts.update(name, admin=admin, fullname=fullname, email=email, **changes)
    if json_:
        print_json(_facts(changed, accounts.used(changed.name)))
    note(f"{changed.name} was changed")


@groups.command("add")
def add_organisation(
    name: Organisation,
    owner: Annotated[str, typer.Option(help="The first administrator.", show_default=False)],
    quota: Quota = None,
    fullname: Annotated[str, typer.Option(help="Display name.")] = "",
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Add an organisation: a namespace that several users share."""
    accounts = _accounts(database_url)
    made = accounts.add_organisation(name, owner=owner, fullname=fullname, quota=_quota(quota))
    if json_:
        print_json(_facts(made, 0))
    note(f"{made.name} was added; {owner} administers it")


@groups.command("list")
def list_organisations(database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """List the organisations."""
    _print_accounts(_accounts(database_url), "organisation", json_)


@groups.command("member")
def member(
    organisation: Organisation,
    user: Annotated[
        str | None, typer.Argument(help="A user. [default: list the members]", show_default=False)
    ] = None,
    role: Annotated[
        str | None, typer.Argument(help="read, write or admin; none removes the user.", show_default=False)
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """List an organisation's members, or give a user a role in it."""
    accounts = _accounts(database_url)
    if user is not None:
        if role is None:
            raise UsageError(
                f"no role given for {user}: use read, write or admin, or none to remove the user"
            )
        given: Role | None = None if role == NONE else role  # type: ignore[assignment]  # checked there
        accounts.set_member(organisation, user, given)
    found = accounts.members(organisation)
    if json_:
        print_json(found)
        return
    for name, has in found.items():
        echo(f"{has:<6} {name}")


@keys.command("create")
def create_token(
    user: Owner,
    scope: Annotated[str, typer.Option(help="The token's scope: read, write or admin.")] = "write",
    repository: Annotated[
        str | None,
        typer.Option(help="Limit the token to one repository: namespace/name, datasets/namespace/name."),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires. [default: never]", show_default=False)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The token's name. [default: cli, cli-2, ...]", show_default=False),
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Create a token for a user and print it, only this once."""
    wanted: Scope = scope  # type: ignore[assignment]  # checked there
    tokens = _tokens(database_url)
    token = tokens.create(user, name=name, scope=wanted, repository=repository, days=days)
    _print_token(token, user, scope, json_)


@keys.command("list")
def list_tokens(
    user: Annotated[
        str | None, typer.Option("--user", help="Only this user's. [default: all]", show_default=False)
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """List tokens by name; the hub does not store the tokens themselves."""
    found = [_token_facts(token) for token in _tokens(database_url).list(user)]
    if json_:
        print_json(found)
        return
    for token in found:
        echo(_line(token.values()))


@keys.command("revoke")
def revoke_token(
    user: Owner,
    name: Annotated[
        str, typer.Argument(help="The token's name, as `token list` shows it.", show_default=False)
    ],
    database_url: DatabaseUrl = None,
) -> None:
    """Revoke a token immediately."""
    _tokens(database_url).revoke(user, name)
    note(f"the token {name!r} of {user} is revoked")


def log(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 100,
    before: Annotated[
        int | None, typer.Option(help="Only events with a smaller number.", show_default=False)
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as token.created.", show_default=False)
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only events by this account.", show_default=False)
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Show the event log of a shared hub, latest first; the actor - is the command line."""
    from kcard.hub.accounts import Events

    found = [as_data(event) for event in Events(_database(database_url)).list(limit, before, action, actor)]
    if json_:
        print_json(found)
        return
    for event in found:
        detail = " ".join(f"{key}={value}" for key, value in event.pop("detail").items())
        echo(_line([*event.values(), detail or None]))


def _quota(text: str | None) -> int | None:
    return None if text in (None, NONE) else parse_size(text)


def _print_token(token: str, user: str, scope: str, json_: bool) -> None:
    """Exactly one line on stdout, so that scripts can use it."""
    if json_:
        print_json({"user": user, "scope": scope, "token": token})
    else:
        echo(token)


def _print_accounts(accounts: "Accounts", kind: str, json_: bool) -> None:
    found = [account for account in accounts.list() if account.kind == kind]
    rows = [_facts(account, accounts.used(account.name)) for account in found]
    if json_:
        print_json(rows)
        return
    for row in rows:
        marks = [word for word in ("admin", "disabled") if row[word]]
        echo(_line((row["name"], shown_size(row["used"]), ", ".join(marks) or None)))
    if not rows:
        note(f"no {kind} yet: `kcard hub {kind} add` creates one")


def _facts(account: "Account", used: int) -> dict[str, Any]:
    facts = as_data(account)
    return {key: value for key, value in facts.items() if key != "id"} | {"used": used}


def _token_facts(token: "Token") -> dict[str, Any]:
    return {"user": token.user} | as_data(token)


def _line(cells: "Sequence[Any] | Any") -> str:
    return "  ".join("-" if cell is None else str(cell) for cell in cells)


# kcard hub serve: the hub for several people, over HTTP.


def _register_server(hub: typer.Typer) -> None:
    hub.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 2,
    url: Annotated[
        str | None,
        typer.Option(
            help="Public URL, such as https://hub.example.org. [default: taken from each request]",
            show_default=False,
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="The hub's database. [default: the setting database_url]", show_default=False),
    ] = None,
    blobs_url: Annotated[
        str | None,
        typer.Option(help="The hub's files. [default: the setting blobs_url]", show_default=False),
    ] = None,
    max_file_size: Annotated[str, typer.Option(help="Maximum size of an uploaded file.")] = "50GB",
    quota: Annotated[
        str | None,
        typer.Option(help="Storage limit of a namespace, such as 100GB. [default: none]", show_default=False),
    ] = None,
    rate_limit: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum downloads per minute and account or address; other requests cost more. 0: unlimited.",
        ),
    ] = 3000,
    exam: Annotated[
        Literal["required", "optional"],
        typer.Option(help="Whether cards with a model need an exam to be published."),
    ] = "required",
    proxies: Annotated[
        str, typer.Option(help="Addresses of trusted proxies, comma-separated.")
    ] = "127.0.0.1,::1",
    grace: Annotated[
        int, typer.Option(min=0, help="Seconds for requests to finish when the server stops.")
    ] = 30,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Set the organisation of this hub's own cards, now and for later starts. [default: library]",
            show_default=False,
        ),
    ] = None,
    ask_workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=16,
            help="Number of processes that answer questions on the pages; 0: the pages answer none.",
        ),
    ] = 0,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log on stderr.")
    ] = "text",
) -> None:
    """Serve the hub over HTTP with the protocol of the Hugging Face Hub; Ctrl-C stops it.

    The first start creates the account admin and prints its token, then the URL.
    """
    from kcard.api.answering import program
    from kcard.api.audit_hub import checked_evidence
    from kcard.config import settings
    from kcard.hub.server.dependencies import ServerOptions
    from kcard.hub.server.run import Location, Serving
    from kcard.hub.server.run import serve as run

    options = ServerOptions(
        url=_checked_url(url),
        max_file_size=parse_size(max_file_size),
        quota=None if quota is None else parse_size(quota),
        exam=exam,
        rate=rate_limit,
    )
    evidence = checked_evidence(settings().hub_evidence) if ask_workers else ()
    serving = Serving(host, port, workers, log_format, proxies, grace, namespace, ask_workers)
    places = Location(None, database_url, blobs_url)
    run(
        serving,
        places,
        options,
        first=_first,
        ready=_ready,
        answering=program(evidence),
    )


def _first(token: str) -> None:
    note("this hub is new: this is the token of its administrator, the user admin; it is shown only once")
    echo(token)


def _ready(address: str) -> None:
    echo(f"serving on {address}")


def _checked_url(url: str | None) -> str | None:
    from urllib.parse import urlsplit

    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"url {url!r}: give the public URL of the hub, such as https://hub.example.org")
    return url.rstrip("/")


MEGABYTE = 1_000_000

whole = typer.Typer(
    no_args_is_help=True, help="The hub as a whole: quarantine, clean up, back up.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    _register_server(whole)
    _register_accounts(whole)
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
