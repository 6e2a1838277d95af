"""Commits that clients upload: their lines, the checks and upload modes of their files, and tags.

Lines are untrusted, so their length is limited and the type of every value is checked.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.checks.content import ContentCandidate, check_name, open_file
from kcard.hub.checks.formats import kind_of
from kcard.hub.checks.paths import check_path
from kcard.hub.db.models import Commit, Publication, Repository
from kcard.hub.errors import Invalid, NotFound, TooLarge
from kcard.hub.server.caches import CachesDep
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
from kcard.hub.server.limits import cancel_on_disconnect, lock_account, run_in_write_thread
from kcard.hub.server.routes.repos import repository_url
from kcard.hub.server.upload_checks import check_files, store_body
from kcard.hub.services import HubServices
from kcard.hub.trees import TEXTS, git_oid, lfs_pointer_oid
from kcard.hub.values import Add, Delete, DeleteFolder, Entry, Operation
from kcard.io import parse

# Tags. One on a commit with a card publishes a version.


def create_tag(
    hub: HubServices, identity: Identity, repository: Repository, tag: str, sha: str, message: str = ""
) -> Publication | None:
    """Create a tag; return the version that it published, if the commit has a card.

    Raises as Publications.publish and Refs.create_tag.
    """
    published = hub.publications.publish(repository, tag, sha, identity, message)
    if published is None:
        hub.refs.create_tag(repository, tag, sha, message)
        return None
    version, number = published.version, published.number
    hub.events.add(identity.name, "card.published", repository.name, tag=tag, version=version, number=number)
    return published


MOST_LINES = 25_000  # lines of one commit
SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
OVERHEAD = 16_384  # bytes of a line besides the content of its file


@dataclass(frozen=True)
class Header:
    """Title and message; `parent` is the expected head of the branch."""

    title: str
    message: str
    parent: str | None


@dataclass(frozen=True)
class Inline:
    """A file with its content."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Large:
    """A file that was uploaded before. Without a size it is a copy of an existing file."""

    path: str
    sha256: str
    size: int | None


Line: TypeAlias = Header | Inline | Large | Delete | DeleteFolder


def read_lines(stream: BinaryIO, largest: int) -> Iterator[Line]:
    """Yield the lines of a commit, a header and then others. `largest` is the limit of an inline file, in bytes.

    Raises Invalid for a malformed line, TooLarge for a line or a number of lines over the limits.
    """
    longest = OVERHEAD + 4 * (largest // 3 + 1)
    for number in range(MOST_LINES + 2):
        text = stream.readline(longest + 1)
        if not text:
            if number == 0:
                raise Invalid("empty commit: the first line must be a header")
            return
        if len(text) > longest:
            raise TooLarge(
                f"line {number + 1}: inline file over the limit of {largest} bytes: upload it by LFS"
            )
        line = _parse_line(text, number + 1)
        if isinstance(line, Header) != (number == 0):
            raise Invalid(f"line {number + 1}: a commit has one header, in its first line")
        if isinstance(line, Inline) and len(line.content) > largest:
            raise TooLarge(
                f"{line.path[:200]}: inline file over the limit of {largest} bytes: upload it by LFS"
            )
        yield line
    raise TooLarge(f"more than {MOST_LINES} operations: split the commit")


def _parse_line(text: bytes, number: int) -> Line:
    """Return the operation of a line, or the header. Raises Invalid."""
    try:
        data = parse(text.decode())
    except ValueError as error:
        raise Invalid(f"line {number} is not JSON: {error}") from None
    value = data.get("value") if isinstance(data, dict) else None
    if not isinstance(value, dict):
        raise Invalid(f'line {number}: expected {{"key": …, "value": {{…}}}}')
    fields = _LineFields(number, value)
    match data.get("key"):
        case "header":
            # Lists show the title, so it is one line.
            title = " ".join(fields.text("summary").split())
            parent = fields.value.get("parentCommit")
            if parent is not None and not (isinstance(parent, str) and COMMIT.fullmatch(parent)):
                raise Invalid(f"invalid parentCommit {str(parent)[:60]!r}: expected the sha of a commit")
            message = fields.text("description", "")
            if "\0" in title + message:  # PostgreSQL can't store NUL
                raise Invalid("the commit's title or description contains a NUL character")
            return Header(title, message, parent)
        case "file":
            return Inline(fields.text("path"), fields.content())
        case "lfsFile":
            sha256, size = fields.text("oid"), fields.value.get("size")
            if fields.text("algo", "sha256") != "sha256" or not SHA256.fullmatch(sha256):
                raise Invalid(f"line {number}: oid {sha256[:80]!r} is not a sha256")
            if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
                raise Invalid(f"line {number}: size must be a non-negative integer")
            return Large(fields.text("path"), sha256, size)
        case "deletedFile":
            return Delete(fields.text("path"))
        case "deletedFolder":
            return DeleteFolder(fields.text("path").rstrip("/"))
        case other:
            raise Invalid(f"line {number}: unknown key {str(other)[:40]!r}")


@dataclass(frozen=True)
class _LineFields:
    """Typed access to the value of a line."""

    number: int
    value: dict[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        text = self.value.get(name, default)
        if not isinstance(text, str):
            raise Invalid(f"line {self.number}: {name} must be a string")
        return text

    def content(self) -> bytes:
        """Return the decoded content of a file. Raises Invalid for another encoding than base64 or UTF-8."""
        content, encoding = self.text("content"), self.text("encoding", "utf-8")
        match encoding:
            case "base64":
                try:
                    return base64.b64decode(content, validate=True)
                except (binascii.Error, ValueError):
                    raise Invalid(f"line {self.number}: content is not valid base64") from None
            case "utf-8":
                return content.encode()
            case _:
                raise Invalid(f"line {self.number}: unknown encoding {encoding[:40]!r}: use base64 or utf-8")


# The operations of a commit's lines, and its files, which are stored after all of them are checked.


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
        large = {line.sha256 for line in read if isinstance(line, Large)}
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
                case _:
                    raise Invalid("unexpected header: a commit has one, in its first line")
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
        path, sha256, size = line.path, line.sha256, usable.get(line.sha256)
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


# How to upload each file of a commit.
#
# Files that the commit would refuse by name or size are refused before they are uploaded.

preupload_router = APIRouter(tags=["write"])

MOST_FILES = 256  # files of one request; clients send no more
# The files of one request may take 1/SHARE of the largest commit, encoded as base64.
SHARE = 4


class File(BaseModel):
    """A file to upload; `size` in bytes. The sample that clients send is ignored: the commit checks the whole file."""

    path: str = Field(max_length=4096)
    size: int = Field(ge=0)


class PreuploadFiles(BaseModel):
    """The files to upload."""

    files: list[File] = Field(max_length=MOST_FILES)


@preupload_router.post(
    "/api/{types}/{namespace}/{name}/preupload/{revision}",
    summary="Get the upload mode of each file",
    description=f"At most {MOST_FILES} files a request. uploadMode is regular (inside the commit) or lfs.",
    response_description="For each file: uploadMode, shouldIgnore, and the oid of the existing file",
)
def preupload(
    body: PreuploadFiles,
    revision: Segment,
    _: NoPullRequest,
    repository: WritableRepository,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
) -> JSONResponse:
    """Fails at the first file that a commit would refuse. No file is ignored, even if a .gitignore names it."""
    tree: Mapping[str, Entry] = {}
    with suppress(NotFound):  # the commit will report it
        tree = caches.tree(repository, hub.refs.resolve(repository, revision))
    for file in body.files:
        check_path(file.path)
    inside = select_inline_files(body.files, options)
    files = []
    for file in body.files:
        there = tree.get(file.path)
        # Clients compare the oid to detect unchanged files: git's for a regular file, sha256 for a large one.
        oid = None if there is None else there.sha256 if there.lfs else there.oid
        mode = "regular" if file.path in inside else "lfs"
        files.append({"path": file.path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return JSONResponse({"files": files})


def select_inline_files(files: Sequence[File], options: ServerOptions) -> frozenset[str]:
    """Return the paths to send inside the commit: the smallest text files, leaving room for other requests."""
    room = options.max_commit // SHARE * 3 // 4
    inside = set()
    for file in sorted(files, key=lambda file: file.size):
        if file.size > options.max_file_size:
            raise TooLarge(f"{file.path} has {file.size} bytes: the limit is {options.max_file_size}")
        text = kind_of(file.path, file.size).form in TEXTS or file.size == 0
        if text and file.size <= min(options.max_regular, room):
            inside.add(file.path)
            room -= file.size
    return frozenset(inside)


# Commits: read line by line, and applied completely or not at all.

router = APIRouter(tags=["write"])

EXAMPLE = """{"key": "header", "value": {"summary": "Add the card", "description": "", "parentCommit": "…"}}
{"key": "file", "value": {"path": "README.md", "content": "IyBDYXJk", "encoding": "base64"}}
{"key": "lfsFile", "value": {"path": "model.safetensors", "algo": "sha256", "oid": "…", "size": 123}}
{"key": "deletedFile", "value": {"path": "old.json"}}
{"key": "deletedFolder", "value": {"path": "checkpoints"}}
"""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A header, then one line of JSON for each operation. An lfsFile without a size is a copy.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": EXAMPLE}},
    }
}


@router.post(
    "/api/{types}/{namespace}/{name}/commit/{revision}",
    summary="Commit files to a branch",
    responses={
        200: {"description": "commitOid and commitUrl"},
        400: {"description": "A path or file that is not allowed, or a large file that was not uploaded"},
        412: {"description": "parentCommit is not the head of the branch"},
        413: {"description": "Too many bytes or files"},
        501: {"description": "Pull requests are not supported"},
    },
    openapi_extra=BODY,
)
async def commit(
    revision: Segment,
    _: NoPullRequest,
    request: Request,
    repository: WritableRepository,
    hub: HubDep,
    options: OptionsDep,
    identity: RequiredIdentity,
) -> JSONResponse:
    """All operations succeed, or none. `revision` is a branch. The commits of one account run one after the other."""
    async with (
        lock_account(identity.account_id),
        store_body(request, hub.blobs.partial, options.max_commit) as body,
        cancel_on_disconnect(request),
    ):
        # Parse the operations, and check their files.
        files = CommitFiles(hub, options, identity, body.path.parent)

        def read_body() -> tuple[Header, list[Operation]]:
            with body.path.open("rb") as stream:
                lines = read_lines(stream, options.max_regular)
                header = next(lines)
                assert isinstance(header, Header)  # as read_lines checked
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
                parent=header.parent,
                title=header.title,
                message=header.message,
                identity=identity,
            )

        new_commit = await run_in_write_thread(store)
    url = f"{repository_url(base_url(request, options), repository)}/commit/{new_commit.sha}"
    answer = {
        "success": True,
        "commitOid": new_commit.sha,
        "commitUrl": url,
        "hookOutput": "",
        "pullRequestUrl": None,
    }
    return JSONResponse(answer)
