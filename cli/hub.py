"""kcard hub: accounts, the server, quarantine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.cli.options import complete_published
from kcard.cli.output import Json, as_data, cell, echo, note, print_facts, print_json
from kcard.cli.publish import open_local_hub
from kcard.errors import UsageError
from kcard.io import parse_size, shown_size

if TYPE_CHECKING:
    from kcard.hub.accounts import Accounts
    from kcard.hub.db.models import Account, Role, Scope, Token
    from kcard.hub.db.session import Database
    from kcard.hub.tokens import TokenStore

# kcard hub user, organisation, token, log: who may use a shared hub, and what was done there.

NONE = "none"
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="The hub's database. [default: the setting database_url]"),
]
User = Annotated[str, typer.Argument(help="The user's name.")]
Organisation = Annotated[str, typer.Argument(help="The organisation's name.")]
Owner = Annotated[str, typer.Option("--user", help="The token's user.")]
Quota = Annotated[
    str | None,
    typer.Option(help="Storage limit of its repositories, such as 10GB; none: the hub's default."),
]

users = typer.Typer(no_args_is_help=True, help="The users of a shared hub.", rich_markup_mode=None)
groups = typer.Typer(no_args_is_help=True, help="Organisations and their members.", rich_markup_mode=None)
keys = typer.Typer(no_args_is_help=True, help="Access tokens.", rich_markup_mode=None)


def _database(url: str | None) -> "Database":
    from kcard.hub.registry import Hub

    return Hub(database_url=url).database


def _accounts(url: str | None) -> "Accounts":
    from kcard.hub.accounts import Accounts

    return Accounts(_database(url))


def _tokens(url: str | None) -> "TokenStore":
    from kcard.hub.tokens import TokenStore

    return TokenStore(_database(url))


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
    account = accounts.add_user(name, fullname=fullname, email=email, admin=admin, quota=_quota(quota))
    scope: Scope = "admin" if admin else "write"
    token = tokens.create(account.name, scope=scope)
    note(f"{account.name} was added with a token of scope {scope}, which is shown only once")
    _print_token(token, account.name, scope, json_)


@users.command("list")
def list_users(database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """List the users."""
    _print_accounts(_accounts(database_url), "user", json_)


@users.command("show")
def show_user(name: User, database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """Show a user: rights, storage, names of tokens."""
    accounts, tokens = _accounts(database_url), _tokens(database_url)
    account = accounts.get(name)
    facts, owned = _facts(account), []
    if account.kind == "user":
        owned = [_token_facts(token) for token in tokens.list(account.name)]
    if json_:
        print_json(facts | {"tokens": owned})
        return
    print_facts(facts, 9)
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
    account = accounts.update(name, admin=admin, fullname=fullname, email=email, **changes)
    if json_:
        print_json(_facts(account))
    note(f"{account.name} was changed")


@groups.command("add")
def add_organisation(
    name: Organisation,
    owner: Annotated[str, typer.Option(help="The first administrator.")],
    quota: Quota = None,
    fullname: Annotated[str, typer.Option(help="Display name.")] = "",
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Add an organisation: a namespace that several users share."""
    accounts = _accounts(database_url)
    account = accounts.add_organisation(name, owner=owner, fullname=fullname, quota=_quota(quota))
    if json_:
        print_json(_facts(account))
    note(f"{account.name} was added; {owner} administers it")


@groups.command("list")
def list_organisations(database_url: DatabaseUrl = None, json_: Json = False) -> None:
    """List the organisations."""
    _print_accounts(_accounts(database_url), "organisation", json_)


@groups.command("member")
def member(
    organisation: Organisation,
    user: Annotated[str | None, typer.Argument(help="A user. [default: list the members]")] = None,
    role: Annotated[str | None, typer.Argument(help="read, write or admin; none removes the user.")] = None,
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
        new_role: Role | None = None if role == NONE else role  # type: ignore[assignment]  # checked there
        accounts.set_member(organisation, user, new_role)
    roles = accounts.members(organisation)
    if json_:
        print_json(roles)
        return
    for name, member_role in roles.items():
        echo(f"{member_role:<6} {name}")


@keys.command("create")
def create_token(
    user: Owner,
    scope: Annotated[str, typer.Option(help="The token's scope: read, write or admin.")] = "write",
    repository: Annotated[
        str | None,
        typer.Option(help="Limit the token to one repository: namespace/name, datasets/namespace/name."),
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires. [default: never]")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The token's name. [default: cli, cli-2, ...]"),
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Create a token for a user and print it, only this once."""
    token_scope: Scope = scope  # type: ignore[assignment]  # checked there
    tokens = _tokens(database_url)
    token = tokens.create(user, name=name, scope=token_scope, repository=repository, days=days)
    _print_token(token, user, scope, json_)


@keys.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option("--user", help="Only this user's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """List tokens by name; the hub does not store the tokens themselves."""
    rows = [_token_facts(token) for token in _tokens(database_url).list(user)]
    if json_:
        print_json(rows)
        return
    for row in rows:
        echo(_line(row.values()))


@keys.command("revoke")
def revoke_token(
    user: Owner,
    name: Annotated[str, typer.Argument(help="The token's name, as `token list` shows it.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Revoke a token immediately."""
    _tokens(database_url).revoke(user, name)
    note(f"the token {name!r} of {user} is revoked")


def log(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 100,
    before: Annotated[int | None, typer.Option(help="Only events with a smaller number.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as token.created.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only events by this account.")] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Show the event log of a shared hub, latest first; the actor - is the command line."""
    from kcard.hub.accounts import Events

    columns = ("number", "at", "actor", "action", "target", "detail")
    listed = Events(_database(database_url)).list(limit, before, action, actor)
    events = [as_data(event, *columns) for event in listed]
    if json_:
        print_json(events)
        return
    for event in events:
        detail = " ".join(f"{key}={value}" for key, value in event.pop("detail").items())
        echo(_line([*event.values(), detail or None]))


def _quota(text: str | None) -> int | None:
    return None if text in (None, NONE) else parse_size(text)


def _print_token(token: str, user: str, scope: str, json_: bool) -> None:
    """Print exactly one line on stdout, so that scripts can use it."""
    if json_:
        print_json({"user": user, "scope": scope, "token": token})
    else:
        echo(token)


def _print_accounts(accounts: "Accounts", kind: str, json_: bool) -> None:
    of_kind = [account for account in accounts.list() if account.kind == kind]
    rows = [_facts(account) for account in of_kind]
    if json_:
        print_json(rows)
        return
    for row in rows:
        marks = [word for word in ("admin", "disabled") if row[word]]
        echo(_line((row["name"], shown_size(row["used"]), ", ".join(marks) or None)))
    if not rows:
        note(f"no {kind} yet: `kcard hub {kind} add` creates one")


def _facts(account: "Account") -> dict[str, Any]:
    columns = ("name", "kind", "fullname", "email", "admin", "disabled", "quota", "created", "description")
    facts: dict[str, Any] = as_data(account, *columns, "used")
    return facts


def _token_facts(token: "Token") -> dict[str, Any]:
    columns = ("name", "scope", "repository", "created", "expires")
    return {"user": token.account.name, **as_data(token, *columns)}


def _line(cells: "Sequence[Any] | Any") -> str:
    return "  ".join(map(cell, cells))


# kcard hub serve: the hub for several people, over HTTP.


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 2,
    url: Annotated[
        str | None,
        typer.Option(help="Public URL, such as https://hub.example.org. [default: taken from each request]"),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="The hub's database. [default: the setting database_url]"),
    ] = None,
    blobs_url: Annotated[
        str | None,
        typer.Option(help="The hub's files. [default: the setting blobs_url]"),
    ] = None,
    max_file_size: Annotated[str, typer.Option(help="Maximum size of an uploaded file.")] = "50GB",
    quota: Annotated[
        str | None,
        typer.Option(help="Storage limit of a namespace, such as 100GB. [default: none]"),
    ] = None,
    rate_limit: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum downloads per minute and account or address; other requests cost more. 0: unlimited.",
        ),
    ] = 3000,
    default_visibility: Annotated[
        Literal["public", "private"],
        typer.Option(help="Who sees a new repository whose creator does not choose."),
    ] = "public",
    exam: Annotated[
        Literal["required", "optional"],
        typer.Option(help="Whether cards with a model need an exam to be published."),
    ] = "required",
    proxies: Annotated[
        str, typer.Option(help="Addresses of trusted proxies, comma-separated.")
    ] = "127.0.0.1,::1",
    shutdown_timeout: Annotated[
        int, typer.Option(min=0, help="Seconds for requests to finish when the server stops.")
    ] = 30,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Set the organisation of this hub's own cards, now and for later starts. [default: library]"
        ),
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(help="URL of the page to ask (`kcard serve`), which the pages link to."),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log on stderr.")
    ] = "text",
) -> None:
    """Serve the hub over HTTP with the protocol of the Hugging Face Hub; Ctrl-C stops it.

    The first start creates the account admin and prints its token, then the URL.
    """
    from urllib.parse import urlsplit

    from kcard.hub.server.dependencies import ServerOptions
    from kcard.hub.server.run import Location, Serving
    from kcard.hub.server.run import serve as serve_hub

    # Check the options.
    for name, value, what in (
        ("url", url, "the public URL of the hub"),
        ("chat", chat, "the URL of the page to ask"),
    ):
        parts = urlsplit(value or "")
        is_address = parts.scheme in {"http", "https"} and bool(parts.netloc) and not parts.query
        if value is not None and (not is_address or (name == "url" and parts.path.strip("/"))):
            raise UsageError(f"{name} {value!r}: give {what}, such as https://hub.example.org")
    url = url and url.rstrip("/")
    options = ServerOptions(
        url=url,
        max_file_size=parse_size(max_file_size),
        quota=None if quota is None else parse_size(quota),
        visibility=default_visibility,
        exam=exam,
        rate=rate_limit,
        chat=chat and chat.rstrip("/") + "/",
    )

    # Serve until Ctrl-C; a new hub reports its administrator's token first.
    serving = Serving(host, port, workers, log_format, proxies, shutdown_timeout, namespace)
    location = Location(None, database_url, blobs_url)

    def print_token(token: str) -> None:
        note("this hub is new: this is the token of its administrator, the user admin; it is shown only once")
        echo(token)

    serve_hub(
        serving,
        location,
        options,
        first=print_token,
        ready=lambda address: echo(f"serving on {address}"),
    )


hub_commands = typer.Typer(
    no_args_is_help=True, help="The hub as a whole: quarantine, clean up.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    hub_commands.command()(serve)
    hub_commands.add_typer(users, name="user")
    hub_commands.add_typer(groups, name="organisation")
    hub_commands.add_typer(keys, name="token")
    hub_commands.command()(log)
    app.add_typer(hub_commands, name="hub")


@hub_commands.command()
def path() -> None:
    """Print the location of the hub."""
    echo(str(open_local_hub().info().path))


@hub_commands.command()
def info(json_: Json = False) -> None:
    """Show the size and contents of the hub."""
    summary = open_local_hub().info()
    facts = {**as_data(summary), "path": str(summary.path)}
    if json_:
        print_json(facts)
        return
    print_facts(facts | {"size": shown_size(summary.size)}, 9)


@hub_commands.command()
def threshold(
    value: Annotated[str | None, typer.Argument(help="From 0 to 1, or off. [default: show it]")] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Minimum share of a card's documents that evidence must cover to quarantine it. [default: 0.5]"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Show or set the minimum factuality of cards that are used without being named."""
    hub = open_local_hub()
    if coverage is not None:
        hub.quarantine.set_coverage(coverage)
    if value is not None:
        try:
            new_threshold = None if value == "off" else float(value)
        except ValueError:
            raise UsageError(f"threshold {value!r}: give a number between 0 and 1, or off") from None
        hub.quarantine.set(new_threshold)
    current, least_coverage = hub.quarantine.threshold, hub.quarantine.coverage
    reasons = {version.reference: version.quarantine for version in hub.list() if version.quarantine}
    if json_:
        quarantined = {key: as_data(reason) for key, reason in reasons.items()}
        print_json({"threshold": current, "coverage": least_coverage, "quarantined": quarantined})
        return
    echo("off" if current is None else f"{current:g}")
    if current is not None:
        note(f"where the evidence covers at least {least_coverage:g} of a card's documents")
    for reference, reason in reasons.items():
        note(f"quarantined: {reference}: {reason}")


@hub_commands.command()
def release(
    card: Annotated[str, typer.Argument(help="A card.", autocompletion=complete_published)],
) -> None:
    """Release a card from quarantine until its next audit."""
    hub = open_local_hub()
    version = hub.get(card)
    hub.quarantine.release(version)
    note(f"{version.reference} is released")


@hub_commands.command()
def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, without deleting it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Delete unused files and snapshots, and remains of killed processes and of uploads abandoned a day ago."""
    garbage = open_local_hub().gc(dry_run=dry_run)
    if json_:
        print_json([{"what": item.what, "path": item.where, "size": item.size} for item in garbage])
        return
    for item in garbage:
        echo(f"{item.what:<8} {shown_size(item.size):>9}  {item.where}")
    freed = "would be freed" if dry_run else "freed"
    size = shown_size(sum(item.size for item in garbage))
    note(f"{len(garbage)} items, {size} {freed}" if garbage else "nothing to clean up")
