"""Hubs for one test, or for all tests of a module; a module that needs another one has its own fixture of that name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.hub.db.models import Repository
from tests.hub.postgres import each_database  # noqa: F401 (a fixture)
from tests.hub.shared_hub import Shared, shared_hub
from tests.hub.stand import Stand, stand


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[Stand]:
    """A shared hub without its server, on each database."""
    with stand(tmp_path / "hub", any_database) as opened_hub:
        yield opened_hub


@pytest.fixture
def card(hub: Stand) -> Repository:
    """A repository without a card."""
    return hub.make("ada/onco")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A served hub."""
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        yield shared
