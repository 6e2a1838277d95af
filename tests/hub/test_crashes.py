"""A process killed between any two steps leaves the hub whole; tests/hub/kills.py kills and looks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")


def kill(folder: Path, repetitions: int, every: int) -> list[tuple[str, str]]:
    """Make the kills; the operation and the effect of each."""
    command = [sys.executable, "-m", "tests.hub.kills", folder, repetitions, every]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, cwd=ROOT)
    output = json.loads(done.stdout)
    assert output["wrong"] == [], done.stderr
    return [(operation, effect) for operation, effect in output["kills"]]


def test_a_kill_here_and_there_leaves_the_hub_whole(tmp_path: Path) -> None:
    assert len(kill(tmp_path, repetitions=1, every=90)) >= 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_before_every_effect_of_every_operation_leaves_the_hub_whole(tmp_path: Path) -> None:
    killed = kill(tmp_path, repetitions=1, every=1)
    assert len(killed) >= 300
    assert {"commit", "insert", "end"} <= {effect for _, effect in killed}
    assert {"rename", "unlink", "link"} <= {effect.partition("-")[0] for _, effect in killed}
