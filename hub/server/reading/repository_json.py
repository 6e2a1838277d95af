"""Repositories, files and commits as JSON for the Hugging Face clients."""

import html
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from kcard.hub.repositories.figures import Declared, Reason, Verified
from kcard.hub.repositories.file_entries import pointer
from kcard.hub.repositories.values import Commit, Entry, Mark, Ref, Repository

__all__ = [
    "ABSENT",
    "UNAUTHORIZED",
    "Json",
    "Responses",
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
# The responses of a route, for the OpenAPI description.
Responses: TypeAlias = dict[int | str, dict[str, Any]]
ABSENT: Responses = {404: {"description": "No such repository, revision or path: see X-Error-Code"}}
UNAUTHORIZED: Responses = {401: {"description": "A missing or invalid token"}}
Value = TypeVar("Value")
QUARANTINED = "quarantined"
# The commit endpoint has checked every file, but not with a virus scanner.
CHECKED = {"status": "safe", "avScan": None, "pickleImportScan": None}


def time(moment: datetime) -> str:
    """A time in UTC with milliseconds, in the format that clients parse."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def repository(value: Repository, mark: Mark | None) -> Json:
    """The properties of a repository that need none of its files.

    `kcard` describes the newest published version, null without one. A quarantined version adds a tag.
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
        "declared": None if mark.declared is None else _declared(mark.declared),
        "verified": None if mark.verified is None else _verified(mark.verified),
        "unexamined": mark.unexamined,
        "quarantined": mark.quarantined,
        "quarantine": None if mark.quarantine is None else _reason(mark.quarantine),
    }


def _declared(figures: Declared) -> Json:
    return {
        "recall": figures.recall,
        "factuality": figures.factuality,
        "coverage": figures.coverage,
        "fault": figures.fault or None,
    }


def _verified(figures: Verified) -> Json:
    return {
        "recall": figures.recall,
        "faithfulness": figures.faithfulness,
        "factuality": figures.factuality,
        "coverage": figures.coverage,
        "judged": figures.judged,
        "overlap": figures.overlap,
        "independent": figures.independent,
        "at": time(figures.at),
        "by": figures.author,
        "kcard": figures.kcard,
        "audit": figures.audit,
        "evidence": figures.evidence,
        "evidenceSha256": figures.evidence_sha256,
        "checker": figures.checker,
        "released": figures.released,
    }


def _reason(reason: Reason) -> Json:
    return {
        "reason": str(reason),
        "by": reason.word,
        "factuality": reason.factuality,
        "threshold": reason.threshold,
        "coverage": reason.coverage,
        "audit": reason.audit,
        "at": None if reason.taken is None else time(reason.taken),
        "evidence": reason.evidence,
    }


def only(properties: Collection[str], found: Mapping[str, Value]) -> dict[str, Value]:
    """The properties that `expand` requests, and those that are always included."""
    kept = {"_id", "id", "modelId", "kcard", *properties}
    return {key: value for key, value in found.items() if key in kept}


def sibling(entry: Entry, blobs: bool) -> Json:
    """A file in the description of a repository; `blobs` adds its size and hashes."""
    if not blobs:
        return {"rfilename": entry.path}
    known: Json = {"rfilename": entry.path, "size": entry.size, "blobId": entry.oid}
    if entry.lfs:
        known["lfs"] = {"sha256": entry.sha256, **_sizes(entry)}
    return known


def file(entry: Entry) -> Json:
    """A file in the listing of a folder."""
    known: Json = {"type": "file", "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.lfs:
        known["lfs"] = {"oid": entry.sha256, **_sizes(entry)}
    return known


def _sizes(entry: Entry) -> Json:
    return {"size": entry.size, "pointerSize": len(pointer(entry.sha256, entry.size))}


def folder(path: str, oid: str) -> Json:
    """A folder in the listing of a folder."""
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def expanded(item: Json, last: Commit | None) -> Json:
    """An item of a listing with its security status and, if known, the last commit that changed it."""
    found = dict(item)
    if last is not None:
        found["lastCommit"] = {"id": last.sha, "title": last.title, "date": time(last.date)}
    if item["type"] == "file":
        found["securityFileStatus"] = CHECKED
    return found


def commit(value: Commit, formatted: bool) -> Json:
    """A commit; `formatted` adds title and message as HTML."""
    texts = {"title": value.title, "message": value.message}
    shown = {"formatted": {key: html.escape(text) for key, text in texts.items()}} if formatted else {}
    return {"id": value.sha, **texts, "authors": [{"user": value.author}], "date": time(value.date), **shown}


def references(values: Iterable[Ref], prefix: str) -> list[Json]:
    """Branches or tags; `prefix` is git's prefix of their names."""
    return [{"name": ref.name, "ref": f"{prefix}{ref.name}", "targetCommit": ref.sha} for ref in values]
