"""Writes docs/commands.md from the commands' own help: `python docs/commands.py`; with --check, only compares."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("commands.md")


def page() -> str:
    """One section a command, with its help as a terminal of 100 columns shows it."""
    sections = [f"## kcard {name}\n\n```text\n{text}\n```\n" for name, text in all_help().items()]
    return "# Commands\n\nWritten by `python docs/commands.py` from the commands' own help.\n\n" + "\n".join(
        sections
    )


def names() -> list[str]:
    """Every command, groups resolved, in the order of `kcard --help`."""
    from typer.main import get_command

    from kcard.cli.main import app

    return list(_leaves(get_command(app)))


def _leaves(group: Any, before: str = "") -> Iterator[str]:
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield f"{before}{name}"
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def all_help() -> dict[str, str]:
    """Every command's help with the built-in defaults, whatever is configured here: asked of one process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("KCARD_")}
    fixed = {"KCARD_HOME": f"{os.devnull}-none", "COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"}
    command = [sys.executable, __file__, "--json"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, env=clean | fixed).stdout
    found: dict[str, str] = json.loads(shown)
    return found


def help_text(name: str) -> str:
    """A command's help as it is printed here and now."""
    from typer.main import get_command

    from kcard.cli.main import app

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        flag = "--help-all" if has_long_help(name) else "--help"
        get_command(app).main([*name.split(), flag], prog_name="kcard", standalone_mode=False)
    return "\n".join(line.rstrip() for line in shown.getvalue().strip().splitlines())


def has_long_help(name: str) -> bool:
    """Whether `--help` leaves out some options of a command."""
    from typer.main import get_command

    from kcard.cli.main import app

    command: Any = get_command(app)
    for part in name.split():
        command = command.get_command(None, part)
    return any(param.name == "help_all" for param in command.params)


def main() -> None:
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: help_text(name) for name in names()}))
    elif "--check" not in sys.argv:
        TARGET.write_text(page(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != page():
        sys.exit("docs/commands.md is stale: run docs/commands.py")


if __name__ == "__main__":
    main()
