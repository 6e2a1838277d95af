"""Commits: read line by line, and applied completely or not at all."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from kcard.hub.refusals import Invalid
from kcard.hub.repositories.values import Commit, Operation, Repository
from kcard.hub.server.dependencies import (
    HubDep,
    NoPullRequest,
    OptionsDep,
    RequiredIdentity,
    WritableRepository,
    base_url,
)
from kcard.hub.server.endpoints.repos import repository_url
from kcard.hub.server.limits import account_turn, in_write_thread, while_connected
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing import commit_lines
from kcard.hub.server.writing.checking import check
from kcard.hub.server.writing.commit_files import CommitFiles
from kcard.hub.server.writing.commit_lines import Header
from kcard.hub.server.writing.spool import spooled

__all__ = ["router"]

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
    """All operations succeed, or none. `revision` is a branch. The commits of an account take turns."""
    async with (
        account_turn(identity.account_id),
        spooled(request, hub.blobs.partial, options.max_commit) as body,
        while_connected(request),
    ):
        files = CommitFiles(hub, options, identity, body.path.parent)
        header, operations = await in_write_thread(_read, files, options.max_regular, body.path)
        await check(hub.verdicts, files.candidates)
        made = await in_write_thread(_commit, files, repository, revision, header, operations)
    url = f"{repository_url(base_url(request, options), repository)}/commit/{made.sha}"
    answer = {
        "success": True,
        "commitOid": made.sha,
        "commitUrl": url,
        "hookOutput": "",
        "pullRequestUrl": None,
    }
    return JSONResponse(answer)


def _read(files: CommitFiles, largest: int, body: Path) -> tuple[Header, list[Operation]]:
    with body.open("rb") as stream:
        lines = commit_lines.read(stream, largest)
        header = next(lines)
        assert isinstance(header, Header)  # as `read` checked
        operations = files.operations(lines)
    if not operations:
        raise Invalid("empty commit: add, delete or copy at least one file")
    return header, operations


def _commit(
    files: CommitFiles, repository: Repository, branch: str, header: Header, operations: list[Operation]
) -> Commit:
    files.store(repository.id)
    return files.hub.commits.add(
        repository,
        branch,
        operations,
        parent=header.parent,
        title=header.title,
        message=header.message,
        identity=files.identity,
    )
