"""Chromium, driven by Playwright; skipped where one of them is missing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

__all__ = ["Errors", "launched", "opened"]

PROGRAM = os.environ.get("KCARD_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-background-networking"]
WIDE, NARROW = (1280, 900), (390, 844)


class Errors:
    """What the console of a page complains about; answers that are no success are not counted."""

    def __init__(self, page: "Page") -> None:
        self.messages: list[str] = []
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def _note_message(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.messages.append(message.text)


@contextmanager
def launched() -> Iterator["Browser"]:
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: "Browser", *, narrow: bool = False, scripts: bool = True) -> Iterator["Page"]:
    """An empty page with cookies of its own."""
    width, height = NARROW if narrow else WIDE
    viewport = {"width": width, "height": height}
    context = browser.new_context(viewport=viewport, java_script_enabled=scripts)  # type: ignore[arg-type]
    context.set_default_timeout(10_000)
    yield context.new_page()
    context.close()
