"""Responses as JSON: errors, repositories, evaluation results, pages of lists."""

import html
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from starlette.responses import JSONResponse

from kcard.errors import DiskFull, HubError, KcardError, Unavailable, UsageError
from kcard.hub.checks.metadata import MAX_DESCRIPTION_CHARACTERS, load_yaml
from kcard.hub.db.models import Commit, Ref, Repository, Version
from kcard.hub.errors import (
    Busy,
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
from kcard.hub.storage import Blobs
from kcard.hub.trees import lfs_pointer
from kcard.hub.values import Entry, VerifiedFigures

# Errors as HTTP responses, in the form that Hugging Face clients read. Errors are translated here and nowhere else.

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
    Busy: 503,
    Unavailable: 503,
    DiskFull: 507,
    UsageError: 400,
}
CODES = {"repository": "RepoNotFound", "revision": "RevisionNotFound", "entry": "EntryNotFound"}
LONGEST = 500
RETRY_SECONDS = "5"
SERVER_ERRORS = range(500, 600)
MESSAGES: dict[type[KcardError], str] = {
    Unavailable: "the hub's database or store is unavailable: try again in a moment",
    DiskFull: "the hub's disk is full and nothing was stored: tell the administrator of this hub",
}
INTERNAL = "internal error: see the hub's log"
logger = logging.getLogger("kcard.hub.server")
UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


def make_json_error(error: KcardError) -> JSONResponse:
    """Return the response for an error: its status, and headers with the message and a code for programs.

    Headers are limited to printable ASCII, since a line end would begin another one. The message of a server error
    may contain hosts and paths, so it only goes to the log.
    """
    status, message = status_of(error), str(error)
    if not isinstance(error, Refused) and status in SERVER_ERRORS:
        logger.error("%s: %s", type(error).__name__, error)
        message = next((text for kind, text in MESSAGES.items() if isinstance(error, kind)), INTERNAL)
    headers = {"X-Error-Message": UNPRINTABLE.sub(" ", message)[:LONGEST]}
    code = CODES.get(error.what) if isinstance(error, NotFound) else None
    if isinstance(error, Gated):
        code = "GatedRepo"
    if code:
        headers["X-Error-Code"] = code
    if isinstance(error, NotFound) and error.commit is not None:
        headers["X-Repo-Commit"] = error.commit
    if isinstance(error, Unavailable):
        headers["Retry-After"] = RETRY_SECONDS
    if isinstance(error, (TooManyRequests, Busy)):
        headers["Retry-After"] = str(max(1, round(error.seconds)))
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def status_of(error: KcardError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Gated):
        return 403 if error.known else 401
    if isinstance(error, NotFound) and not error.known:
        return 401
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


# The Link header that points to the next page.


def link_to_next_page(
    request: Request, options: ServerOptions, path: str, **changed: str | int
) -> dict[str, str]:
    """Return the Link header with the absolute URL of the next page.

    `path` is unquoted, or needs no quoting; `changed` replaces parameters of the request's query.
    """
    parameters = [(key, value) for key, value in request.query_params.multi_items() if key not in changed]
    query = urlencode([*parameters, *changed.items()])
    return {"Link": f'<{base_url(request, options)}{quote(path, safe="/%")}?{query}>; rel="next"'}


# References to versions of cards, such as NAMESPACE/NAME@v2.

Json: TypeAlias = dict[str, Any]
# The responses of a route, for the OpenAPI description.
Responses: TypeAlias = dict[int | str, dict[str, Any]]
ABSENT: Responses = {404: {"description": "No such repository, revision or path: see X-Error-Code"}}
UNAUTHORIZED: Responses = {401: {"description": "A missing or invalid token"}}
Value = TypeVar("Value")
QUARANTINED = "quarantined"
# Commits check every file, though not with a virus scanner.
CHECKED = {"status": "safe", "avScan": None, "pickleImportScan": None}


def format_time(moment: datetime) -> str:
    """Format a time in UTC with milliseconds, as clients parse it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def describe_repository(value: Repository, summary: Version | None) -> Json:
    """Return the properties of a repository that need none of its files.

    `kcard` describes the newest published version, null without one. If that is quarantined, a tag says so.
    """
    identifier = {"modelId": value.name} if value.type == "model" else {}
    optional = {"pipeline_tag": value.pipeline_tag, "library_name": value.library}
    tags = [*value.tags, QUARANTINED] if summary is not None and summary.quarantine else list(value.tags)
    return {
        "_id": f"{value.id:024x}",
        "id": value.name,
        **identifier,
        "author": value.namespace,
        "private": value.private,
        "gated": False if value.gated == "no" else value.gated,
        "disabled": False,
        "sha": value.head,
        "createdAt": format_time(value.created),
        "lastModified": format_time(value.modified),
        "downloads": value.downloads,
        "likes": value.likes,
        "tags": tags,
        **{key: content for key, content in optional.items() if content is not None},
        "kcard": None if summary is None else _describe_summary(summary),
    }


def _describe_summary(summary: Version) -> Json:
    declared, reason = summary.declared, summary.quarantine
    return {
        "reference": summary.reference,
        "version": summary.sha256,
        "description": summary.description[:MAX_DESCRIPTION_CHARACTERS],
        "declared": None
        if declared is None
        else {
            "recall": declared.recall,
            "factuality": declared.factuality,
            "coverage": declared.coverage,
            "fault": declared.fault or None,
        },
        "verified": None if summary.verified is None else _describe_verified(summary.verified),
        "unexamined": summary.unexamined,
        "quarantined": reason is not None,
        "quarantine": None
        if reason is None
        else {
            "reason": str(reason),
            "by": reason.word,
            "factuality": reason.factuality,
            "threshold": reason.threshold,
            "coverage": reason.coverage,
            "audit": reason.audit,
            "at": None if reason.taken is None else format_time(reason.taken),
            "evidence": reason.evidence,
        },
    }


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


def describe_folder(path: str, oid: str) -> Json:
    """Describe a folder in the listing of a folder."""
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def expand_item(item: Json, last: Commit | None) -> Json:
    """Add to an item of a listing its security status and, if known, the last commit that changed it."""
    details = dict(item)
    if last is not None:
        details["lastCommit"] = {"id": last.sha, "title": last.title, "date": format_time(last.date)}
    if item["type"] == "file":
        details["securityFileStatus"] = CHECKED
    return details


def describe_commit(value: Commit, formatted: bool) -> Json:
    """Describe a commit; `formatted` adds title and message as HTML."""
    texts = {"title": value.title, "message": value.message}
    shown = {"formatted": {key: html.escape(text) for key, text in texts.items()}} if formatted else {}
    return {
        "id": value.sha,
        **texts,
        "authors": [{"user": value.author}],
        "date": format_time(value.date),
        **shown,
    }


def describe_refs(values: Iterable[Ref], prefix: str) -> list[Json]:
    """Describe branches or tags; `prefix` is git's prefix of their names."""
    return [{"name": ref.name, "ref": f"{prefix}{ref.name}", "targetCommit": ref.sha} for ref in values]


# Evaluation results in the Hugging Face Hub's formats: self-declared ones, and this hub's own, which are verified.
#
# A repository declares results in .eval_results/*.yaml and in the model-index of its README.md. Whatever these claim,
# only figures that this hub measured are marked as verified.

FOLDER = ".eval_results/"
MOST_FILES = 20
MOST_RESULTS = 200
LARGEST = 100_000  # bytes of a file
CLAIMS = ("verified", "verifyToken")
TASK = "question-answering"
CORPUS = "the card's own corpus"


def declared_results(blobs: Blobs, tree: Mapping[str, Entry]) -> list[Json]:
    """Return the results of .eval_results/*.yaml.

    Each has `filename`, `verified` and `data`, or `error` instead of `data` for a file that can't be read.
    """
    paths = [path for path in tree if path.startswith(FOLDER) and path.endswith((".yaml", ".yml"))]
    results = [result for path in sorted(paths)[:MOST_FILES] for result in _read_results(blobs, tree[path])]
    return results[:MOST_RESULTS]


def declared_model_index(card: Mapping[str, Any]) -> Any:
    """Return the model-index of README.md without its claims to be verified."""
    return _drop_claims(card["model-index"])


def make_model_index(card: Mapping[str, Any], name: str, summary: Version | None) -> list[Any]:
    """Return the model-index of README.md without claims to be verified, and the results that this hub verified."""
    declared = declared_model_index(card) if "model-index" in card else []
    results: list[Json] = []
    for result in verified_results(summary):
        dataset, metric = result["data"]["dataset"], result["data"]["dataset"]["task_id"]
        revision = {"revision": dataset["revision"]} if "revision" in dataset else {}
        value = result["data"]["value"]
        results.append(
            {
                "task": {"type": TASK},
                "dataset": {"name": dataset["id"], "type": "kcard", **revision},
                "metrics": [{"type": metric, "name": metric, "value": value, "verified": True}],
            }
        )
    own = [{"name": name, "results": results}] if results else []
    return (declared if isinstance(declared, list) else []) + own


def _read_results(blobs: Blobs, entry: Entry) -> Iterator[Json]:
    try:
        if entry.size > LARGEST:
            raise HubError(f"the file has {entry.size} bytes: the limit is {LARGEST}")
        with blobs.open(entry.sha256) as stream:
            content = load_yaml(stream.read().decode(), entry.path)
        if not isinstance(content, list):
            raise HubError("expected a list of results")
        # Results that clients can read, without their claims to be verified.
        results = []
        for result in content:
            dataset = result.get("dataset") if isinstance(result, dict) else None
            if not isinstance(result, dict) or not isinstance(dataset, dict) or "value" not in result:
                raise HubError("a result needs dataset and value")
            if not all(isinstance(dataset.get(key), str) for key in ("id", "task_id")):
                raise HubError("the dataset of a result needs id and task_id")
            if not isinstance(result.get("source", {}), dict):
                raise HubError("the source of a result must be an object")
            results.append({key: value for key, value in result.items() if key not in CLAIMS})
    except (Refused, HubError, UnicodeDecodeError) as error:
        message = " ".join(str(error).split())[:300]
        yield {"filename": entry.path, "verified": False, "error": message}
        return
    yield from ({"filename": entry.path, "verified": False, "data": result} for result in results)


def verified_results(summary: Version | None) -> Iterator[Json]:
    """Yield the figures that this hub measured, in the form of `declared_results`."""
    if summary is None or (verified := summary.verified) is None:
        return
    for name in ("recall", "faithfulness", "factuality"):
        if (value := getattr(verified, name)) is not None:
            dataset: Json = {"id": CORPUS, "task_id": name}
            notes = f"{summary.reference}, verified by this hub"
            if name == "factuality":
                revision = {"revision": verified.evidence_sha256} if verified.evidence_sha256 else {}
                dataset = {"id": verified.evidence or "evidence", "task_id": name, **revision}
                if verified.coverage is not None:
                    shared = "" if verified.independent else "; the evidence is not independent of the card"
                    documents = f"{verified.judged} documents ({verified.coverage:.0%})"
                    notes += f", over the {documents} that the evidence covers{shared}"
            data = {
                "dataset": dataset,
                "value": value,
                "date": format_time(verified.taken or verified.at if name == "factuality" else verified.at),
                "notes": notes,
            }
            yield {"filename": None, "verified": True, "data": data}


def _drop_claims(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_claims(item) for item in value]
    if isinstance(value, dict):
        return {key: _drop_claims(item) for key, item in value.items() if key not in CLAIMS}
    return value
