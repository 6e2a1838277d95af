"""Every command that the demo runs is one that kcard has; `make demo` runs them in earnest."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.command_line import UsageError, check_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_run", ROOT / "demo" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def commands(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that the demo has run. They print nothing, and cards answer every question rightly."""
    commands: list[list[str]] = []

    def run(command: Sequence[str], **_: Any) -> SimpleNamespace:
        words = list(command)[len(demo.command()) :]
        commands.append(words)
        if "--output" in words:
            lines = Path(words[words.index("--input") + 1]).read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            for row in rows:
                row["answer"] = "I don't know." if "direct" in words else row["answers"][0]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            Path(words[words.index("--output") + 1]).write_text(text, encoding="utf-8")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(demo.subprocess, "run", run)
    return commands


def test_kcard_takes_every_command_of_the_demo(
    demo: ModuleType,
    commands: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("KCARD_HOME", "OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")  # the demo sets them
    monkeypatch.setattr(sys, "argv", ["run.py", "--home", str(tmp_path / "home")])
    assert demo.main() == 0
    assert {words[0] for words in commands} == {"train", "publish", "ask", "browse"}
    for words in commands:
        check_command(words)
    assert "top-down       36 of 36 right" in capsys.readouterr().out


def test_an_option_that_kcard_lost_is_noticed() -> None:
    with pytest.raises(UsageError, match="--bogus"):
        check_command(["browse", "moons", "--bogus"])
