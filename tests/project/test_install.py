"""Installing: what the wheel says of itself, and what the extras are for."""

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

import kcard

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
EXTRAS = sorted(PROJECT["optional-dependencies"])
PARTS = ("cards", "cli", "evaluation", "gates", "hub", "integrators", "llms", "selectors", "src", "training")


def test_the_page_names_the_wheel_as_it_is_built() -> None:
    wheel = f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
    assert PROJECT["version"] == kcard.__version__
    assert {*re.findall(r"kcard-[\w.-]+\.whl", PAGE)} == {wheel}
    assert wheel in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_says_what_each_extra_is_for_and_so_does_the_project_file() -> None:
    assert sorted(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)) == EXTRAS
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    begun = lines.index("[project.optional-dependencies]")
    for extra in EXTRAS:
        place = next(i for i, line in enumerate(lines) if i > begun and line.startswith(f"{extra} = ["))
        assert lines[place - 1].startswith("# "), extra


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra not in ("dev", "dev-all", "docs")])
def test_an_error_names_the_extra_that_is_missing(extra: str) -> None:
    files = [file for part in PARTS for file in (ROOT / part).rglob("*.py")]
    assert any(f"kcard[{extra}]" in file.read_text(encoding="utf-8") for file in files)


def test_what_is_pinned_runs_on_the_first_python_that_is_supported() -> None:
    """Debian 12 has Python 3.11.2: a pin that needs a later one stops the installation there."""
    first = PROJECT["requires-python"].removeprefix(">=") + ".0"
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    too_new = []
    for name in pins:
        with contextlib.suppress(PackageNotFoundError):  # of another extra
            needs = metadata(name)["Requires-Python"]
            if needs and not SpecifierSet(needs).contains(first):
                too_new.append(f"{name} ({needs})")
    assert not too_new


def test_the_page_removes_what_kcard_leaves_in_a_home_directory(tmp_path: Path) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes.txt"
    home.mkdir()
    notes.write_text("Ada keeps the keys.\nBo winds the clock.\n", encoding="utf-8")
    variables = {
        **os.environ,
        "HOME": str(home),
        "KCARD_HOME": "",
        "SHELL": "/bin/bash",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",  # no shell need be among the parents of the tests
    }
    program = Path(sys.executable).with_name("kcard")
    commands = (
        ("ask", "--corpus", str(notes), "Who keeps the keys?"),
        ("train", str(notes), "--kind", "retrieval", "--description", "keys and clocks"),
        ("publish", "notes"),
        ("--install-completion", "bash"),
        ("config", "get", "home"),
    )
    for command in commands:
        options: Any = {"env": variables, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run([program, *command], check=False, **options)
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(home / ".kcard")
    assert {path.name for path in home.iterdir()} == {".kcard", ".bash_completions", ".bashrc"}

    script = re.findall(r"```bash\n(rm .*?)^pip", PAGE, re.DOTALL | re.MULTILINE)[0]
    subprocess.run(["bash", "-ec", script], env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, check=True)
    assert [path for path in home.rglob("*") if path.is_file()] == [home / ".bashrc"]
