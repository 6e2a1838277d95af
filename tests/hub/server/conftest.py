"""The browser of somebody who is logged in to the hub that a module's fixture `shared` serves."""

import pytest

from tests.hub.server.browser_session import Browser
from tests.hub.shared_hub import Shared


@pytest.fixture
def bob(shared: Shared) -> Browser:
    return Browser(shared).log_in("bob")
