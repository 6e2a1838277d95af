"""kcard's commands as its own parser reads them, without running them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typer._click.exceptions import BadOptionUsage, UsageError  # typer has a click of its own
from typer.main import get_command

from kcard.cli.main import app

__all__ = ["UsageError", "check_command", "check_options"]


def command_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command that these words name, and the rest of the words. Raises UsageError if there is none."""
    command: Any = get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command = command.get_command(None, rest[0])
        if command is None:
            raise UsageError(f"kcard {' '.join(words)}: no command {rest[0]!r}")
        del rest[0]
    return command, rest


def check_options(words: Sequence[str]) -> None:
    """Raise UsageError if the command or an option of it does not exist. Values may be placeholders, or left out."""
    command, rest = command_of(words)
    with suppress(BadOptionUsage):  # the option exists, and only its value is left out
        command.make_parser(command.context_class(command)).parse_args(args=rest)


def check_command(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of a command's options. Raises UsageError if kcard would refuse them before it runs."""
    command, rest = command_of(words)
    values: dict[str, Any] = command.make_context("kcard", rest).params
    return values
