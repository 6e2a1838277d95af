"""kcard config: every setting, its value and its origin."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.cli.options import effective_settings, option, options, value_of
from kcard.cli.output import Json, echo, note, notice, print_json
from kcard.config import settings, user_file
from kcard.config_file import PROJECT, USER_ONLY, Setting, SettingOrigin, concealed, project_file
from kcard.errors import UsageError

Key = Annotated[str, typer.Argument(help="A setting, such as llm or ask.n1.")]

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="config")


@commands.callback()
def show(
    ctx: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Also print where each value comes from.")] = False,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed", help="Only the settings that differ from their defaults, and where each comes from."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Show every setting. Precedence: flag, environment, project file, user file, default."""
    if ctx.invoked_subcommand is not None:
        return
    declared = options()
    listed = []
    for setting in effective_settings(settings()):
        if not changed or _plain(setting.value) != _plain(declared[setting.key].default):
            listed.append(setting)
    if json_:
        print_json([_row(setting) for setting in listed])
        return
    if not listed:
        note("every setting has its default")
    for setting in listed:
        line = f"{setting.key:<24} {_display(setting.value)}"
        if origin or changed:
            line = f"{line:<56} {setting.origin}"
        echo(line)


@commands.command()
def get(key: Key, json_: Json = False) -> None:
    """Print the value of one setting."""
    setting = _effective(key.replace("-", "_"))
    if json_:
        print_json(_row(setting))
    else:
        echo(_display(setting.value))


@commands.command("set")
def set_(
    key: Key,
    value: Annotated[str, typer.Argument(help="Its value; for a list, comma-separated items.")],
    project: Annotated[
        bool, typer.Option("--project", help="In the project file (kcard.toml) instead of the user file.")
    ] = False,
) -> None:
    """Change a setting in your config file; the rest of the file stays unchanged."""
    key = key.replace("-", "_")
    if project and key in USER_ONLY:
        raise UsageError(f"{key} can't be set in a project file: leave out --project")
    path = user_file()
    if project:
        path = project_file(Path.cwd()) or Path.cwd() / PROJECT
    store(key, value, path)


def store(key: str, value: str, path: Path) -> None:
    """Change a setting in a config file, and say so; add a note where another source takes precedence."""
    from kcard.config_file import write_setting

    setting = Setting(key, value, SettingOrigin("environment", "kcard config set", Path.cwd()))
    new = _plain(value_of(setting, option(key)))
    write_setting(path, key, new)
    note(f"{key} = {_display(new)} in {path}")
    current = _effective(key)
    if _plain(current.value) != new:
        notice(f"{current.origin} sets {_display(current.value)}, which takes precedence")
    if key in {"llm", "llm_url", "engine"}:
        getattr(settings(), key)  # raises where a project can't choose it


def _effective(key: str) -> Setting:
    """Return a setting with its effective value. Raises UsageError for an unknown key."""
    option(key)
    settings_by_key = {setting.key: setting for setting in effective_settings(settings())}
    return settings_by_key[key]


def _row(setting: Setting) -> dict[str, Any]:
    return {"key": setting.key, "value": _hidden(setting.value), "origin": str(setting.origin)}


def _plain(value: Any) -> Any:
    """Return a value as TOML and JSON store it: paths as texts."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def _hidden(value: Any) -> Any:
    """Return a value as JSON stores it, without the passwords in URLs."""
    value = _plain(value)
    if isinstance(value, str):
        return concealed(value)
    return value


def _display(value: Any) -> str:
    value = _hidden(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
