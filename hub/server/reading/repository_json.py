"""Repositories, files and commits as the Hugging Face clients read them."""

import html
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from kcard.hub.repositories.git_oid import pointer
from kcard.hub.repositories.values import Commit, Entry, Mark, Ref, Repository

__all__ = [
    "Answers",
    "Json",
    "commit",
    "expanded",
    "file",
    "folder",
    "only",
    "references",
    "repository",
    "sibling",
    "time",
]

Json: TypeAlias = dict[str, Any]
# What a route may answer, for the description of the interface.
Answers: TypeAlias = dict[int | str, dict[str, Any]]
QUARANTINED = "quarantined"
# What the commit endpoint checked before it took the file. There is no virus scanner here, and it says so.
CHECKED = {"status": "safe", "avScan": None, "pickleImportScan": None}


def time(moment: datetime) -> str:
    """A time in UTC with milliseconds, as the clients parse it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def repository(value: Repository, mark: Mark | None) -> Json:
    """Everything about a repository that needs no look into its files.

    `kcard` is what is known of the newest version it published, null where it published none; a quarantined one
    has a tag that says so.
    """
    identifier = {"modelId": value.name} if value.type == "model" else {}
    optional = {"pipeline_tag": value.pipeline_tag, "library_name": value.library}
    tags = [*value.tags, QUARANTINED] if mark is not None and mark.quarantined else list(value.tags)
    return {
        "_id": f"{value.id:024x}",
        "id": value.name,
        **identifier,
        "author": value.namespace,
        "private": value.private,
        "gated": False if value.gated == "no" else value.gated,
        "disabled": False,
        "sha": value.head,
        "createdAt": time(value.created),
        "lastModified": time(value.modified),
        "downloads": value.downloads,
        "likes": value.likes,
        "tags": tags,
        **{key: content for key, content in optional.items() if content is not None},
        "kcard": None if mark is None else _marked(mark),
    }


def _marked(mark: Mark) -> Json:
    return {
        "reference": mark.reference,
        "version": mark.version,
        "description": mark.description,
        "factuality": mark.factuality,
        "audited": mark.audited,
        "quarantined": mark.quarantined,
    }


def only(properties: Collection[str], found: Mapping[str, Any]) -> Json:
    """What `expand` asked for, and what is told with every repository."""
    kept = {"_id", "id", "modelId", "kcard", *properties}
    return {key: value for key, value in found.items() if key in kept}


def sibling(entry: Entry, blobs: bool) -> Json:
    """A file in the description of a repository; with its size and hashes where `blobs` is asked for."""
    if not blobs:
        return {"rfilename": entry.path}
    known: Json = {"rfilename": entry.path, "size": entry.size, "blobId": entry.oid}
    if entry.lfs:
        size = {"size": entry.size, "pointerSize": len(pointer(entry.sha256, entry.size))}
        known["lfs"] = {"sha256": entry.sha256, **size}
    return known


def file(entry: Entry) -> Json:
    """A file in the listing of a folder."""
    known: Json = {"type": "file", "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.lfs:
        known["lfs"] = {
            "oid": entry.sha256,
            "size": entry.size,
            "pointerSize": len(pointer(entry.sha256, entry.size)),
        }
    return known


def folder(path: str, oid: str) -> Json:
    """A folder in the listing of another."""
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def expanded(item: Json, last: Commit | None) -> Json:
    """An item of a listing with the last commit that changed it, where that is known, and what was checked."""
    told: Json = {} if last is None else {"lastCommit": _last(last)}
    return item | told | ({"securityFileStatus": CHECKED} if item["type"] == "file" else {})


def _last(commit: Commit) -> Json:
    return {"id": commit.sha, "title": commit.title, "date": time(commit.date)}


def commit(value: Commit, formatted: bool) -> Json:
    """A commit; `formatted` adds its texts as HTML."""
    texts = {"title": value.title, "message": value.message}
    shown = {"formatted": {key: html.escape(text) for key, text in texts.items()}} if formatted else {}
    return {"id": value.sha, **texts, "authors": [{"user": value.author}], "date": time(value.date), **shown}


def references(values: Iterable[Ref], prefix: str) -> list[Json]:
    """Branches or tags; `prefix` is what git has before their names."""
    return [{"name": ref.name, "ref": f"{prefix}{ref.name}", "targetCommit": ref.sha} for ref in values]
