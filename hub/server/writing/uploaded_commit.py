"""Commits of files that a browser uploaded, with the checks and quotas of any commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import from_thread

from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_name
from kcard.hub.checks.verdicts import Candidate, opened
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.values import MAIN, Commit, Repository
from kcard.hub.server.endpoints.preupload import File, regular
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.checking import check
from kcard.hub.server.writing.commit_files import CommitFiles
from kcard.hub.server.writing.commit_lines import Inline, Large, Line
from kcard.hub.shared import SharedHub

__all__ = ["UploadedFile", "commit_uploaded"]


@dataclass(frozen=True)
class UploadedFile:
    """A file that a browser sent: where its `size` bytes are."""

    path: Path
    sha256: str
    size: int


def commit_uploaded(
    hub: SharedHub,
    options: ServerOptions,
    identity: Identity,
    repository: Repository,
    files: Sequence[tuple[str, UploadedFile]],
    folder: Path,
    title: str,
    parent: str | None = None,
) -> Commit:
    """Commit files, each with its path in the repository, to main: all of them or none. Call it in a worker thread.

    `folder` is for scratch files. Raises as a commit: Invalid, Dangerous, TooLarge, WrongParent.
    """
    if not files:
        raise Invalid("no file was chosen: choose the files of the card")
    if len({path for path, _ in files}) < len(files):
        raise Invalid("two of the files have the same path: upload them one after the other")
    inside = regular([File(path=path, size=file.size) for path, file in files], options)
    from_thread.run(check, hub.verdicts, [(path, _candidate(path, file)) for path, file in files])
    commit = CommitFiles(hub, options, identity, folder)
    lines = [_line(hub, identity, repository, path, file, path in inside) for path, file in files]
    operations = commit.operations(lines)
    commit.store(repository.id)
    line = " ".join(title.split())  # for lists
    return hub.commits.add(
        repository, MAIN, operations, parent=parent, title=line, message="", identity=identity
    )


def _candidate(path: str, file: UploadedFile) -> Candidate:
    return Candidate(file.sha256, file.size, check_name(path, file.size), partial(opened, file.path))


def _line(
    hub: SharedHub, identity: Identity, repository: Repository, path: str, file: UploadedFile, inside: bool
) -> Line:
    """As a client sends it: a small text inside the commit, anything else as a large file."""
    if inside:
        return Inline(path, file.path.read_bytes())
    account = identity.account_id
    hub.uploads.store(account, file.path, file.sha256, file.size, repository_id=repository.id)
    return Large(path, file.sha256, file.size)
