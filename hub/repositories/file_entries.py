"""How a file of a card stands in a commit: text as git has it, everything else as a large file."""

from collections.abc import Callable

from kcard.errors import DamagedCard
from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.refusals import Refused
from kcard.hub.repositories.git_oid import git_oid, pointer_oid
from kcard.hub.repositories.values import Entry
from kcard.hub.store.blobs import Blob

__all__ = ["file_entry"]

TEXTS = frozenset(["text", "json", "jsonl", "yaml", "readme"])
LARGEST_TEXT = 4_000_000  # bytes; a larger one is a large file, as in an upload


def file_entry(path: str, blob: Blob, content: Callable[[str], bytes]) -> Entry:
    """The entry of a file. `content` gives the bytes of a path; text that is damaged becomes a large file."""
    if _is_text(path, blob.size):
        try:
            return Entry(path, git_oid(content(path)), blob.sha256, blob.size, lfs=False)
        except DamagedCard:
            pass  # whoever uses the card is told what is damaged
    return Entry(path, pointer_oid(blob.sha256, blob.size), blob.sha256, blob.size, lfs=True)


def _is_text(path: str, size: int) -> bool:
    try:
        return size <= LARGEST_TEXT and kind_of(path, size).form in TEXTS
    except Refused:  # a kind of file that a client can't upload
        return False
