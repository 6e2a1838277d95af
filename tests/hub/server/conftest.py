"""Browsers of people who are logged in to the hub that a module's fixture `shared` serves."""

import pytest

from tests.hub.server.browser_session import Browser
from tests.hub.shared_hub import Shared


@pytest.fixture
def bob(shared: Shared) -> Browser:
    browser = Browser(shared).log_in("bob")
    browser.open("/settings/tokens")
    return browser


@pytest.fixture
def admin(shared: Shared) -> Browser:
    browser = Browser(shared).log_in("ada:admin")
    browser.open("/settings/tokens")
    return browser
