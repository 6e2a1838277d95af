"""Turns the lines of a commit into operations, and stores its files once they are checked."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_name
from kcard.hub.checks.paths import check_path
from kcard.hub.checks.verdicts import Candidate, opened
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.file_entries import git_oid, pointer_oid
from kcard.hub.repositories.values import Add, Delete, DeleteFolder, Entry, Operation
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.commit_lines import Inline, Large, Line
from kcard.hub.shared import SharedHub

__all__ = ["CommitFiles"]


@dataclass(frozen=True)
class CommitFiles:
    """The files of one commit. Inline files stay in `folder` until all files are checked.

    `candidates` has the path and the content of each file that is to be checked.
    """

    hub: SharedHub
    options: ServerOptions
    identity: Identity
    folder: Path
    candidates: list[tuple[str, Candidate]] = field(default_factory=list)
    _waiting: dict[str, tuple[Path, str, int]] = field(default_factory=dict)

    def operations(self, lines: Iterable[Line]) -> list[Operation]:
        """The operations of the lines. Raises Invalid, Dangerous or TooLarge for a path or size that is not allowed."""
        # Inline files go to the disk one by one; all large files are looked up at once.
        read = [self._added(line) if isinstance(line, Inline) else line for line in lines]
        large = {line.sha256 for line in read if isinstance(line, Large)}
        usable = self.hub.uploads.usable_of(self.identity, large) if large else {}
        return list(self._resolved(read, usable))

    def store(self, repository_id: int) -> None:
        """Store the inline files as uploads of the committing account. Raises TooLarge over quota."""
        if self._waiting:
            waiting = list(self._waiting.values())
            self.hub.uploads.store_all(self.identity.account_id, waiting, repository_id=repository_id)

    def _resolved(self, read: Iterable[Line | Add], usable: Mapping[str, int]) -> Iterator[Operation]:
        for line in read:
            match line:
                case Add():
                    yield line
                case Large():
                    yield Add(self._large(line, usable))
                case Delete(path) | DeleteFolder(path):
                    check_path(path)
                    yield line
                case _:
                    raise Invalid("unexpected header: a commit has one, in its first line")

    def _added(self, line: Inline) -> Add:
        content = line.content
        form = check_name(line.path, len(content))
        sha256 = hashlib.sha256(content).hexdigest()
        waiting = self.folder / sha256
        if sha256 not in self._waiting:
            waiting.write_bytes(content)
            self._waiting[sha256] = (waiting, sha256, len(content))
        candidate = Candidate(sha256, len(content), form, partial(opened, waiting))
        self.candidates.append((line.path, candidate))
        return Add(Entry(line.path, git_oid(content), sha256, len(content), lfs=False))

    def _large(self, line: Large, usable: Mapping[str, int]) -> Entry:
        """A file that was uploaded before. Knowing its sha256 gives no access to it."""
        path, sha256, there = line.path, line.sha256, usable.get(line.sha256)
        check_path(path)
        if there is None:
            raise Invalid(f"{path}: no upload with sha256 {sha256}: upload the file first")
        if line.size not in {None, there}:
            raise Invalid(f"{path}: the upload with sha256 {sha256} has {there} bytes, not {line.size}")
        if there > self.options.max_file_size:
            raise TooLarge(f"{path} has {there} bytes: the limit is {self.options.max_file_size}")
        candidate = Candidate(sha256, there, check_name(path, there), partial(self.hub.blobs.open, sha256))
        self.candidates.append((path, candidate))
        return Entry(path, pointer_oid(sha256, there), sha256, there, lfs=True)
