"""READMEs as HTML, each rendered once: the ones that were shown last are kept by their sha256."""

import secrets
import threading

from kcard.hub.checks.front_matter import LARGEST as LONGEST_FRONT
from kcard.hub.checks.front_matter import split
from kcard.hub.checks.readme_html import LONGEST, render
from kcard.hub.repositories.values import Entry
from kcard.hub.server.reading.sized_cache import SizedCache
from kcard.hub.store.blobs import Blobs

__all__ = ["Readmes"]

MOST, KEY = 8 << 20, 500  # characters of HTML, and what each README takes besides
READ = 4 * (LONGEST_FRONT + LONGEST)  # bytes of a README.md that may be shown
# Stands for the path of a repository's files, which the same text may have in several. Nobody can write it.
FILES = f"/{secrets.token_hex(16)}"


class Readmes:
    """README.md files as safe HTML. Thread-safe."""

    def __init__(self, blobs: Blobs, most: int = MOST) -> None:
        self._blobs = blobs
        self._shown: SizedCache[str, str] = SizedCache(most)
        self._turn = threading.Lock()

    def html(self, entry: Entry, files: str) -> str:
        """The text below the metadata, cut if it is long; `files` is the path of the repository's files.

        Raises DamagedCard if the file is missing, HubError if the store is unavailable.
        """
        found = self._shown.get(entry.sha256)
        if found is None:
            with self._turn:  # what others render meanwhile is not rendered again
                found = self._shown.get(entry.sha256) or self._rendered(entry)
        return found.replace(FILES, files)

    def _rendered(self, entry: Entry) -> str:
        with self._blobs.open(entry.sha256) as stream:
            text = stream.read(READ).decode(errors="replace")
        rendered = render(split(text)[1], FILES)
        self._shown.put(entry.sha256, rendered, KEY + len(rendered))
        return rendered
