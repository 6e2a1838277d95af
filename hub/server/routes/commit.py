"""Commits that clients upload: how to send each file, and operations that are applied completely or not at all."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.checks.content import ContentCandidate, check_name, open_file
from kcard.hub.checks.formats import kind_of
from kcard.hub.checks.paths import check_path
from kcard.hub.db.models import Commit
from kcard.hub.errors import Invalid, NotFound, TooLarge
from kcard.hub.server.caches import CachesDep
from kcard.hub.server.concurrency import cancel_on_disconnect, lock_account, run_in_write_thread
from kcard.hub.server.dependencies import (
    HubDep,
    NoPullRequest,
    OptionsDep,
    RequiredIdentity,
    Segment,
    ServerOptions,
    WritableRepository,
    base_url,
)
from kcard.hub.server.routes.commit_lines import Header, Inline, Large, Line, read_lines
from kcard.hub.server.upload_checks import check_files, store_body
from kcard.hub.services import HubServices
from kcard.hub.trees import TEXTS, git_oid, lfs_pointer_oid
from kcard.hub.values import Add, Delete, DeleteFolder, Entry, Operation

router = APIRouter(tags=["write"])

MAX_PREUPLOAD_FILES = 256  # of one request; clients send no more
# The files of one request may take 1/SHARE of the largest commit, encoded as base64.
SHARE = 4


class File(BaseModel):
    """A file to upload; `size` in bytes. The sample that clients send is ignored: the commit checks the whole file."""

    path: str = Field(max_length=4096)
    size: int = Field(ge=0)


class PreuploadFiles(BaseModel):
    """The files to upload."""

    files: list[File] = Field(max_length=MAX_PREUPLOAD_FILES)


@router.post("/api/{types}/{namespace}/{name}/preupload/{revision}")
def preupload(
    body: PreuploadFiles,
    revision: Segment,
    _: NoPullRequest,
    repository: WritableRepository,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
) -> JSONResponse:
    """Get the upload mode of each file, regular (inside the commit) or lfs; at most 256 files a request.

    Fails at the first file that a commit would refuse. No file is ignored, even if a .gitignore names it.
    """
    tree: Mapping[str, Entry] = {}
    with suppress(NotFound):  # the commit will report it
        tree = caches.tree(repository, hub.refs.resolve(repository, revision))
    for file in body.files:
        check_path(file.path)
    inside = _select_inline(body.files, options)
    files = []
    for file in body.files:
        # Clients compare the oid to detect unchanged files: git's for a regular file, sha256 for a large one.
        oid = None
        existing = tree.get(file.path)
        if existing is not None:
            oid = existing.sha256 if existing.lfs else existing.oid
        mode = "regular" if file.path in inside else "lfs"
        files.append({"path": file.path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return JSONResponse({"files": files})


def _select_inline(files: Sequence[File], options: ServerOptions) -> set[str]:
    """Return the paths to send inside the commit: the smallest text files, leaving room for other requests."""
    room = options.max_commit // SHARE * 3 // 4
    inside: set[str] = set()
    for file in sorted(files, key=lambda file: file.size):
        if file.size > options.max_file_size:
            raise TooLarge(f"{file.path} has {file.size} bytes: the limit is {options.max_file_size}")
        text = kind_of(file.path, file.size).form in TEXTS or file.size == 0
        if text and file.size <= min(options.max_regular, room):
            inside.add(file.path)
            room -= file.size
    return inside


@dataclass(frozen=True)
class CommitFiles:
    """The files of one commit. Inline files stay in `folder` until all files are checked.

    `candidates` are the path and the content of each file to check.
    """

    hub: HubServices
    options: ServerOptions
    identity: Identity
    folder: Path
    candidates: list[tuple[str, ContentCandidate]] = field(default_factory=list)
    _waiting: dict[str, tuple[Path, str, int]] = field(default_factory=dict)

    def operations(self, lines: Iterable[Line]) -> list[Operation]:
        """Return the operations of the lines.

        Raises Invalid, Dangerous or TooLarge for a path or size that is not allowed.
        """
        # Inline files go to the disk one by one; all large files are looked up at once.
        read = [self._add_inline(line) if isinstance(line, Inline) else line for line in lines]
        large = {line.oid for line in read if isinstance(line, Large)}
        usable = self.hub.uploads.find_usable(self.identity, large) if large else {}
        operations: list[Operation] = []
        for line in read:
            match line:
                case Add():
                    operations.append(line)
                case Large():
                    operations.append(Add(self._make_entry(line, usable)))
                case Delete(path) | DeleteFolder(path):
                    check_path(path)
                    operations.append(line)
        return operations

    def store(self, repository_id: int) -> None:
        """Store the inline files as uploads of the committing account. Raises TooLarge over quota."""
        if self._waiting:
            waiting = list(self._waiting.values())
            self.hub.uploads.store_all(self.identity, waiting, repository_id=repository_id)

    def _add_inline(self, line: Inline) -> Add:
        content = line.content
        form = check_name(line.path, len(content))
        sha256 = hashlib.sha256(content).hexdigest()
        waiting = self.folder / sha256
        if sha256 not in self._waiting:
            waiting.write_bytes(content)
            self._waiting[sha256] = (waiting, sha256, len(content))
        candidate = ContentCandidate(sha256, len(content), form, partial(open_file, waiting))
        self.candidates.append((line.path, candidate))
        return Add(Entry(line.path, git_oid(content), sha256, len(content), lfs=False))

    def _make_entry(self, line: Large, usable: Mapping[str, int]) -> Entry:
        """Return the entry of a file that the account may use; knowing its sha256 is not enough."""
        path, sha256, size = line.path, line.oid, usable.get(line.oid)
        check_path(path)
        if size is None:
            raise Invalid(f"{path}: no upload with sha256 {sha256}: upload the file first")
        if line.size not in {None, size}:
            raise Invalid(f"{path}: the upload with sha256 {sha256} has {size} bytes, not {line.size}")
        if size > self.options.max_file_size:
            raise TooLarge(f"{path} has {size} bytes: the limit is {self.options.max_file_size}")
        candidate = ContentCandidate(
            sha256, size, check_name(path, size), partial(self.hub.blobs.open, sha256)
        )
        self.candidates.append((path, candidate))
        return Entry(path, lfs_pointer_oid(sha256, size), sha256, size, lfs=True)


@router.post("/api/{types}/{namespace}/{name}/commit/{revision}")
async def commit(
    revision: Segment,
    _: NoPullRequest,
    request: Request,
    repository: WritableRepository,
    hub: HubDep,
    options: OptionsDep,
    identity: RequiredIdentity,
) -> JSONResponse:
    """Commit files to a branch, by lines of JSON: all operations succeed, or none.

    The first line is a header, the others are operations: {"key": "header", "value": {"summary": …, "description": …,
    "parentCommit": …}}; file with path, content and encoding; lfsFile with path, algo, oid and size, a copy without a
    size; deletedFile and deletedFolder with path. The commits of one account run one after the other.
    """
    async with (
        lock_account(identity.account_id),
        store_body(request, hub.blobs.partial, options.max_commit) as body,
        cancel_on_disconnect(request),
    ):
        # Parse the operations, and check their files.
        files = CommitFiles(hub, options, identity, body.path.parent)

        def read_body() -> tuple[Header, list[Operation]]:
            with body.path.open("rb") as stream:
                header, lines = read_lines(stream, options.max_regular)
                return header, files.operations(lines)

        header, operations = await run_in_write_thread(read_body)
        if not operations:
            raise Invalid("empty commit: add, delete or copy at least one file")
        await check_files(hub.verdicts, files.candidates)

        # Store the files, and commit them.
        def store() -> Commit:
            files.store(repository.id)
            return hub.commits.add(
                repository,
                revision,
                operations,
                parent=header.parentCommit,
                title=header.title,
                message=header.description,
                identity=identity,
            )

        new_commit = await run_in_write_thread(store)
    url = f"{base_url(request, options)}{repository.path}/commit/{new_commit.sha}"
    answer = {
        "success": True,
        "commitOid": new_commit.sha,
        "commitUrl": url,
        "hookOutput": "",
        "pullRequestUrl": None,
    }
    return JSONResponse(answer)
