"""Settings with their origins, and the config files that hold them."""

import difflib
import functools
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from kcard.errors import UsageError
from kcard.io import write_text

# A setting: key, value, origin and type.

WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
# The password in a URL: between the user's name and the last @, or after the name of a secret.
SECRET = re.compile(r"(?<=://)([^:/?#\s]*):\S*@|((?i:password|secret|token|key)[^=&\s]*=)[^&\s]*")
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


@dataclass(frozen=True)
class SettingOrigin:
    """The origin of a value.

    where   the variable's name, or FILE:LINE; empty for a default
    folder  what relative paths in a file start from
    """

    kind: Literal["environment", "project", "user", "default"]
    where: str = ""
    folder: Path | None = None

    def __str__(self) -> str:
        return self.where or self.kind


DEFAULT = SettingOrigin("default")


@dataclass(frozen=True)
class Setting:
    """A setting. `key`: llm, or ask.n1 within a table; `value`: text from the environment, else as in TOML."""

    key: str
    value: Any
    origin: SettingOrigin = DEFAULT


def typed(setting: Setting, kind: Any, words: Sequence[str] | None = None) -> Any:
    """Return the value as `kind`: int, float, bool, str, Path, a Literal, a list of these, or any of them or None.

    A relative path in a file starts from the file's folder. `words`: what a list of paths, as texts, may hold
    besides. A list may be given as one text with commas. Raises UsageError, which names the origin, the key,
    the value and what is expected.
    """
    try:
        return _convert(setting.value, _plain_type(kind), setting.origin, words)
    except ValueError as error:
        raise UsageError(
            f"{setting.origin}: {setting.key} is {setting.value!r}, but must be {error}"
        ) from None


def concealed(text: str) -> str:
    """Return the text with *** in place of the passwords of URLs in it."""
    return SECRET.sub(lambda match: f"{match[1]}:***@" if match[2] is None else f"{match[2]}***", text)


def _plain_type(kind: Any) -> Any:
    """Return `kind` without Annotated and None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, types.UnionType}:
        return _plain_type(next(part for part in get_args(kind) if part is not type(None)))
    return kind


def _convert(value: Any, kind: Any, origin: SettingOrigin, words: Sequence[str] | None) -> Any:
    """Convert a value to `kind`. Raises ValueError, which says what was expected."""
    if get_origin(kind) is list:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list):
            raise ValueError("a list")
        items = []
        for item in parts:
            if isinstance(item, str):
                item = item.strip()
            if words is None:
                items.append(_convert(item, get_args(kind)[0], origin, None))
            elif item in words:
                items.append(item)
            else:
                items.append(str(_convert(item, Path, origin, None)))
        return items
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return value
    if origin.kind == "environment":
        # Text, which is a number or a truth value where one is expected.
        if kind is bool:
            value = WORDS.get(value.strip().lower(), value)
        elif kind in {int, float}:
            with suppress(ValueError):
                value = kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not (str if kind is Path else kind):
        raise ValueError(NAMES[kind])
    if kind is not Path:
        return value
    if not value:
        raise ValueError(NAMES[Path])
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise ValueError("a path (there is no such home directory)") from None
    if origin.folder is None:
        return path
    return origin.folder / path


PROJECT = "kcard.toml"
PYPROJECT = "pyproject.toml"
INSIDE = ("tool", "kcard")  # the table of settings in pyproject.toml
CACHE_MB = 256
# The settings outside of tables, each with its type and default.
TOP: Mapping[str, tuple[Any, Any]] = {
    "home": (Path, None),
    "llm": (str, "embedded"),
    "llm_url": (str, None),
    "llm_threads": (int, None),
    "engine": (list[str], None),
    "log": (bool, True),
    "trust": (list[Path], None),
    "cache_mb": (int, CACHE_MB),
    "hub_url": (str, None),
    "database_url": (str, None),
    "blobs_url": (str, None),
    "hub_evidence": (list[str], None),
}
TABLES = ("train", "exam", "publish", "ask")
# A cloned project must not choose whom to trust.
USER_ONLY = {"home", "log", "trust", "hub_url", "database_url", "blobs_url", "hub_evidence"}


def project_file(start: Path) -> Path | None:
    """Return the nearest kcard.toml, or pyproject.toml with [tool.kcard], in `start` or above.

    The search ends at the root of a repository (a folder with .git).
    """
    for folder in (start, *start.parents):
        for name in (PROJECT, PYPROJECT):
            try:
                exists = (folder / name).is_file()
            except OSError:  # a folder that may not be looked into
                exists = False
            if exists and (name == PROJECT or _mentions_kcard(folder / name)):
                return folder / name
        if (folder / ".git").exists():
            return None
    return None


@functools.lru_cache(maxsize=4)
def _parse_toml(text: str) -> Mapping[str, Any]:
    """Parse a file once: settings are read with every question, and a pyproject.toml takes 5 ms."""
    return tomllib.loads(text)


def _mentions_kcard(path: Path) -> bool:
    """Return whether a pyproject.toml has the table [tool.kcard], as far as a broken or unreadable one can tell."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if "kcard" not in text:
        return False
    try:
        return isinstance(_parse_toml(text).get("tool", {}).get("kcard"), dict)
    except (ValueError, RecursionError, AttributeError):
        return re.search(r"(?m)^\s*\[\s*tool\s*\.\s*kcard\s*[.\]]", text) is not None


def read_file(path: Path, kind: Literal["project", "user"]) -> dict[str, Setting]:
    """Read the settings in a file, by key. Raises UsageError, which names the file, the line and the key."""
    try:
        text = path.read_text(encoding="utf-8")
        data = _parse_toml(text)
    except (ValueError, RecursionError) as error:  # of a number of a million digits, of brackets in brackets
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    inside = INSIDE if path.name == PYPROJECT else ()
    for name in inside:
        data = data[name]
    settings = {}
    for name, value in data.items():
        # Keys of tables become ask.n1.
        if name in TABLES and isinstance(value, dict):
            values = {f"{name}.{key.replace('-', '_')}": inner for key, inner in value.items()}
        elif name in TOP and not isinstance(value, dict):
            values = {name: value}
        else:
            raise UsageError(f"{_at(path, line_of(text, name, inside))}: {_describe_unknown(name, value)}")
        for key, setting in values.items():
            line = line_of(text, key, inside)
            if kind == "project" and key in USER_ONLY:
                raise UsageError(
                    f"{_at(path, line)}: {key} can't be set in a project file: set KCARD_{key.upper()}, or {key} in "
                    "your own config.toml"
                )
            settings[key] = Setting(key, setting, SettingOrigin(kind, _at(path, line), path.parent))
    return settings


def _describe_unknown(name: str, value: Any) -> str:
    if name in TABLES:
        return f"{name} is {value!r}, but must be a table: [{name}]"
    if "key" in name.lower() or "token" in name.lower():
        return (
            f"unknown setting {name!r}: keys are never read from files; set OPENAI_API_KEY in the environment"
        )
    hint = ""
    for near in difflib.get_close_matches(name, [*TOP, *TABLES], n=1):
        hint = f" (did you mean {near!r}?)"
    tables = ", ".join(f"[{table}]" for table in TABLES)
    return f"unknown setting {name!r}{hint}: the settings are {', '.join(TOP)} and the tables {tables}"


def line_of(text: str, key: str, inside: tuple[str, ...] = ()) -> int | None:
    """Return the line number of a setting in a file, from 1; None if it can't be found."""
    setting = (*inside, *key.split("."))
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]", line)
        value = re.match(r"\s*([\w\s.\"'-]+?)\s*=", line)
        if header:
            table = _names(header[1])
            if table == setting:
                return number
        elif value and (*table, *_names(value[1])) == setting:
            return number
    return None


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'").replace("-", "_") for part in dotted.split("."))


def _at(path: Path, line: int | None) -> str:
    if line is None:
        return str(path)
    return f"{path}:{line}"


# Change one setting in a TOML file; everything else, comments included, stays as it is.


def write_setting(path: Path, key: str, value: Any) -> None:
    """Set `key` (llm, ask.n1) in the file, which is created if it is missing.

    The file is replaced atomically. Raises UsageError if it is not TOML, or if a table's name holds something else.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    outer: tuple[str, ...] = INSIDE if path.name == PYPROJECT else ()
    path = path.resolve()  # a link, as in a folder of dotfiles, stays one
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        document = tomlkit.parse(text)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    *tables, name = [*outer, *key.split(".")]
    place: Any = document
    for table in tables:
        place = place.setdefault(table, tomlkit.table())
        if not isinstance(place, dict):
            raise UsageError(f"{path}: {table} is {place!r}, but must be a table: [{table}]")
    spelled = name.replace("_", "-")
    place[spelled if spelled in place else name] = value
    try:
        write_text(path, tomlkit.dumps(document), parents=True)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
