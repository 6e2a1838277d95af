"""The README's commands run, in order, in a fresh home, and print what it says that they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kcard

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def session() -> list[tuple[str, list[str]]]:
    """Return the kcard commands of the README's console blocks, each with the lines shown under it."""
    steps = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            if command.startswith("kcard"):
                steps.append((command, shown))
    return steps


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_session_of_the_readme_runs_and_answers_as_shown(home: Path) -> None:
    folder = Path(sys.executable).parent
    environment = {**os.environ, "KCARD_HOME": str(home), "PATH": f"{folder}:{os.environ['PATH']}"}
    for command, shown in session():
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=580,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if command.startswith("kcard ask"):
            # All lines but the seconds of the last one.
            lines = [
                re.sub(r"\d\.\d\d s$", "… s", line)
                for line in [*done.stdout.splitlines(), *done.stderr.splitlines()]
            ]
            assert {re.sub(r"\d\.\d\d s$", "… s", line) for line in shown} <= set(lines)


def test_the_readme_shows_a_result_within_its_first_40_lines() -> None:
    head = "\n".join(README.splitlines()[:40])
    assert "kcard ask" in head
    assert "<- moons (retrieval) <-" in head


def test_the_python_example_names_what_exists() -> None:
    (code, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for name in re.findall(r"kcard\.(\w+)", code):
        assert hasattr(kcard, name), name
