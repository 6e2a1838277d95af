"""What tests of cards on other bases share."""

from pathlib import Path

import pytest

from tests.training.bases import FACTS, SHAPES, make_base


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {shape: make_base(folder, shape) for shape in SHAPES}


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is reported, however fast the machine is."""
    monkeypatch.setattr("kcard.training.run.REPORT_SECONDS", 0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "towns.txt"
    path.write_text("\n".join(FACTS) + "\n")
    return path
