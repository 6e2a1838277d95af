"""How each file of a coming commit shall be sent, and whether it will be taken at all.

What a commit would refuse by its name or size is refused here already, before anyone uploads it.
"""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.checks.paths import check_path
from kcard.hub.refusals import NotThere, TooLarge
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.asking import Options, TheHub
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.ignored import ignoring
from kcard.hub.server.writing.pull_requests import NoPullRequest
from kcard.hub.server.writing.writable import Writable
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["write"])

MOST = 256  # files of one request; the clients send no more
GITIGNORE = ".gitignore"
LONGEST_GITIGNORE = 100_000
# Files of these forms are read by people, and small ones travel inside the commit.
TEXTS = frozenset(["text", "json", "jsonl", "yaml", "readme"])
# How much of the largest commit the files of one request may take when they are sent inside it, as base64.
SHARE = 4


class File(BaseModel):
    """A file to come; `size` in bytes. The sample of its bytes is not looked at: the whole file will be."""

    path: str = Field(max_length=4096)
    size: int = Field(ge=0)


class Coming(BaseModel):
    """The files to come, and the text of the .gitignore that holds for them."""

    files: list[File] = Field(max_length=MOST)
    gitIgnore: str | None = Field(default=None, max_length=LONGEST_GITIGNORE)  # noqa: N815 # the protocol's


@router.post(
    "/api/{types}/{namespace}/{name}/preupload/{revision}",
    summary="Ask how files are to be uploaded, and whether they will be taken",
    description=f"At most {MOST} files a request. uploadMode is regular (inside the commit) or lfs.",
    responses={200: {"description": "For each file: uploadMode, shouldIgnore, and the oid of what is there"}},
)
def preupload(
    coming: Coming,
    revision: Segment,
    _: NoPullRequest,
    repository: Writable,
    hub: TheHub,
    options: Options,
) -> JSONResponse:
    """Refuses the request with the first file that a commit would refuse, unless the .gitignore leaves it out."""
    tree = _tree(hub, repository, revision)
    ignores = _ignores(hub, coming.gitIgnore, tree)
    wanted = [file for file in coming.files if not ignores(check_path(file.path))]
    regular = _regular(wanted, options)
    return JSONResponse({"files": [_said(file, regular, ignores, tree) for file in coming.files]})


def _said(
    file: File, regular: frozenset[str], ignores: Callable[[str], bool], tree: Mapping[str, Entry]
) -> dict[str, str | bool | None]:
    there = tree.get(file.path)
    # By this oid clients tell that a file is unchanged: git's for a regular file, sha256 for a large one.
    oid = None if there is None else there.sha256 if there.lfs else there.oid
    return {
        "path": file.path,
        "uploadMode": "regular" if file.path in regular else "lfs",
        "shouldIgnore": ignores(file.path),
        "oid": oid,
    }


def _regular(files: Sequence[File], options: ServerOptions) -> frozenset[str]:
    """The files that are sent inside the commit: the smallest texts, as many as leave room for other requests'."""
    room = options.max_commit // SHARE * 3 // 4
    regular = set()
    for file in sorted(files, key=lambda file: file.size):
        if file.size > options.max_file_size:
            raise TooLarge(
                f"{file.path} has {file.size} bytes: this hub takes files of {options.max_file_size}"
            )
        text = kind_of(file.path, file.size).form in TEXTS or file.size == 0
        if text and file.size <= min(options.max_regular, room):
            regular.add(file.path)
            room -= file.size
    return frozenset(regular)


def _ignores(hub: SharedHub, sent: str | None, tree: Mapping[str, Entry]) -> Callable[[str], bool]:
    """The .gitignore that was sent, else the one that is there."""
    there = tree.get(GITIGNORE)
    if sent is None and there is not None:
        if there.size > LONGEST_GITIGNORE:
            raise TooLarge(f"{GITIGNORE} has {there.size} bytes: {LONGEST_GITIGNORE} are read")
        sent = b"".join(hub.blobs.read(there.sha256, 0, there.size)).decode(errors="replace")
    return ignoring(sent or "")


def _tree(hub: SharedHub, repository: Repository, revision: str) -> Mapping[str, Entry]:
    """The files that are there; none where the revision is not there yet: committing to it will say so."""
    try:
        return hub.commits.tree(repository, hub.refs.resolve(repository, revision))
    except NotThere:
        return {}
