"""How to upload each file of a commit.

Refuses files that the commit would refuse by name or size, before they are uploaded.
"""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.checks.paths import check_path
from kcard.hub.refusals import NotThere, TooLarge
from kcard.hub.repositories.file_entries import TEXTS
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.dependencies import HubDep, NoPullRequest, OptionsDep, WritableRepository
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.reading.recent import Recent, RecentDep
from kcard.hub.shared import SharedHub

__all__ = ["File", "regular", "router"]

router = APIRouter(tags=["write"])

MOST = 256  # files of one request; clients send no more
# The share of the largest commit that the files of one request may take inside it, as base64: 1/SHARE.
SHARE = 4


class File(BaseModel):
    """A file to upload; `size` in bytes. The sample that clients send is ignored: the commit checks the whole file."""

    path: str = Field(max_length=4096)
    size: int = Field(ge=0)


class Files(BaseModel):
    """The files to upload."""

    files: list[File] = Field(max_length=MOST)


@router.post(
    "/api/{types}/{namespace}/{name}/preupload/{revision}",
    summary="Get the upload mode of each file",
    description=f"At most {MOST} files a request. uploadMode is regular (inside the commit) or lfs.",
    response_description="For each file: uploadMode, shouldIgnore, and the oid of the existing file",
)
def preupload(
    body: Files,
    revision: Segment,
    _: NoPullRequest,
    repository: WritableRepository,
    hub: HubDep,
    recent: RecentDep,
    options: OptionsDep,
) -> JSONResponse:
    """Fails at the first file that a commit would refuse; no file is ignored, whatever a .gitignore says."""
    tree = _tree(hub, recent, repository, revision)
    for file in body.files:
        check_path(file.path)
    inside = regular(body.files, options)
    return JSONResponse({"files": [_described(file, inside, tree) for file in body.files]})


def _described(file: File, inside: frozenset[str], tree: Mapping[str, Entry]) -> dict[str, str | bool | None]:
    there = tree.get(file.path)
    # Clients compare the oid to detect unchanged files: git's for a regular file, sha256 for a large one.
    oid = None if there is None else there.sha256 if there.lfs else there.oid
    return {
        "path": file.path,
        "uploadMode": "regular" if file.path in inside else "lfs",
        "shouldIgnore": False,
        "oid": oid,
    }


def regular(files: Sequence[File], options: ServerOptions) -> frozenset[str]:
    """The files to send inside the commit: the smallest text files, leaving room for those of other requests."""
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


def _tree(hub: SharedHub, recent: Recent, repository: Repository, revision: str) -> Mapping[str, Entry]:
    """The existing files; none if the revision does not exist, which the commit will report."""
    try:
        return recent.trees.get(repository, hub.refs.resolve(repository, revision))
    except NotThere:
        return {}
