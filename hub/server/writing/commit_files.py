"""What the lines of a commit mean: each becomes an operation, and the files in it are checked and stored."""

import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_file
from kcard.hub.checks.paths import check_path
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.git_oid import git_oid, pointer_oid
from kcard.hub.repositories.values import Add, Delete, DeleteFolder, Entry, Operation
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.commit_lines import Inline, Large, Line
from kcard.hub.shared import SharedHub

__all__ = ["CommitFiles"]


@dataclass(frozen=True)
class CommitFiles:
    """The files of one commit. Those that came inside it wait in `folder` until all lines are good."""

    hub: SharedHub
    options: ServerOptions
    identity: Identity
    folder: Path
    _waiting: dict[str, tuple[Path, str, int]] = field(default_factory=dict)

    def operation(self, line: Line) -> Operation:
        """What the line wants done. Raises Invalid, Dangerous or TooLarge for a file that may not be stored."""
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
                raise Invalid("a commit has one header, and it comes first")

    def store(self) -> None:
        """Put what came inside the commit into the store, as uploads of whoever commits."""
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
        """A file that was uploaded before; to know its sha256 is no right to it."""
        there = self.hub.uploads.usable(self.identity, sha256)
        if there is None:
            raise Invalid(f"{path}: no file with sha256 {sha256} was uploaded: upload it first")
        if size not in {None, there}:
            raise Invalid(f"{path}: the file with sha256 {sha256} has {there} bytes, not {size}")
        if there > self.options.max_file_size:
            raise TooLarge(f"{path} has {there} bytes: this hub takes files of {self.options.max_file_size}")
        check_file(path, there, lambda: self.hub.blobs.open(sha256))
        return Entry(path, pointer_oid(sha256, there), sha256, there, lfs=True)
