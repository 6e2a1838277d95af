"""Pages of files, one by one and listed."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from kcard.hub.errors import NotFound
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, Segment, WebRepository, require_download
from kcard.hub.server.web.cards import load_row
from kcard.hub.server.web.render import page as render_page
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry

router = APIRouter(include_in_schema=False)

MAX_SHOWN_CHARACTERS = 60_000  # of a text
MAX_HEADER_BYTES = 4_000_000  # of a safetensors file
MAX_TENSORS = 500
MAX_FILES = 200  # of a page
BINARY = {".safetensors", ".parquet", ".npz", ".npy", ".gguf", ".onnx"}
BINARY |= {".png", ".jpg", ".jpeg", ".webp", ".gif"}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class FileView:
    """A file: its text, or its tensors, or neither. `cut`: there is more than is shown."""

    text: str | None = None
    tensors: tuple[Tensor, ...] | None = None
    count: int = 0
    cut: bool = False


def view_file(blobs: Blobs, entry: Entry) -> FileView:
    """Return the text or the tensors of a file. Raises DamagedCard if its blob is missing."""
    if entry.path.endswith(".safetensors"):
        return _read_tensors(blobs, entry)
    with blobs.open(entry.sha256) as stream:
        content = stream.read(4 * MAX_SHOWN_CHARACTERS)
    text = _decode(entry.path, content, cut=entry.size > len(content))
    if text is None:
        return FileView()
    if entry.path.endswith(".json") and entry.size == len(content):
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return FileView(
        text=text[:MAX_SHOWN_CHARACTERS], cut=len(text) > MAX_SHOWN_CHARACTERS or entry.size > len(content)
    )


def _read_tensors(blobs: Blobs, entry: Entry) -> FileView:
    with blobs.open(entry.sha256) as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > MAX_HEADER_BYTES:
            return FileView()
        header = stream.read(length)
    try:
        entries = json.loads(header)
        tensors = [
            Tensor(str(name)[:200], str(value["dtype"])[:20], tuple(int(size) for size in value["shape"][:8]))
            for name, value in entries.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return FileView()
    return FileView(tensors=tuple(tensors[:MAX_TENSORS]), count=len(tensors), cut=len(tensors) > MAX_TENSORS)


def _decode(path: str, content: bytes, *, cut: bool = False) -> str | None:
    """Return the content as text; None if it is not text."""
    if PurePosixPath(path).suffix.lower() in BINARY or b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A character may be cut at the end.
        return content[: error.start].decode() if cut and error.start > len(content) - 4 else None


@router.get("/{namespace}/{name}/files/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/files/{revision}", dependencies=[EXPENSIVE])
def files(
    hub: HubDep,
    identity: OptionalIdentity,
    repository: WebRepository,
    revision: Segment,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """Show a page of the files of a revision."""
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    entries = list(hub.commits.tree(repository, sha).values())
    return render_page(
        "files.html",
        row=load_row(hub, repository),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        files=entries[(page - 1) * MAX_FILES : page * MAX_FILES],
        total=len(entries),
        size=sum(entry.size for entry in entries),
        number=page,
        pages=-(-len(entries) // MAX_FILES),
        here="",
    )


@router.get("/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[EXPENSIVE])
def blob(
    hub: HubDep, identity: OptionalIdentity, repository: WebRepository, revision: Segment, path: Segment
) -> Response:
    """Show a file."""
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    entry = hub.commits.tree(repository, sha).get(path)
    if entry is None:
        raise NotFound("entry", f"file {path[:200]!r} not found in {repository.name} at {revision[:100]!r}")
    return render_page(
        "blob.html",
        row=load_row(hub, repository),
        revision=revision,
        sha=sha,
        entry=entry,
        viewed=view_file(hub.blobs, entry),
        here="",
    )
