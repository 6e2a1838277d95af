"""Chromium, driven by Playwright; skipped where one of them is missing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


PROGRAM = os.environ.get("KCARD_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-background-networking"]
WIDE, PHONE = (1280, 900), (390, 844)
LARGEST = 150_000  # bytes of a page
FOCUS = (
    "[document.activeElement.id || document.activeElement.ariaLabel || document.activeElement.textContent,"
    " getComputedStyle(document.activeElement).outlineStyle]"
)


@contextmanager
def launched() -> Iterator["Browser"]:
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: "Browser",
    site: str,
    path: str = "/",
    *,
    narrow: bool = False,
    scripts: bool = True,
    permissions: tuple[str, ...] = (),
) -> Iterator["Page"]:
    """A page with cookies of its own, which requests nothing from elsewhere and whose console has no errors."""
    width, height = PHONE if narrow else WIDE
    context = browser.new_context(
        viewport={"width": width, "height": height},
        java_script_enabled=scripts,
        permissions=list(permissions),
    )
    context.set_default_timeout(30_000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(site) else wrong.append(request.url))
    try:
        page.goto(site + path)
        yield page
        # The browser reports answers that are no success.
        assert [text for text in wrong if "Failed to load resource" not in text] == []
    finally:
        context.close()


def require_accessible(page: "Page", largest: int = LARGEST) -> None:
    """No violation in light and dark; neither wider than the screen nor large."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    for scheme, options in (
        ("light", {}),
        ("dark", {"runOnly": {"type": "rule", "values": ["color-contrast"]}}),
    ):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        results = Axe().run(page, options=options)
        assert results.response["violations"] == [], f"{page.url}: {results.generate_report()}"
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth"), page.url
    assert len(page.content().encode()) < largest, page.url


def tab_to(page: "Page", name: str) -> None:
    """Press the tab key until what has this id, label or text has the focus, which must be visible."""
    for _ in range(80):
        page.keyboard.press("Tab")
        focused, outline = page.evaluate(FOCUS)
        assert outline != "none", f"no visible focus on {focused!r}"
        if focused == name:
            return
    raise AssertionError(f"the tab key does not reach {name!r}")
