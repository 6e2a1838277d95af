"""How much a request counts against the rate limit: one for a download, more for what takes more processor time."""

import re
from urllib.parse import parse_qsl

__all__ = ["cost"]

DOWNLOAD, USUAL, DEAR = 1, 4, 20  # about 3 ms of processor time each
# Files, up and down. Other paths of /api may contain the same words.
FILES = re.compile(r"/(?!api/)(?:datasets/)?[^/]+/[^/]+/(?:resolve|raw)/.|/lfs/")
# Descriptions of many repositories or files, and texts that are parsed.
DEAR_PATHS = re.compile(r"/api/validate-yaml|/api/[^/]+/[^/]+/[^/]+/paths-info/|/api/(?!whoami)[^/]+\Z")
DEAR_PARAMETERS = frozenset(["cardData", "config", "expand", "full", "search", "q", "tag"])


def cost(path: str, query: bytes) -> int:
    """The cost of a request in downloads; `path` is the undecoded path."""
    if FILES.match(path):
        return DOWNLOAD
    names = {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
    return DEAR if DEAR_PATHS.match(path) or names & DEAR_PARAMETERS else USUAL
