"""Publishing by form: upload files as a commit, and publish what main has as a version."""

from pathlib import Path, PurePosixPath

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.permissions import require_write
from kcard.hub.repositories.values import MAIN, Repository
from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.forms.form import Form, FormDep, fields, require_form_token, require_same_origin
from kcard.hub.server.limits import account_turn, lift
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.server.writing.quota import declared, reserved
from kcard.hub.server.writing.tags import create_tag
from kcard.hub.server.writing.uploaded_commit import UploadedFile, commit_uploaded
from kcard.hub.shared import SharedHub
from kcard.hub.store.disk import copy_hashing, explained, partial_folder
from kcard.manifest import MANIFEST

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

UPLOAD, PUBLISH = "/{namespace}/{name}/upload", "/{namespace}/{name}/publish"
FOLDER = "folder"  # the field whose files come with the name of their folder
# Of each file, a megabyte may be in memory.
MOST_FILES, MOST_FIELDS, LONGEST_FIELD = 100, 100, 100_000


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
) -> Response:
    """Commit the files to main, and publish them if there is a tag."""
    require_same_origin(request, options)
    require_write(member, repository)
    lift(request, options.max_form)
    async with account_turn(member.account_id):
        async with reserved(hub, repository.id, declared(request, options.max_form)):
            sent = await _received(request)
        try:
            require_form_token(hub, options, request, fields(sent))
            return await run_in_threadpool(_upload, hub, options, member, repository, sent)
        finally:
            await sent.close()


async def _received(request: Request) -> FormData:
    """The form; its files are on disk if they are large."""
    try:
        return await request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD)
    except ClientDisconnect:
        raise Invalid("the client disconnected before the end of the request") from None


def _upload(
    hub: SharedHub, options: ServerOptions, member: Identity, repository: Repository, sent: FormData
) -> Response:
    form = Form(fields(sent))
    # A field without a file is sent with an empty name.
    chosen = [
        (field, file) for field, file in sent.multi_items() if isinstance(file, UploadFile) and file.filename
    ]
    count = f"{len(chosen)} file{'' if len(chosen) == 1 else 's'}"
    title = form.text("title") or f"Upload {count}"
    with (
        form.beside("files"),
        explained("can't store the upload"),
        partial_folder(hub.blobs.partial) as folder,
    ):
        paths = [_path(field, file, form.text("into")) for field, file in chosen]
        files = [_stored(file, folder / f"part{number}") for number, (_, file) in enumerate(chosen)]
        made = commit_uploaded(
            hub, options, member, repository, [*zip(paths, files, strict=True)], folder, title
        )
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


def _path(field: str, file: UploadFile, into: str) -> str:
    """Where a file goes: below the folder `into`; the files of a folder without the folder's own name."""
    name = file.filename or ""
    if field == FOLDER:
        name = "/".join(PurePosixPath(name).parts[1:])
        if not name:
            raise Invalid(f"{(file.filename or '')[:200]!r} is in no folder: choose it as a file")
    return f"{into.strip('/')}/{name}" if into.strip("/") else name


def _stored(file: UploadFile, path: Path) -> UploadedFile:
    sha256, size = copy_hashing(file.file, path)
    return UploadedFile(path, sha256, size)


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
