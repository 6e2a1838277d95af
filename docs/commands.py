"""Writes docs/commands.md from the commands' own help: `python docs/commands.py`; with --check, only compares."""

import os
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("commands.md")
COMMANDS = (
    "train",
    "exam",
    "publish",
    "cards list",
    "cards search",
    "show",
    "pull",
    "remove",
    "verify",
    "alias",
    "ask",
    "browse",
)


def page() -> str:
    """One section a command, with its help as a terminal of 100 columns shows it."""
    sections = [f"## kcard {name}\n\n```text\n{helped(name)}\n```\n" for name in COMMANDS]
    return "# Commands\n\nWritten by `python docs/commands.py` from the commands' own help.\n\n" + "\n".join(
        sections
    )


def helped(name: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"}
    command = [sys.executable, "-m", "kcard", *name.split(), "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return "\n".join(line.rstrip() for line in shown.strip().splitlines()).replace("python -m kcard", "kcard")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.read_text(encoding="utf-8") == page()
            else "docs/commands.md is stale: run docs/commands.py"
        )
    TARGET.write_text(page(), encoding="utf-8")
