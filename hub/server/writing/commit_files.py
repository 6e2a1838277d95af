"""Turns the lines of a commit into operations, and checks and stores its files."""

import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_file
from kcard.hub.checks.paths import check_path
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.file_entries import git_oid, pointer_oid
from kcard.hub.repositories.values import Add, Delete, DeleteFolder, Entry, Operation
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.commit_lines import Inline, Large, Line
from kcard.hub.shared import SharedHub

__all__ = ["CommitFiles"]


@dataclass(frozen=True)
class CommitFiles:
    """The files of one commit. Inline files stay in `folder` until all lines are valid."""

    hub: SharedHub
    options: ServerOptions
    identity: Identity
    folder: Path
    _waiting: dict[str, tuple[Path, str, int]] = field(default_factory=dict)

    def operation(self, line: Line) -> Operation:
        """The operation of a line. Raises Invalid, Dangerous or TooLarge for a file that is not allowed."""
        match line:
            case Inline(path, content):
                check_path(path)
                return Add(self._inline(path, content))
            case Large(path, sha256, size):
                check_path(path)
                return Add(self._large(path, sha256, size))
            case Delete(path) | DeleteFolder(path):
                check_path(path)
                return line
            case _:
                raise Invalid("unexpected header: a commit has one, in its first line")

    def store(self) -> None:
        """Store the inline files as uploads of the committing account."""
        if self._waiting:
            self.hub.uploads.store_all(self.identity.account_id, list(self._waiting.values()))

    def _inline(self, path: str, content: bytes) -> Entry:
        check_file(path, len(content), lambda: BytesIO(content))
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 not in self._waiting:
            waiting = self.folder / sha256
            waiting.write_bytes(content)
            self._waiting[sha256] = (waiting, sha256, len(content))
        return Entry(path, git_oid(content), sha256, len(content), lfs=False)

    def _large(self, path: str, sha256: str, size: int | None) -> Entry:
        """A file that was uploaded before. Knowing its sha256 gives no access to it."""
        there = self.hub.uploads.usable(self.identity, sha256)
        if there is None:
            raise Invalid(f"{path}: no upload with sha256 {sha256}: upload the file first")
        if size not in {None, there}:
            raise Invalid(f"{path}: the upload with sha256 {sha256} has {there} bytes, not {size}")
        if there > self.options.max_file_size:
            raise TooLarge(f"{path} has {there} bytes: the limit is {self.options.max_file_size}")
        check_file(path, there, lambda: self.hub.blobs.open(sha256))
        return Entry(path, pointer_oid(sha256, there), sha256, there, lfs=True)
