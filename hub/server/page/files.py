"""Pages of files, of the history, and of what a commit changed."""

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub.refusals import NotThere
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, WebRepository, require_download
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.page.card_views import row
from kcard.hub.server.page.file_views import differences, viewed
from kcard.hub.server.page.render import page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

COMMITS = 50


@router.get("/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[IN_TURN])
def blob(
    hub: HubDep, identity: OptionalIdentity, repository: WebRepository, revision: Segment, path: Rest
) -> Response:
    """A file."""
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    entry = hub.commits.tree(repository, sha).get(path)
    if entry is None:
        raise NotThere("entry", f"file {path[:200]!r} not found in {repository.name} at {revision[:100]!r}")
    return page(
        "blob.html",
        row=row(hub, repository),
        revision=revision,
        sha=sha,
        entry=entry,
        viewed=viewed(hub.blobs, entry),
        here="",
    )


@router.get("/{namespace}/{name}/commits/{revision}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}/commits/{revision}", dependencies=[IN_TURN])
def commits(
    hub: HubDep,
    repository: WebRepository,
    revision: Segment,
) -> Response:
    """The history of a revision; an older page starts with the parent of the last commit of this one."""
    sha = hub.refs.resolve(repository, revision)
    found = hub.commits.list(repository, sha, 0, COMMITS)
    return page(
        "commits.html",
        row=row(hub, repository),
        revision=revision,
        commits=found,
        older=found[-1].parent,
        here="",
    )


@router.get("/{namespace}/{name}/commit/{revision}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}/commit/{revision}", dependencies=[IN_TURN])
def commit(
    hub: HubDep,
    identity: OptionalIdentity,
    repository: WebRepository,
    revision: Segment,
) -> Response:
    """What a commit changed."""
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    found = hub.commits.get(repository, sha)
    before = hub.commits.tree(repository, found.parent) if found.parent else {}
    changed, omitted = differences(hub.blobs, before, hub.commits.tree(repository, sha))
    return page(
        "commit.html",
        row=row(hub, repository),
        revision=revision,
        commit=found,
        changed=changed,
        omitted=omitted,
        here="",
    )
