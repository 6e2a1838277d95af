"""The README's commands run, in order, in a fresh home, and print what it says that they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def session() -> list[tuple[str, list[str]]]:
    """The `kcard` commands of the README's first console block, each with the lines shown under it."""
    (block, *_) = re.findall(
        r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    steps = [(command, shown.splitlines()) for command, _, shown in (part.partition("\n") for part in parts)]
    return [(command, shown) for command, shown in steps if command.startswith("kcard")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_session_of_the_readme_runs_and_answers_as_shown(home: Path) -> None:
    environment = {
        **os.environ,
        "KCARD_HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
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
            assert done.stdout.splitlines()[0] == shown[0]


def test_the_python_example_names_what_exists() -> None:
    import kcard

    (code, *_) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    for name in re.findall(r"kcard\.(\w+)", code):
        assert hasattr(kcard, name), name
