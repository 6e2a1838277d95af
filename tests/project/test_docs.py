"""What the docs say holds: every command is documented, every link leads somewhere."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.command_line import UsageError, check_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/log.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))


def test_every_command_is_on_the_commands_page_with_its_help() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(ROOT / "docs" / "commands.py"))["page"](), "run python docs/commands.py"


def commands_of(text: str) -> list[str]:
    """The kcard commands of a page: those in its shell blocks, and those in its sentences."""
    commands = re.findall(r"`(kcard [^`\n|…]+)`", text)
    for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            parts = re.split(r"&&| \| ", re.sub(r"^\$ |\s#.*", "", line))
            commands += [part.strip() for part in parts if part.strip().startswith("kcard ")]
    return commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_that_a_page_shows_exists(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "log.md"):
        pytest.skip("names what was removed")
    missing = []
    for command in commands_of(page.read_text(encoding="utf-8")):
        try:
            check_options(shlex.split(command)[1:])
        except UsageError as error:
            missing.append(f"{command}: {error.message}")
    assert missing == []


NAMED_FILE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|toml|json|tsv))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere_and_every_file_that_it_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [page.parent / target for target in re.findall(r"\]\((?!https?:)([^)#]+)", text)]
    names = [ROOT / name for name in NAMED_FILE.findall(text) if (ROOT / name.split("/")[0]).is_dir()]
    assert [str(path) for path in (*links, *names) if not path.exists()] == []


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
