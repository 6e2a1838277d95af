"""docs/first_change.md: the change on the page makes its test pass, and is not in the tree yet."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "first_change.md").read_text(encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout whose `training/` may be changed, with the page's test; all else are links."""
    shutil.copytree(ROOT / "training", tmp_path / "training")
    package = tmp_path / "src" / "kcard"
    package.mkdir(parents=True)
    for path in (ROOT / "src" / "kcard").iterdir():
        target = tmp_path / "training" if path.name == "training" else path.resolve()
        (package / path.name).symlink_to(target)
    name, code = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


def run_tests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> "subprocess.CompletedProcess[str]":
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"))
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "-c", "/dev/null", "tests"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_change_on_the_page_makes_its_test_pass(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_tests(copy, monkeypatch)
    assert before.returncode == 1
    assert "depot.qmd is a .qmd file: kcard reads .txt" in before.stdout

    (diff,) = re.findall(r"```diff\n--- a/(\S+)\n (.*\n)\+(.*\n)```", PAGE)
    file, context, added = diff
    text = (copy / file).read_text(encoding="utf-8")
    assert text.count(context) == 1
    assert added not in text
    (copy / file).write_text(text.replace(context, context + added), encoding="utf-8")
    after = run_tests(copy, monkeypatch)
    assert after.returncode == 0, after.stdout
