"""Publishing by form: upload files as a commit, and publish what main has as a version."""

from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.permissions import require_write
from kcard.hub.repositories.values import MAIN, Repository
from kcard.hub.server.dependencies import AccountTurnsDep, HubDep, OptionsDep
from kcard.hub.server.forms.form import TOKEN, Form, FormDep, require_form_token, require_same_origin
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.server.writing import multipart
from kcard.hub.server.writing.multipart import UploadedFile
from kcard.hub.server.writing.quota import declared, reserved
from kcard.hub.server.writing.spool import spooled
from kcard.hub.server.writing.tags import create_tag
from kcard.hub.server.writing.uploaded_commit import commit_uploaded
from kcard.hub.shared import SharedHub
from kcard.manifest import MANIFEST

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

UPLOAD, PUBLISH = "/{namespace}/{name}/upload", "/{namespace}/{name}/publish"
FOLDER = "folder"  # the field whose files come with the name of their folder


@router.get(UPLOAD)
@router.get("/datasets" + UPLOAD)
def upload_page(
    hub: HubDep, options: OptionsDep, member: MemberDep, repository: MemberRepository
) -> Response:
    """The forms."""
    require_write(member, repository)
    return _page(hub, options, repository, Form())


@router.post(UPLOAD)
@router.post("/datasets" + UPLOAD)
async def upload(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    member: MemberDep,
    repository: MemberRepository,
    turns: AccountTurnsDep,
) -> Response:
    """Commit the files to main, and publish them if there is a tag."""
    require_same_origin(request, options)
    require_write(member, repository)
    async with turns.of(member.account_id), AsyncExitStack() as received:
        async with reserved(hub, repository.id, declared(request, options.max_form)):
            body = await received.enter_async_context(spooled(request, hub.blobs.partial, options.max_form))
        sent = await run_in_threadpool(
            multipart.read, body.path, request.headers.get("content-type", ""), body.path.parent
        )
        require_form_token(hub, options, request, sent.values.get(TOKEN, ""))
        form = Form(sent.values)
        return await run_in_threadpool(
            _upload, hub, options, member, repository, form, sent.files, body.path.parent
        )


def _upload(
    hub: SharedHub,
    options: ServerOptions,
    member: Identity,
    repository: Repository,
    form: Form,
    files: list[UploadedFile],
    folder: Path,
) -> Response:
    with form.beside("files"):
        paths = [(_path(file, form.text("into")), file) for file in files]
        count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
        title = form.text("title") or f"Upload {count}"
        made = commit_uploaded(hub, options, member, repository, paths, folder, title)
    if form.errors:
        return _page(hub, options, repository, form)
    if not form.text("tag"):
        return RedirectResponse(address(repository), 303)
    with form.beside("tag"):
        create_tag(hub, member, repository, form.text("tag"), made.sha)
        return RedirectResponse(address(repository), 303)
    return _page(hub, options, repository, form, done=f"{count} committed, not published.")


@router.post(PUBLISH)
@router.post("/datasets" + PUBLISH)
def publish(
    hub: HubDep,
    options: OptionsDep,
    member: MemberDep,
    repository: MemberRepository,
    form: FormDep,
) -> Response:
    """Publish what main has."""
    require_write(member, repository)
    with form.beside("tag"):
        create_tag(hub, member, repository, form.text("tag"), hub.refs.resolve(repository, MAIN))
        return RedirectResponse(address(repository), 303)
    return _page(hub, options, repository, form)


def _path(file: UploadedFile, into: str) -> str:
    """Where a file goes: below the folder `into`; the files of a folder without the folder's own name."""
    name = file.name
    if file.field == FOLDER:
        name = "/".join(PurePosixPath(name).parts[1:])
        if not name:
            raise Invalid(f"{file.name[:200]!r} is in no folder: choose it as a file")
    return f"{into.strip('/')}/{name}" if into.strip("/") else name


def _page(
    hub: SharedHub,
    options: ServerOptions,
    repository: Repository,
    form: Form,
    done: str = "",
) -> Response:
    head = hub.refs.resolve(repository, MAIN)
    versions = hub.publications.of(repository)
    return page(
        "upload.html",
        form.status,
        form=form,
        repository=repository,
        type=repository.type,
        has_card=repository.type == "model" and MANIFEST in hub.commits.tree(repository, head),
        published=next((version.tag for version in versions if version.commit == head), None),
        suggested=f"v{max((version.number for version in versions), default=0) + 1}",
        largest=min(options.max_file_size, options.max_form),
        left=hub.reservations.remaining(repository.id),
        done=done,
    )
