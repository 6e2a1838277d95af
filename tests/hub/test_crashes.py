"""A process killed between any two steps leaves the hub whole; hub_kills.py kills and looks."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kcard import faults

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")


def kill(folder: Path, repetitions: int, every: int) -> list[tuple[str, str]]:
    """Make the kills; the operation and the point of each."""
    command = [sys.executable, "-m", "tests.hub.kills", folder, repetitions, every]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout)
    assert found["wrong"] == [], done.stderr
    return [(operation, point) for operation, point in found["kills"]]


def test_a_kill_here_and_there_leaves_the_hub_whole(tmp_path: Path) -> None:
    assert len(kill(tmp_path, repetitions=1, every=40)) >= 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_at_every_point_of_every_operation_leaves_the_hub_whole(tmp_path: Path) -> None:
    killed = kill(tmp_path, repetitions=1, every=1)
    assert len(killed) >= 200
    assert {point for operation, point in killed if operation != "crowd"} == set(faults.POINTS)


def test_the_table_lists_exactly_the_points_in_the_code() -> None:
    places = [*ROOT.glob("hub/**/*.py"), *ROOT.glob("training/*.py"), *ROOT.glob("src/kcard/*.py")]
    named = [point for path in places for point in points(path)]
    assert set(named) == set(faults.POINTS)
    assert len(faults.POINTS) == len(set(faults.POINTS))


def points(path: Path) -> list[str]:
    """The names with which a source file calls `reach`, and those of the files that it replaces."""
    calls = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "reach"]
    found = [call.args[0].value for call in named if isinstance(call.args[0], ast.Constant)]
    faults = [
        str(k.value.value)
        for c in calls
        for k in c.keywords
        if k.arg == "fault" and isinstance(k.value, ast.Constant)
    ]
    return [*map(str, found), *(f"{name}.{when}" for name in faults for when in ("written", "placed"))]
