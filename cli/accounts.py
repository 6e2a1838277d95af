"""kcard hub user, organisation, token, log: who may use a shared hub, and what was done there."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.output import Json, as_data, cell, echo, note, print_facts, print_json
from kcard.errors import UsageError
from kcard.io import parse_size, shown_size

if TYPE_CHECKING:
    from kcard.hub.accounts import Accounts
    from kcard.hub.db.models import Account, Role, Scope, Token
    from kcard.hub.db.session import Database
    from kcard.hub.tokens import TokenStore

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
    account = accounts.add_user(name, fullname=fullname, email=email, admin=admin, quota=parse_quota(quota))
    scope: Scope = "write"
    if admin:
        scope = "admin"
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
    owned = []
    if account.kind == "user":
        for token in tokens.list(account.name):
            owned.append(_token_facts(token))
    if json_:
        print_json(_facts(account) | {"tokens": owned})
        return
    print_facts(_facts(account), 9)
    for facts in owned:
        echo(f"token     {_line(facts.values())}")


@users.command("disable")
def disable_user(name: User, database_url: DatabaseUrl = None) -> None:
    """Disable a user immediately; their repositories stay."""
    account = _accounts(database_url).update(name, disabled=True)
    note(f"{account.name} is disabled: their tokens no longer work")


@users.command("enable")
def enable_user(name: User, database_url: DatabaseUrl = None) -> None:
    """Enable a disabled user again; their tokens work as before."""
    account = _accounts(database_url).update(name, disabled=False)
    note(f"{account.name} is enabled")


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
    changes: dict[str, Any] = {}
    if quota is not None:
        changes["quota"] = parse_quota(quota)
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
    account = accounts.add_organisation(name, owner=owner, fullname=fullname, quota=parse_quota(quota))
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
        new_role: Role | None = None
        if role != NONE:
            new_role = role  # type: ignore[assignment]  # checked there
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
    events = []
    for event in Events(_database(database_url)).list(limit, before, action, actor):
        events.append(as_data(event, *columns))
    if json_:
        print_json(events)
        return
    for event in events:
        detail = " ".join(f"{key}={value}" for key, value in event.pop("detail").items())
        echo(_line([*event.values(), detail or None]))


def parse_quota(text: str | None) -> int | None:
    """Return a limit such as 10GB in bytes; None for none."""
    if text is None or text == NONE:
        return None
    return parse_size(text)


def _print_token(token: str, user: str, scope: str, json_: bool) -> None:
    """Print exactly one line on stdout, so that scripts can use it."""
    if json_:
        print_json({"user": user, "scope": scope, "token": token})
    else:
        echo(token)


def _print_accounts(accounts: "Accounts", kind: str, json_: bool) -> None:
    rows = []
    for account in accounts.list():
        if account.kind == kind:
            rows.append(_facts(account))
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


def _line(cells: Iterable[Any]) -> str:
    return "  ".join(map(cell, cells))


def register(hub_commands: typer.Typer) -> None:
    """Add the commands of this module."""
    hub_commands.add_typer(users, name="user")
    hub_commands.add_typer(groups, name="organisation")
    hub_commands.add_typer(keys, name="token")
    hub_commands.command()(log)
