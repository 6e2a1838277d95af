"""Every call of the installed Hugging Face client that a hub must answer; matrix.py makes them with older ones too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.matrix import Hub, calls
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        yield shared


@pytest.mark.slow
def test_the_installed_client_makes_all_its_calls(shared: Shared) -> None:
    results = calls(Path(sys.executable), Hub(shared.url, (shared.tokens["bob"], shared.tokens["dan"])))
    assert len(results) > 45
    assert [result for result in results if not result["ok"]] == []
