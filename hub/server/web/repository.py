"""Forms of a repository: creation, uploads, README, settings, requests for access."""

from io import BytesIO
from pathlib import PurePosixPath

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response

from kcard.hub import card_metadata
from kcard.hub.accounts import Identity
from kcard.hub.card_metadata import README
from kcard.hub.db.models import Repository, RepositoryType
from kcard.hub.errors import Invalid, WrongParent
from kcard.hub.permissions import (
    LONGEST_NOTE,
    may_administer,
    may_create,
    require_administer,
    require_unrestricted,
    require_write,
)
from kcard.hub.server.dependencies import HubDep, MemberDep, MemberRepository, OptionsDep, ServerOptions
from kcard.hub.server.limits import lift_body_limit, lock_account
from kcard.hub.server.routes.accounts import decide_access, find_user, require_gated
from kcard.hub.server.routes.commit import commit_uploaded, create_tag
from kcard.hub.server.routes.lfs import declared_size, reserve_quota
from kcard.hub.server.routes.repos import (
    change_settings,
    create_repository,
    delete_repository,
    move_repository,
)
from kcard.hub.server.upload_checks import StoredBody
from kcard.hub.server.web.account import SAVED
from kcard.hub.server.web.cards import page_address
from kcard.hub.server.web.pages import Rights
from kcard.hub.server.web.render import (
    Form,
    FormDep,
    page,
    read_fields,
    require_form_token,
    require_same_origin,
)
from kcard.hub.services import HubServices
from kcard.hub.storage import copy_hashing, explain_os_errors, partial_folder
from kcard.hub.values import MAIN
from kcard.manifest import MANIFEST

# A new repository.

new_repository_router = APIRouter(include_in_schema=False)

TYPES: tuple[tuple[RepositoryType, str], ...] = (("model", "Card or model"), ("dataset", "Dataset"))


@new_repository_router.get("/new")
def new_page(options: OptionsDep, member: MemberDep, owner: str = "") -> Response:
    """Show the form. `owner`: the preselected namespace."""
    chosen = {"visibility": options.visibility}
    return render_new_repository_page(member, Form(chosen | {"owner": owner} if owner else chosen))


@new_repository_router.post("/new")
def create(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Create a repository, and redirect to its upload page."""
    type_: RepositoryType = "dataset" if form.text("type") == "dataset" else "model"
    with form.errors_at("owner"):
        require_unrestricted(member)
    with form.errors_at("name"):
        private = form.choice("visibility", "public", "private") == "private"
        full = f"{form.text('owner')}/{form.text('name')}"
        if not form.errors:
            repository = create_repository(hub, member, type_, full, private=private)
            return RedirectResponse(page_address(repository, "upload"), 303)
    return render_new_repository_page(member, form)


def render_new_repository_page(member: Identity, form: Form) -> Response:
    owners = [name for name in (member.name, *member.organisations) if may_create(member, name)]
    return page(
        "new_repository.html", form.status, form=form, owners=[(name, name) for name in owners], types=TYPES
    )


upload_router = APIRouter(include_in_schema=False)

UPLOAD, PUBLISH = "/{namespace}/{name}/upload", "/{namespace}/{name}/publish"
FOLDER = "folder"  # the field whose files come with the name of their folder
# Up to a megabyte of each file is held in memory.
MOST_FILES, MOST_FIELDS, LONGEST_FIELD = 100, 100, 100_000


@upload_router.get(UPLOAD)
@upload_router.get("/datasets" + UPLOAD)
def upload_page(
    hub: HubDep, options: OptionsDep, member: MemberDep, repository: MemberRepository
) -> Response:
    """Show the forms."""
    require_write(member, repository)
    return render_upload_page(hub, options, repository, Form())


@upload_router.post(UPLOAD)
@upload_router.post("/datasets" + UPLOAD)
async def upload(
    request: Request, hub: HubDep, options: OptionsDep, member: MemberDep, repository: MemberRepository
) -> Response:
    """Commit the files to main, and publish them if there is a tag."""
    require_same_origin(request, options)
    require_write(member, repository)
    lift_body_limit(request, options.max_form)
    async with lock_account(member.account_id):
        async with reserve_quota(hub, repository.id, declared_size(request, options.max_form)):
            try:  # large files of the form go to the disk
                sent = await request.form(
                    max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD
                )
            except ClientDisconnect:
                raise Invalid("the client disconnected before the end of the request") from None
        try:
            require_form_token(hub, options, request, read_fields(sent))
            return await run_in_threadpool(_commit_upload, hub, options, member, repository, sent)
        finally:
            await sent.close()


def _commit_upload(
    hub: HubServices, options: ServerOptions, member: Identity, repository: Repository, sent: FormData
) -> Response:
    form = Form(read_fields(sent))
    # A field without a file is sent with an empty name.
    chosen = [
        (field, file) for field, file in sent.multi_items() if isinstance(file, UploadFile) and file.filename
    ]
    count = f"{len(chosen)} file{'' if len(chosen) == 1 else 's'}"
    title = form.text("title") or f"Upload {count}"
    with (
        form.errors_at("files"),
        explain_os_errors("can't store the upload"),
        partial_folder(hub.blobs.partial) as folder,
    ):
        # Paths in the repository: below the folder `into`, the files of a folder without the folder's own name.
        into = form.text("into").strip("/")
        paths = []
        for field, file in chosen:
            name = file.filename or ""
            if field == FOLDER:
                name = "/".join(PurePosixPath(name).parts[1:])
                if not name:
                    raise Invalid(f"{(file.filename or '')[:200]!r} is in no folder: choose it as a file")
            paths.append(f"{into}/{name}" if into else name)
        files = []
        for number, (_, file) in enumerate(chosen):
            path = folder / f"part{number}"
            files.append(StoredBody(path, *copy_hashing(file.file, path)))
        commit = commit_uploaded(
            hub, options, member, repository, [*zip(paths, files, strict=True)], folder, title
        )
    if form.errors:
        return render_upload_page(hub, options, repository, form)
    if not form.text("tag"):
        return RedirectResponse(page_address(repository), 303)
    with form.errors_at("tag"):
        create_tag(hub, member, repository, form.text("tag"), commit.sha)
        return RedirectResponse(page_address(repository), 303)
    return render_upload_page(hub, options, repository, form, done=f"{count} committed, not published.")


@upload_router.post(PUBLISH)
@upload_router.post("/datasets" + PUBLISH)
def publish(
    hub: HubDep, options: OptionsDep, member: MemberDep, repository: MemberRepository, form: FormDep
) -> Response:
    """Publish the head of main."""
    require_write(member, repository)
    with form.errors_at("tag"):
        create_tag(hub, member, repository, form.text("tag"), hub.refs.resolve(repository, MAIN))
        return RedirectResponse(page_address(repository), 303)
    return render_upload_page(hub, options, repository, form)


def render_upload_page(
    hub: HubServices, options: ServerOptions, repository: Repository, form: Form, done: str = ""
) -> Response:
    head = hub.refs.resolve(repository, MAIN)
    versions = hub.publications.list(repository)
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


# Editing a README.md as a commit.

readme_router = APIRouter(include_in_schema=False)

EDIT = "/{namespace}/{name}/edit"
TITLE = "Edit README.md"
CHANGED = (
    "somebody changed the repository since you opened this form: compare your text with the current README, then "
    "commit again to replace it"
)


@readme_router.get(EDIT)
@readme_router.get("/datasets" + EDIT)
def edit_page(hub: HubDep, member: MemberDep, repository: MemberRepository) -> Response:
    """Show a form with the README.md of main."""
    require_write(member, repository)
    head = hub.refs.resolve(repository, MAIN)
    entry = hub.commits.tree(repository, head).get(README)
    text = "" if entry is None else card_metadata.read_text(hub.blobs, entry)
    return render_readme_page(repository, Form({"text": text, "parent": head}))


@readme_router.post(EDIT)
@readme_router.post("/datasets" + EDIT)
def save(
    hub: HubDep, options: OptionsDep, member: MemberDep, repository: MemberRepository, form: FormDep
) -> Response:
    """Commit the README.md, unless main has changed since the form was shown."""
    require_write(member, repository)
    with form.errors_at("text"), partial_folder(hub.blobs.partial) as folder:
        content = form.long_text("text").encode()
        sha256, size = copy_hashing(BytesIO(content), folder / "readme")
        file = StoredBody(folder / "readme", sha256, size)
        title = form.text("title") or TITLE
        files = [(README, file)]
        parent = form.text("parent") or None
        try:
            commit_uploaded(hub, options, member, repository, files, folder, title, parent)
        except WrongParent:
            form.values = {**form.values, "parent": hub.refs.resolve(repository, MAIN)}
            raise WrongParent(CHANGED) from None
        return RedirectResponse(page_address(repository), 303)
    return render_readme_page(repository, form)


def render_readme_page(repository: Repository, form: Form) -> Response:
    return page("edit.html", form.status, form=form, repository=repository, type=repository.type)


# Settings of a repository: visibility, gating, name, deletion.

repository_settings_router = APIRouter(include_in_schema=False)

SETTINGS = "/{namespace}/{name}/settings"
GATES = (
    ("no", "no: everyone who sees it gets the files"),
    ("auto", "automatic: who asks gets the files, and you see who asked"),
    ("manual", "manual: you answer each request"),
)


@repository_settings_router.get(SETTINGS)
@repository_settings_router.get("/datasets" + SETTINGS)
def settings_page(hub: HubDep, member: MemberDep, repository: MemberRepository, saved: str = "") -> Response:
    """Show the forms with the stored settings."""
    require_administer(member, repository)
    return render_repository_settings_page(hub, repository, Form(), SAVED if saved else "")


@repository_settings_router.post(SETTINGS)
@repository_settings_router.post("/datasets" + SETTINGS)
def save_settings(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Change visibility and gating."""
    require_administer(member, repository)
    with form.errors_at("visibility"):
        private = form.choice("visibility", "public", "private") == "private"
        gated = form.choice("gated", *(value for value, _ in GATES))
        gate = next(gate for gate in ("no", "auto", "manual") if gate == gated)
        change_settings(hub, member, repository, private=private, gated=gate)
        return RedirectResponse(f"{page_address(repository, 'settings')}?saved=1", 303)
    return render_repository_settings_page(hub, repository, form)


@repository_settings_router.post(SETTINGS + "/move")
@repository_settings_router.post("/datasets" + SETTINGS + "/move")
def move(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Move or rename the repository."""
    require_administer(member, repository)
    with form.errors_at("to"):
        moved = move_repository(hub, member, repository, form.text("to"))
        return RedirectResponse(f"{page_address(moved, 'settings')}?saved=1", 303)
    return render_repository_settings_page(hub, repository, form)


@repository_settings_router.post(SETTINGS + "/delete")
@repository_settings_router.post("/datasets" + SETTINGS + "/delete")
def delete(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Delete the repository, if its full name was typed."""
    require_administer(member, repository)
    with form.errors_at("confirm"):
        if form.text("confirm") != repository.name:
            raise Invalid(f"type the full name, {repository.name}, to delete this repository")
        delete_repository(hub, member, repository)
        return RedirectResponse(f"/{repository.namespace}", 303)
    return render_repository_settings_page(hub, repository, form)


def render_repository_settings_page(
    hub: HubServices, repository: Repository, form: Form, done: str = ""
) -> Response:
    return page(
        "repository_settings.html",
        form.status,
        form=form,
        repository=repository,
        type=repository.type,
        gates=GATES,
        versions=len(hub.publications.list(repository)),
        done=done,
    )


# Requests for access to a gated repository: ask with a note, grant, reject.

requests_router = APIRouter(include_in_schema=False)

ACCESS = "/{namespace}/{name}/access"


@requests_router.get(ACCESS)
@requests_router.get("/datasets" + ACCESS)
def access_page(hub: HubDep, member: MemberDep, repository: MemberRepository) -> Response:
    """Show all requests to administrators of the repository, and to others the state of their own."""
    require_gated(repository)
    return render_requests_page(hub, member, repository, Form())


@requests_router.post(ACCESS)
@requests_router.post("/datasets" + ACCESS)
def ask(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Ask for access with a note. Asking again does not change it."""
    require_gated(repository)
    with form.errors_at("note"):
        hub.repositories.request_access(repository, member.account_id, form.long_text("note").strip())
        return RedirectResponse(page_address(repository), 303)
    return render_requests_page(hub, member, repository, form)


@requests_router.post(ACCESS + "/answer")
@requests_router.post("/datasets" + ACCESS + "/answer")
def answer(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Grant or reject a request, or grant access without one."""
    require_administer(member, repository)
    require_gated(repository)
    with form.errors_at("user"):
        state = form.choice("state", "granted", "rejected")
        user = find_user(hub, form.text("user"))
        decide_access(hub, repository, user, "granted" if state == "granted" else "rejected", member)
        return RedirectResponse(page_address(repository, "access"), 303)
    return render_requests_page(hub, member, repository, form)


def render_requests_page(hub: HubServices, member: Identity, repository: Repository, form: Form) -> Response:
    administers = may_administer(member, repository)
    return page(
        "access.html",
        form.status,
        form=form,
        repository=repository,
        type=repository.type,
        rights=Rights.of(hub, member, repository),
        requests=hub.repositories.requests(repository) if administers else [],
        longest=LONGEST_NOTE,
    )
