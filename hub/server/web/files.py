"""Pages of files, one by one and listed, of the history, and of single commits."""

import difflib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from kcard.errors import KcardError
from kcard.hub.errors import NotFound
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    RestOfPath,
    Segment,
    WebRepository,
    require_download,
)
from kcard.hub.server.limits import EXPENSIVE
from kcard.hub.server.web.cards import load_row
from kcard.hub.server.web.render import page as render_page
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry

SHOWN = 60_000  # characters of a text
MOST_HEADER = 4_000_000  # bytes of a safetensors header
MOST_TENSORS = 500
# Comparing takes quadratic time.
MOST_LINES, MOST_BYTES, MOST_COMPARED = 1000, 100_000, 20
MOST_FILES = 200
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


@dataclass(frozen=True)
class Difference:
    """A changed file: `lines` of a unified diff; None: not a text, or too large to compare."""

    path: str
    change: str
    lines: Sequence[str] | None


def view_file(blobs: Blobs, entry: Entry) -> FileView:
    """Return the text or the tensors of a file. Raises DamagedCard if its blob is missing."""
    if entry.path.endswith(".safetensors"):
        return _read_tensors(blobs, entry)
    with blobs.open(entry.sha256) as stream:
        content = stream.read(4 * SHOWN)
    text = _decode(entry.path, content, cut=entry.size > len(content))
    if text is None:
        return FileView()
    if entry.path.endswith(".json") and entry.size == len(content):
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return FileView(text=text[:SHOWN], cut=len(text) > SHOWN or entry.size > len(content))


def _read_tensors(blobs: Blobs, entry: Entry) -> FileView:
    with blobs.open(entry.sha256) as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > MOST_HEADER:
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
    return FileView(
        tensors=tuple(tensors[:MOST_TENSORS]), count=len(tensors), cut=len(tensors) > MOST_TENSORS
    )


def _decode(path: str, content: bytes, *, cut: bool = False) -> str | None:
    """Return the content as text; None if it is not text."""
    if PurePosixPath(path).suffix.lower() in BINARY or b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A character may be cut at the end.
        return content[: error.start].decode() if cut and error.start > len(content) - 4 else None


def differences(
    blobs: Blobs, before: Mapping[str, Entry], after: Mapping[str, Entry]
) -> tuple[list[Difference], int]:
    """Return the files that differ between two trees, at most 200, and the number of those omitted."""
    changed = [
        path for path in sorted({*before, *after}) if _sha256_of(before, path) != _sha256_of(after, path)
    ]
    results, room = list[Difference](), SHOWN
    for place, path in enumerate(changed[:MOST_FILES]):
        old, new = before.get(path), after.get(path)
        change = "added" if old is None else "deleted" if new is None else "changed"
        texts = [_read_lines(blobs, entry) for entry in (old, new)] if place < MOST_COMPARED else [None, None]
        lines: list[str] | None = None
        if texts[0] is not None and texts[1] is not None:
            diff = [*difflib.unified_diff(texts[0], texts[1], lineterm="")]
            lines = [line[:1000] for line in diff[2:]]  # without the heading
        size = sum(len(line) + 30 for line in lines or ())
        results.append(Difference(path, change, lines if size <= room else None))
        room -= size if size <= room else 0
    return results, max(0, len(changed) - MOST_FILES)


def _sha256_of(tree: Mapping[str, Entry], path: str) -> str | None:
    return tree[path].sha256 if path in tree else None


def _read_lines(blobs: Blobs, entry: Entry | None) -> list[str] | None:
    """Return the lines of a text that is small enough to compare; None for any other file."""
    if entry is None:
        return []
    if entry.size > MOST_BYTES:
        return None
    try:
        with blobs.open(entry.sha256) as stream:
            text = _decode(entry.path, stream.read(MOST_BYTES))
    except KcardError:  # a damaged file
        return None
    lines = None if text is None else text.splitlines()
    return lines if lines is not None and len(lines) <= MOST_LINES else None


# Pages of files, of the history, and of what a commit changed.

router = APIRouter(include_in_schema=False)

COMMITS = 50


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
    entries = [*hub.commits.tree(repository, sha).values()]
    return render_page(
        "files.html",
        row=load_row(hub, repository),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        files=entries[(page - 1) * MOST_FILES : page * MOST_FILES],
        total=len(entries),
        size=sum(entry.size for entry in entries),
        number=page,
        pages=-(-len(entries) // MOST_FILES),
        here="",
    )


@router.get("/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/blob/{revision}/{path:path}", dependencies=[EXPENSIVE])
def blob(
    hub: HubDep, identity: OptionalIdentity, repository: WebRepository, revision: Segment, path: RestOfPath
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


@router.get("/{namespace}/{name}/commits/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/commits/{revision}", dependencies=[EXPENSIVE])
def commits(hub: HubDep, repository: WebRepository, revision: Segment) -> Response:
    """Show the history of a revision; the next page starts with the parent of the last commit of this one."""
    sha = hub.refs.resolve(repository, revision)
    history = hub.commits.list(repository, sha, 0, COMMITS)
    return render_page(
        "commits.html",
        row=load_row(hub, repository),
        revision=revision,
        commits=history,
        older=history[-1].parent,
        here="",
    )


@router.get("/{namespace}/{name}/commit/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/commit/{revision}", dependencies=[EXPENSIVE])
def commit(hub: HubDep, identity: OptionalIdentity, repository: WebRepository, revision: Segment) -> Response:
    """Show the changes of a commit."""
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    details = hub.commits.get(repository, sha)
    before = hub.commits.tree(repository, details.parent) if details.parent else {}
    changed, omitted = differences(hub.blobs, before, hub.commits.tree(repository, sha))
    return render_page(
        "commit.html",
        row=load_row(hub, repository),
        revision=revision,
        commit=details,
        changed=changed,
        omitted=omitted,
        here="",
    )
