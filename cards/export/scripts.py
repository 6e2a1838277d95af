"""The shell scripts of an export: they start an engine, or tell Ollama of the cards."""

import shlex
from collections.abc import Sequence
from pathlib import Path

__all__ = ["START", "write_script"]

START = "start.sh"


def write_script(
    path: Path, comment: str, commands: Sequence[Sequence[Sequence[str]]], passed_on: bool
) -> None:
    """Write a script that runs the commands in its own folder, one after the other.

    commands   of each, the words of every line
    passed_on  whether the script's arguments are given to its only command
    """
    lines = ["#!/bin/sh", f"# {comment}", "set -eu", 'cd "$(dirname "$0")"']
    for number, command in enumerate(commands):
        first, *rest = [" ".join(map(_word, line)) for line in command]
        end = ['"$@"'] if passed_on and number == len(commands) - 1 else []
        lines.append(" \\\n  ".join([f"exec {first}" if passed_on else first, *rest, *end]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)


def _word(word: str) -> str:
    """A word quoted for the shell, but for the variables that a script offers."""
    return f'"{word}"' if word.startswith("${") else shlex.quote(word)
