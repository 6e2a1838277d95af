"""What the docs say holds: every command is documented, every link leads somewhere."""

import re
import runpy
from pathlib import Path
from typing import Any

from typer.main import get_command

from kcard.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/log.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))


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


SECURITY = ROOT / "docs" / "server-security.md"
# In the last cell of a row: the letter of a file, a name of a file or of a test, or the end of a list.
TEST_NAMES = re.compile(r"(?<![\w`])([A-Z])(?=[ ,;]|$)|`([^`]+)`|(;)")


def letters(section: str) -> dict[str, Path]:
    """The test files that single letters stand for in a section; names without a folder are in tests/hub/server/."""
    files: dict[str, Path] = {}
    for sentence in re.findall(r"((?:[A-Z](?:, | and | ))+(?:stand )?for\s[^;|]+?\.py`[.;])", section):
        names, _, paths = sentence.partition("for")
        found = re.findall(r"`([^`]+)`", paths)
        for letter, path in zip(re.findall(r"\b[A-Z]\b", names), found, strict=True):
            files[letter] = file_of(path)
    return files


def file_of(path: str) -> Path:
    return ROOT / path if "/" in path else ROOT / "tests" / "hub" / "server" / path


def test_the_security_page_names_only_tests_that_exist() -> None:
    missing = []
    for section in SECURITY.read_text(encoding="utf-8").split("\n## "):
        by_letter = letters(section)
        for row in re.findall(r"^\|.*\|$", section, re.MULTILINE):
            files: list[Path] = []
            is_after_name = False
            for letter, name, end in TEST_NAMES.findall(row.removesuffix(" |").rpartition("| ")[2]):
                # One or several files, then the names of tests that each of them has.
                if end:
                    is_after_name = True
                    continue
                if letter or name.endswith(".py"):
                    files = [] if is_after_name else files
                    files.append(by_letter.get(letter, ROOT / letter) if letter else file_of(name))
                    missing += [path.name for path in files if not path.is_file()]
                    is_after_name = False
                    continue
                assert files, row
                is_after_name = True
                test = re.compile(
                    rf"^(?:async )?def test_{re.escape(name).replace('…', '.*')}\(", re.MULTILINE
                )
                for path in files:
                    if path.is_file() and not test.search(path.read_text(encoding="utf-8")):
                        missing.append(f"{path.name}: {name}")
    assert missing == []
