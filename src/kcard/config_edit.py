"""Changes one setting in a TOML file and leaves all else, comments included, as it is."""

import os
from pathlib import Path
from typing import Any

from kcard.config_file import INSIDE, PYPROJECT
from kcard.errors import UsageError

__all__ = ["write_setting"]


def write_setting(path: Path, key: str, value: Any) -> None:
    """Set `key` (llm, ask.n1) in the file, which is made where it is not there yet.

    The file is replaced in one step, so a reader or a crash never sees half of it. Raises UsageError where it
    is not TOML, or holds something else in the place of a table.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = path.resolve()  # a link, as in a folder of dotfiles, stays one
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        document = tomlkit.parse(text)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    outer: tuple[str, ...] = INSIDE if path.name == PYPROJECT else ()
    *tables, name = [*outer, *key.split(".")]
    place: Any = document
    for table in tables:
        place = place.setdefault(table, tomlkit.table())
        if not isinstance(place, dict):
            raise UsageError(f"{path}: {table} is {place!r}, but must be a table: [{table}]")
    spelled = name.replace("_", "-")
    place[spelled if spelled in place else name] = value
    _replace(path, tomlkit.dumps(document))


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
