"""Commits of files that a browser uploaded, with the checks and quotas of any commit."""

from collections.abc import Sequence
from pathlib import Path

from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.content import check_file
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.values import MAIN, Commit, Repository
from kcard.hub.server.endpoints.preupload import File, regular
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.commit_files import CommitFiles
from kcard.hub.server.writing.commit_lines import Inline, Large, Line
from kcard.hub.server.writing.multipart import UploadedFile
from kcard.hub.server.writing.quota import require_quota
from kcard.hub.shared import SharedHub

__all__ = ["commit_uploaded"]


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
    """Commit files, each with its path in the repository, to main: all of them or none.

    `folder` is for scratch files. Raises as a commit: Invalid, Dangerous, TooLarge, WrongParent.
    """
    if not files:
        raise Invalid("no file was chosen: choose the files of the card")
    if len({path for path, _ in files}) < len(files):
        raise Invalid("two of the files have the same path: upload them one after the other")
    inside = regular([File(path=path, size=file.size) for path, file in files], options)
    require_quota(
        hub, options, repository.namespace, identity.account_id, sum(file.size for _, file in files)
    )
    for path, file in files:
        check_file(path, file.size, lambda file=file: file.path.open("rb"))  # type: ignore[misc]
    commit = CommitFiles(hub, options, identity, folder)
    operations = [commit.operation(_line(hub, identity, path, file, path in inside)) for path, file in files]
    commit.store()
    line = " ".join(title.split())  # for lists
    return hub.commits.add(
        repository, MAIN, operations, parent=parent, title=line, message="", identity=identity
    )


def _line(hub: SharedHub, identity: Identity, path: str, file: UploadedFile, inside: bool) -> Line:
    """As a client sends it: a small text inside the commit, anything else as a large file."""
    if inside:
        return Inline(path, file.path.read_bytes())
    hub.uploads.store(identity.account_id, file.path, file.sha256, file.size)
    return Large(path, file.sha256, file.size)
