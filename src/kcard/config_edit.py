"""Changes one setting in a TOML file and leaves all else, comments included, as it is."""

from pathlib import Path
from typing import Any

from kcard.config_file import INSIDE, PYPROJECT
from kcard.errors import UsageError
from kcard.files import write_text

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
    try:
        write_text(path, tomlkit.dumps(document), parents=True)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
