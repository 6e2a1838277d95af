"""docs/extending.md: the package of an outsider, as it stands on the page, is found and used."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
MAKE = """
import json, sys
from pathlib import Path
from kcard.cards.card import finish
from kcard.hub.registry import Hub
from kcard.manifest import Manifest
from kcard.types import Source

folder = Path(sys.argv[1])
folder.mkdir()
(folder / "almanac.json").write_text(json.dumps({"tide": "The tide turns at six."}))
manifest = Manifest(name="tides", description="tides of the coast", kind="almanac")
finish(folder, manifest, [Source("The tide turns at six.")])
Hub().publish(folder)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's package and its metadata, as an installation leaves them."""
    folder = tmp_path_factory.mktemp("site")
    page = PAGE.read_text(encoding="utf-8")
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code, encoding="utf-8")
        assert len(code.splitlines()) < 40
    (folder / "almanac" / "__init__.py").touch()
    project = tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])["project"]  # type: ignore[index]
    metadata = folder / "almanac-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    assert len(groups) == 4
    return folder


@pytest.fixture(scope="module")
def home(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub with a card of the package's kind."""
    home = tmp_path_factory.mktemp("home")
    run(package, home, "-c", MAKE, str(home / "tides"))
    return home


def run(package: Path, home: Path, *arguments: str) -> str:
    env = os.environ | {
        "KCARD_HOME": str(home),
        "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_gate_an_llm_and_a_kind_of_card_are_used_by_name(package: Path, home: Path) -> None:
    asked = "-m", "kcard", "ask", "--json", "--llm", "shout:loud", "--gate", "long", "--mode", "bottom-up"
    answer = json.loads(run(package, home, *asked, "When does the tide turn?"))
    assert answer["answer"] == "THE TIDE TURNS AT SIX."
    assert answer["gate"] == {"name": "long", "score": 0.0, "fired": True}
    assert answer["cards"] == ["tides"]
    assert not json.loads(run(package, home, *asked, "The tide?"))["gate"]["fired"]


def test_a_task_is_evaluated_by_name(package: Path, home: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("When does the tide turn? | The tide turns at six.\n", encoding="utf-8")
    command = ["eval", "lines", "--path", str(questions), "--settings", "direct,bottom-up", "--json"]
    lines = run(package, home, "-m", "kcard", *command, "--llm", "shout:loud").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["task"], row["setting"], row["em"]) for row in rows] == [
        ("lines", "direct", 0.0),
        ("lines", "bottom-up", 1.0),
    ]
