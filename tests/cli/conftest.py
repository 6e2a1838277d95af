"""A small corpus for the commands."""

from pathlib import Path

import pytest

from tests.corpora import MOONS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file with three facts about moons."""
    (tmp_path / "moons.txt").write_text(MOONS, encoding="utf-8")
    return tmp_path / "moons.txt"
