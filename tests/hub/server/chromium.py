"""Chromium, driven by Playwright; skipped where one of them is missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page

__all__ = ["Errors", "opened"]

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-background-networking"]
WIDE, NARROW = (1280, 900), (390, 844)


class Errors:
    """What the console of a page complains about; answers that are no success are not counted."""

    def __init__(self, page: "Page") -> None:
        self.messages: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def _said(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.messages.append(message.text)


@contextmanager
def opened(*, narrow: bool = False, scripts: bool = True) -> Iterator["BrowserContext"]:
    """A fresh browser with its own cookies."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed")
    width, height = NARROW if narrow else WIDE
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        context = browser.new_context(
            viewport={"width": width, "height": height}, java_script_enabled=scripts
        )
        context.set_default_timeout(10_000)
        try:
            yield context
        finally:
            context.close()
            browser.close()
