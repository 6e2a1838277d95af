"""Hubs with cards that only look up: trained and published once, copied for each test."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

import kcard
from kcard.hub.registry import Hub

# The home's hub with these cards: their texts by name, or (description, text).
HubOf: TypeAlias = Callable[[Mapping[str, str | tuple[str, str]]], Hub]


@pytest.fixture(scope="session")
def homes() -> dict[str, Path]:
    """Homes of published cards, by what they were made of."""
    return {}


@pytest.fixture
def hub_of(
    homes: dict[str, Path],
    home: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> HubOf:
    def copied(texts: Mapping[str, str | tuple[str, str]]) -> Hub:
        key = repr(texts)
        if key not in homes:
            folder = tmp_path_factory.mktemp("published")
            monkeypatch.setenv("KCARD_HOME", str(folder / "home"))
            for name, given in texts.items():
                description, text = (name, given) if isinstance(given, str) else given
                (folder / f"{name}.txt").write_text(text, encoding="utf-8")
                card = kcard.train(folder / f"{name}.txt", kind="retrieval", description=description)
                kcard.publish(card.folder)
            monkeypatch.setenv("KCARD_HOME", str(home))
            homes[key] = folder / "home"
        shutil.copytree(homes[key], home)
        return Hub(home)

    return copied
