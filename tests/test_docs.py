"""What the docs say holds: every command is documented, every link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import typer

from kcard.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(group: typer.Typer, prefix: str = "") -> list[str]:
    own = [prefix + (c.name or c.callback.__name__) for c in group.registered_commands if c.callback]
    nested = [
        commands(g.typer_instance, f"{prefix}{g.name} ") for g in group.registered_groups if g.typer_instance
    ]
    return own + [name for names in nested for name in names]


def test_every_command_is_on_the_commands_page_with_its_help() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [c for c in commands(app) if f"## kcard {c.replace('list_cards', 'list')}\n" not in page] == []
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "commands.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
    assert "kept  moons" in head
