"""Tiny models of the selectors' architectures, made once, and an empty cache of models."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import tests.tiny_models as tiny
from kcard.selectors import checkers

# The folder of a tiny model by the name of its selector or architecture.
Folder: TypeAlias = Callable[[str], Path]

MAKERS: dict[str, Callable[[Path], Path]] = {
    "vitaminc": tiny.vitaminc,
    "factkb": lambda path: tiny.factkb(path, pickled=True),
    "factcg": lambda path: tiny.factcg(path, checkers.FACTCG.template),
    "hhem": lambda path: tiny.hhem(path, checkers.HHEM.template),
    "nli": tiny.nli,
    "mpnet": tiny.mpnet,
    "modernbert": tiny.modernbert,
    "pegasus": tiny.pegasus,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("tiny-models")
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = MAKERS[name](root / name)
        return made[name]

    return get


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.empty_cache(tmp_path / "cache", monkeypatch)
