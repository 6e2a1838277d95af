"""What the docs say holds: every command is documented, every link leads somewhere."""

import re
import runpy
from pathlib import Path
from typing import Any

from typer.main import get_command

from kcard.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(group: Any, prefix: str = "") -> list[str]:
    found = [(name, group.get_command(None, name)) for name in group.commands]
    own = [prefix + name for name, command in found if not hasattr(command, "commands")]
    nested = [
        commands(command, f"{prefix}{name} ") for name, command in found if hasattr(command, "commands")
    ]
    return own + [name for names in nested for name in names]


def test_every_command_is_on_the_commands_page_with_its_help() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [c for c in commands(get_command(app)) if f"## kcard {c}\n" not in page] == []
    assert page == runpy.run_path(str(ROOT / "docs" / "commands.py"))["page"](), "run python docs/commands.py"


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_readme_shows_a_result_within_its_first_40_lines() -> None:
    head = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40])
    assert "kcard ask" in head
    assert "<- moons (retrieval) <-" in head
