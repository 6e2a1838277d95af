"""One setting: its key, its value, where that comes from, and the type that it must have."""

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from kcard.errors import UsageError

__all__ = ["DEFAULT", "Origin", "Setting", "concealed", "typed"]

WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
# What stands in a URL between the user's name and the last @, or after the name of a secret.
SECRET = re.compile(r"(?<=://)([^:/?#\s]*):\S*@|((?i:password|secret|token|key)[^=&\s]*=)[^&\s]*")
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    where   the variable's name, or FILE:LINE; empty for a default
    folder  what relative paths in a file start from
    """

    kind: Literal["environment", "project", "user", "default"]
    where: str = ""
    folder: Path | None = None

    def __str__(self) -> str:
        return self.where or self.kind


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Setting:
    """`key` is llm, or ask.n1 for one of a table. From the environment `value` is text, else what TOML holds."""

    key: str
    value: Any
    origin: Origin = DEFAULT


def typed(setting: Setting, kind: Any, words: Sequence[str] | None = None) -> Any:
    """The value as `kind`: int, float, bool, str, Path, a Literal, a list of these, or any of them or None.

    A relative path in a file starts from the file's folder. `words`: what a list of paths, as texts, may hold
    besides. A list may be given as one text with commas. Raises UsageError, which names the origin, the key,
    the value and what is expected.
    """
    try:
        return _converted(setting.value, _plain(kind), setting.origin, words)
    except ValueError as error:
        raise UsageError(
            f"{setting.origin}: {setting.key} is {setting.value!r}, but must be {error}"
        ) from None


def concealed(text: str) -> str:
    """A text with *** for the passwords of the URLs in it."""
    return SECRET.sub(lambda found: f"{found[1]}:***@" if found[2] is None else f"{found[2]}***", text)


def _plain(kind: Any) -> Any:
    """`kind` without Annotated and None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, types.UnionType}:
        return _plain(next(part for part in get_args(kind) if part is not type(None)))
    return kind


def _converted(value: Any, kind: Any, origin: Origin, words: Sequence[str] | None) -> Any:
    """Raises ValueError, which says what was expected."""
    if get_origin(kind) is list:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, list):
            raise ValueError("a list")
        items = [x.strip() if isinstance(x, str) else x for x in given]
        if words is not None:
            return [x if x in words else str(_converted(x, Path, origin, None)) for x in items]
        return [_converted(x, get_args(kind)[0], origin, None) for x in items]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return value
    if origin.kind == "environment":
        value = _parsed(value, kind)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not (str if kind is Path else kind):
        raise ValueError(NAMES[kind])
    return _path(value, origin) if kind is Path else value


def _parsed(text: str, kind: Any) -> Any:
    """The text of an environment variable as a number or a truth value, where that is wanted."""
    if kind is bool:
        return WORDS.get(text.strip().lower(), text)
    if kind in {int, float}:
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _path(text: str, origin: Origin) -> Path:
    if not text:
        raise ValueError(NAMES[Path])
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise ValueError("a path (there is no such home directory)") from None
    return path if origin.folder is None else origin.folder / path
