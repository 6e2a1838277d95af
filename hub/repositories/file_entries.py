"""Entries of files in a commit, with git's object ids: text as regular files, everything else as large files."""

import hashlib
from collections.abc import Callable

from kcard.errors import DamagedCard
from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.refusals import Refused
from kcard.hub.repositories.values import Entry
from kcard.hub.store.blobs import Blob

__all__ = ["TEXTS", "file_entry", "git_oid", "pointer", "pointer_oid"]

# Forms of files that are regular files in a commit, if small.
TEXTS = frozenset(["text", "json", "jsonl", "yaml", "readme"])
LARGEST_TEXT = 4_000_000  # bytes; larger text is a large file, as in uploads


def file_entry(path: str, blob: Blob, content: Callable[[str], bytes]) -> Entry:
    """The entry of a file. `content` returns the bytes of a path; damaged text becomes a large file."""
    if _is_text(path, blob.size):
        try:
            return Entry(path, git_oid(content(path)), blob.sha256, blob.size, lfs=False)
        except DamagedCard:
            pass  # reported when the card is used
    return Entry(path, pointer_oid(blob.sha256, blob.size), blob.sha256, blob.size, lfs=True)


def _is_text(path: str, size: int) -> bool:
    try:
        return size <= LARGEST_TEXT and kind_of(path, size).form in TEXTS
    except Refused:  # a kind that clients can't upload
        return False


def git_oid(content: bytes) -> str:
    """The oid of a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def pointer_oid(sha256: str, size: int) -> str:
    """The oid of the LFS pointer of a file."""
    return git_oid(pointer(sha256, size))


def pointer(sha256: str, size: int) -> bytes:
    """The LFS pointer, which git stores in place of a large file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
