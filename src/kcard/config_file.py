"""Reads settings from TOML files: the user's config.toml, and kcard.toml or pyproject.toml of a project."""

import difflib
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from kcard.errors import UsageError
from kcard.setting import Origin, Setting

__all__ = ["PROJECT", "PYPROJECT", "TABLES", "TOP", "USER_ONLY", "line_of", "project_file", "read_file"]

PROJECT = "kcard.toml"
PYPROJECT = "pyproject.toml"
INSIDE = ("tool", "kcard")  # where settings stand in pyproject.toml
TOP = (
    "home",
    "llm",
    "llm_url",
    "engine",
    "trust",
    "cache_mb",
    "hub_url",
    "database_url",
    "blobs_url",
    "hub_evidence",
)
TABLES = ("train", "exam", "publish", "ask")
# A project that was cloned must not choose whom to believe.
USER_ONLY = {"home", "trust", "hub_url", "database_url", "blobs_url", "hub_evidence"}


def project_file(start: Path) -> Path | None:
    """The nearest kcard.toml, or pyproject.toml with [tool.kcard], in `start` or above.

    The search ends at the root of a repository (a folder with .git).
    """
    for folder in (start, *start.parents):
        for name in (PROJECT, PYPROJECT):
            if _is_file(folder / name) and (name == PROJECT or _mentions_kcard(folder / name)):
                return folder / name
        if (folder / ".git").exists():
            return None
    return None


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Mapping[str, Any]:
    """The file's content, parsed once: settings are asked for with every question, and a pyproject.toml takes 5 ms."""
    return tomllib.loads(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be looked into
        return False


def _mentions_kcard(path: Path) -> bool:
    """Whether it has the table; a pyproject.toml that is broken or unreadable but no business of ours has not."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if "kcard" not in text:
        return False
    try:
        return isinstance(_parsed(text).get("tool", {}).get("kcard"), dict)
    except (ValueError, RecursionError, AttributeError):
        return re.search(r"(?m)^\s*\[\s*tool\s*\.\s*kcard\s*[.\]]", text) is not None


def read_file(path: Path, kind: Literal["project", "user"]) -> dict[str, Setting]:
    """The settings in a file, by key. Raises UsageError, which names the file, the line and the key."""
    try:
        text = path.read_text(encoding="utf-8")
        data = _parsed(text)
    except (ValueError, RecursionError) as error:  # of a number of a million digits, of brackets in brackets
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    inside = INSIDE if path.name == PYPROJECT else ()
    for name in inside:
        data = data[name]
    found = {}
    for key, value in _flat(data, path, text, inside):
        line = line_of(text, key, inside)
        if kind == "project" and key in USER_ONLY:
            raise UsageError(f"{_at(path, line)}: {key} can't be set in a project file: {_own_way(key)}")
        found[key] = Setting(key, value, Origin(kind, _at(path, line), path.parent))
    return found


def _flat(
    data: Mapping[str, Any], path: Path, text: str, inside: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    """(key, value), with keys of tables as ask.n1."""
    for name, value in data.items():
        if name in TABLES and isinstance(value, dict):
            yield from ((f"{name}.{key.replace('-', '_')}", inner) for key, inner in value.items())
        elif name in TOP and not isinstance(value, dict):
            yield name, value
        else:
            raise UsageError(f"{_at(path, line_of(text, name, inside))}: {_unknown(name, value)}")


def _unknown(name: str, value: Any) -> str:
    if name in TABLES:
        return f"{name} is {value!r}, but must be a table: [{name}]"
    if "key" in name.lower() or "token" in name.lower():
        return (
            f"unknown setting {name!r}: keys are never read from files; set OPENAI_API_KEY in the environment"
        )
    near = difflib.get_close_matches(name, [*TOP, *TABLES], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    tables = ", ".join(f"[{table}]" for table in TABLES)
    return f"unknown setting {name!r}{hint}: the settings are {', '.join(TOP)} and the tables {tables}"


def line_of(text: str, key: str, inside: tuple[str, ...] = ()) -> int | None:
    """The line of a file where a setting stands, from 1; None where it can't be found."""
    *table, name = (*inside, *key.split("."))
    current: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            current = _names(header[1])
            if current == (*table, name):
                return number
        elif (given := re.match(r"\s*([\w\s.\"'-]+?)\s*=", line)) and (*current, *_names(given[1])) == (
            *table,
            name,
        ):
            return number
    return None


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'").replace("-", "_") for part in dotted.split("."))


def _at(path: Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}:{line}"


def _own_way(key: str) -> str:
    return f"set KCARD_{key.upper()}, or {key} in your own config.toml"
