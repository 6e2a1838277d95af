"""Makes the pictures of the hub's pages for the docs: python -m tests.hub.server.pictures docs/pictures"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.hub.server.sample_cards import CARDS, LONG, fill, publish_unranked
from tests.hub.shared_hub import shared_hub

DESKTOP: ViewportSize = {"width": 1200, "height": 780}
PHONE: ViewportSize = {"width": 390, "height": 780}
# File, page, colours and size.
PICTURES: tuple[tuple[str, str, Literal["light", "dark"], ViewportSize], ...] = (
    ("hub-home.png", "/?sort=factuality", "light", DESKTOP),
    ("hub-card.png", "/lab/moons", "dark", {"width": 1200, "height": 1060}),
    ("hub-leaderboard.png", "/leaderboard", "light", {"width": 1200, "height": 900}),
    ("hub-phone.png", "/lab/moons", "light", PHONE),
)


def main(target: Path) -> None:
    """Write the pictures to a folder."""
    CARDS[:] = [card for card in CARDS if card[0] != LONG]
    with tempfile.TemporaryDirectory() as home, shared_hub(Path(home) / "hub") as shared:
        fill(shared)
        publish_unranked(shared)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
            )
            for name, path, scheme, size in PICTURES:
                _take(browser, shared.url + path, scheme, size, target / name)
            browser.close()


def _take(
    browser: Browser, url: str, scheme: Literal["light", "dark"], size: ViewportSize, target: Path
) -> None:
    page = browser.new_page(color_scheme=scheme, viewport=size)
    page.goto(url)
    page.screenshot(path=target)
    page.close()
    with Image.open(target) as image:  # the pages have few colours
        image.convert("RGB").quantize(128).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
