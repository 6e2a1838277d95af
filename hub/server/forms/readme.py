"""Editing a README.md as a commit."""

from io import BytesIO

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.refusals import WrongParent
from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.card_metadata import README
from kcard.hub.repositories.permissions import require_write
from kcard.hub.repositories.values import MAIN, Repository
from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.server.writing.uploaded_commit import UploadedFile, commit_uploaded
from kcard.hub.store.disk import copy_hashing, partial_folder

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

EDIT = "/{namespace}/{name}/edit"
TITLE = "Edit README.md"
CHANGED = (
    "somebody changed the repository since you opened this form: compare your text with the README of today, then "
    "commit again, which replaces it"
)


@router.get(EDIT)
@router.get("/datasets" + EDIT)
def edit_page(hub: HubDep, member: MemberDep, repository: MemberRepository) -> Response:
    """The README.md of main."""
    require_write(member, repository)
    head = hub.refs.resolve(repository, MAIN)
    entry = hub.commits.tree(repository, head).get(README)
    text = "" if entry is None else card_metadata.text(hub.blobs, entry)
    return _page(repository, Form({"text": text, "parent": head}))


@router.post(EDIT)
@router.post("/datasets" + EDIT)
def save(
    hub: HubDep,
    options: OptionsDep,
    member: MemberDep,
    repository: MemberRepository,
    form: FormDep,
) -> Response:
    """Commit it, unless main has changed since the form was shown."""
    require_write(member, repository)
    with form.beside("text"), partial_folder(hub.blobs.partial) as folder:
        content = form.long_text("text").encode()
        sha256, size = copy_hashing(BytesIO(content), folder / "readme")
        file = UploadedFile(folder / "readme", sha256, size)
        title = form.text("title") or TITLE
        files = [(README, file)]
        parent = form.text("parent") or None
        try:
            commit_uploaded(hub, options, member, repository, files, folder, title, parent)
        except WrongParent:
            form.values = {**form.values, "parent": hub.refs.resolve(repository, MAIN)}
            raise WrongParent(CHANGED) from None
        return RedirectResponse(address(repository), 303)
    return _page(repository, form)


def _page(repository: Repository, form: Form) -> Response:
    return page("edit.html", form.status, form=form, repository=repository, type=repository.type)
