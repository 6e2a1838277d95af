"""What git calls a file: the sha1 of its bytes, or, of a large one, of the pointer that stands for it."""

import hashlib

__all__ = ["git_oid", "pointer", "pointer_oid"]


def git_oid(content: bytes) -> str:
    """The oid of a file of these bytes."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def pointer_oid(sha256: str, size: int) -> str:
    """The oid of the LFS pointer of a file."""
    return git_oid(pointer(sha256, size))


def pointer(sha256: str, size: int) -> bytes:
    """What git keeps in place of a large file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
