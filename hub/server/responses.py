"""Responses as JSON: errors, repositories, files, commits, and links to the next page."""

import html
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from starlette.responses import JSONResponse

from kcard.errors import DiskFull, KcardError, Unavailable, UsageError
from kcard.hub.checks.metadata import MAX_DESCRIPTION_CHARACTERS
from kcard.hub.db.models import Commit, Ref, Repository, Version
from kcard.hub.errors import (
    Conflict,
    Forbidden,
    Gated,
    Invalid,
    NotFound,
    Refused,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unsupported,
    WrongParent,
)
from kcard.hub.server.dependencies import ServerOptions, base_url
from kcard.hub.trees import lfs_pointer
from kcard.hub.values import Entry, VerifiedFigures

Json: TypeAlias = dict[str, Any]
Value = TypeVar("Value")

# Errors are translated into HTTP here and nowhere else, in the form that Hugging Face clients read.
STATUS: dict[type[KcardError], int] = {
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    WrongParent: 412,
    TooLarge: 413,
    TooManyRequests: 429,
    Invalid: 400,
    Unsupported: 501,
    Unavailable: 503,
    DiskFull: 507,
    UsageError: 400,
}
CODES = {"repository": "RepoNotFound", "revision": "RevisionNotFound", "entry": "EntryNotFound"}
MESSAGES: dict[type[KcardError], str] = {
    Unavailable: "the hub's database or store is unavailable: try again in a moment",
    DiskFull: "the hub's disk is full and nothing was stored: tell the administrator of this hub",
}
INTERNAL = "internal error: see the hub's log"
MAX_MESSAGE_CHARACTERS = 500  # in a header
RETRY_SECONDS = "5"
UNPRINTABLE_CHARACTERS = re.compile(r"[^\x20-\x7e]+")
logger = logging.getLogger("kcard.hub.server")


def make_json_error(error: KcardError) -> JSONResponse:
    """Return the response for an error: its status, and headers with the message and a code for programs.

    Headers are limited to printable ASCII, since a line end would begin another one. The message of a server error
    may contain hosts and paths, so it only goes to the log.
    """
    status, message = status_of(error), str(error)
    if status >= 500 and not isinstance(error, Refused):
        logger.error("%s: %s", type(error).__name__, error)
        message = _of_type(MESSAGES, error, INTERNAL)
    headers = {"X-Error-Message": UNPRINTABLE_CHARACTERS.sub(" ", message)[:MAX_MESSAGE_CHARACTERS]}
    match error:
        case Gated():
            headers["X-Error-Code"] = "GatedRepo"
        case NotFound():
            if error.what in CODES:
                headers["X-Error-Code"] = CODES[error.what]
            if error.commit is not None:
                headers["X-Repo-Commit"] = error.commit
        case Unavailable():
            headers["Retry-After"] = RETRY_SECONDS
        case TooManyRequests():
            headers["Retry-After"] = str(max(1, round(error.seconds)))
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def status_of(error: KcardError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Gated):
        return 403 if error.known else 401
    if isinstance(error, NotFound) and not error.known:
        return 401
    return _of_type(STATUS, error, 500)


def _of_type(table: Mapping[type[KcardError], Value], error: KcardError, default: Value) -> Value:
    for kind, value in table.items():
        if isinstance(error, kind):
            return value
    return default


def describe_invalid(errors: Sequence[Any]) -> Invalid:
    """Return the first of pydantic's errors as the hub's."""
    where = ".".join(str(part) for part in errors[0]["loc"])
    return Invalid(f"{where}: {errors[0]['msg']}")


def link_to_next_page(
    request: Request, options: ServerOptions, path: str, **changed: str | int
) -> dict[str, str]:
    """Return the Link header with the absolute URL of the next page.

    `path` is unquoted, or needs no quoting; `changed` replaces parameters of the request's query.
    """
    parameters = [(key, value) for key, value in request.query_params.multi_items() if key not in changed]
    query = urlencode([*parameters, *changed.items()])
    return {"Link": f'<{base_url(request, options)}{quote(path, safe="/%")}?{query}>; rel="next"'}


QUARANTINED_STATUS = "quarantined"
# Commits check every file, though not with a virus scanner.
CHECKED_SECURITY = {"status": "safe", "avScan": None, "pickleImportScan": None}


def format_time(moment: datetime) -> str:
    """Format a time in UTC with milliseconds, as clients parse it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def describe_repository(value: Repository, summary: Version | None) -> Json:
    """Return the properties of a repository that need none of its files.

    `kcard` describes the newest published version, null without one. If that is quarantined, a tag says so.
    """
    properties: Json = {
        "_id": f"{value.id:024x}",
        "id": value.name,
        "author": value.namespace,
        "private": value.private,
        "gated": False if value.gated == "no" else value.gated,
        "disabled": False,
        "sha": value.head,
        "createdAt": format_time(value.created),
        "lastModified": format_time(value.modified),
        "downloads": value.downloads,
        "likes": value.likes,
        "tags": list(value.tags),
        "kcard": None,
    }
    if value.type == "model":
        properties["modelId"] = value.name
    if value.pipeline_tag is not None:
        properties["pipeline_tag"] = value.pipeline_tag
    if value.library is not None:
        properties["library_name"] = value.library
    if summary is not None:
        properties["kcard"] = _describe_summary(summary)
        if summary.quarantine:
            properties["tags"].append(QUARANTINED_STATUS)
    return properties


def _describe_summary(summary: Version) -> Json:
    described: Json = {
        "reference": summary.reference,
        "version": summary.sha256,
        "description": summary.description[:MAX_DESCRIPTION_CHARACTERS],
        "declared": None,
        "verified": None,
        "unexamined": summary.unexamined,
        "quarantined": False,
        "quarantine": None,
    }
    declared, reason = summary.declared, summary.quarantine
    if declared is not None:
        described["declared"] = {
            "recall": declared.recall,
            "factuality": declared.factuality,
            "coverage": declared.coverage,
            "fault": declared.fault or None,
        }
    if summary.verified is not None:
        described["verified"] = _describe_verified(summary.verified)
    if reason is not None:
        described["quarantined"] = True
        described["quarantine"] = {
            "reason": str(reason),
            "by": reason.word,
            "factuality": reason.factuality,
            "threshold": reason.threshold,
            "coverage": reason.coverage,
            "audit": reason.audit,
            "at": None if reason.taken is None else format_time(reason.taken),
            "evidence": reason.evidence,
        }
    return described


def _describe_verified(figures: VerifiedFigures) -> Json:
    return {
        "recall": figures.recall,
        "faithfulness": figures.faithfulness,
        "factuality": figures.factuality,
        "coverage": figures.coverage,
        "judged": figures.judged,
        "overlap": figures.overlap,
        "independent": figures.independent,
        "at": format_time(figures.at),
        "by": figures.author,
        "kcard": figures.kcard,
        "audit": figures.audit,
        "evidence": figures.evidence,
        "evidenceSha256": figures.evidence_sha256,
        "checker": figures.checker,
        "released": figures.released,
    }


def select_properties(properties: Collection[str], values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the properties that `expand` requests, and those that are always included."""
    names = {"_id", "id", "modelId", "kcard", *properties}
    return {key: value for key, value in values.items() if key in names}


def describe_sibling(entry: Entry, blobs: bool) -> Json:
    """Describe a file of a repository; `blobs` adds its size and hashes."""
    if not blobs:
        return {"rfilename": entry.path}
    item: Json = {"rfilename": entry.path, "size": entry.size, "blobId": entry.oid}
    if entry.lfs:
        item["lfs"] = {"sha256": entry.sha256, **_sizes(entry)}
    return item


def describe_file(entry: Entry) -> Json:
    """Describe a file in the listing of a folder."""
    item: Json = {"type": "file", "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.lfs:
        item["lfs"] = {"oid": entry.sha256, **_sizes(entry)}
    return item


def _sizes(entry: Entry) -> Json:
    return {"size": entry.size, "pointerSize": len(lfs_pointer(entry.sha256, entry.size))}


def describe_commit(value: Commit, formatted: bool) -> Json:
    """Describe a commit; `formatted` adds title and message as HTML."""
    described: Json = {
        "id": value.sha,
        "title": value.title,
        "message": value.message,
        "authors": [{"user": value.author}],
        "date": format_time(value.date),
    }
    if formatted:
        described["formatted"] = {"title": html.escape(value.title), "message": html.escape(value.message)}
    return described


def describe_refs(values: Iterable[Ref], prefix: str) -> list[Json]:
    """Describe branches or tags; `prefix` is git's prefix of their names."""
    return [{"name": ref.name, "ref": f"{prefix}{ref.name}", "targetCommit": ref.sha} for ref in values]
