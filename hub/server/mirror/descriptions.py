"""What upstream says of a repository, as values: only what is expected, of the expected types and sizes."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from kcard.hub.accounts.names import folded
from kcard.hub.checks.content import check_name
from kcard.hub.refusals import Refused, UpstreamFailed
from kcard.hub.repositories.file_entries import pointer_oid
from kcard.hub.repositories.mirrors import Gate, Seen
from kcard.hub.repositories.values import Entry

__all__ = ["allowed", "described", "listed_refs", "refusal"]

MOST_FILES = 10_000
LONGEST_ABOUT = 1 << 20  # characters of the JSON of everything but the files
LONGEST_PATH, LONGEST_TEXT, MOST_TAGS, LONGEST_REF, MOST_REFS = 1000, 200, 1000, 250, 10_000
GATES: dict[Any, Gate] = {"auto": "auto", "manual": "manual"}
OID, SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")


def described(url: str, name: str, found: Mapping[str, Any]) -> Seen:
    """The description of a repository that upstream sent. Raises UpstreamFailed for one of another shape."""
    try:
        files = {entry.path: entry for entry in map(_entry, _listed(found))}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamFailed(f"{url} sent no valid list of the files of {name}: {error!r:.100}") from None
    own = found.get("id")
    same = isinstance(own, str) and folded(own) == folded(name)
    gate = GATES.get(found.get("gated"), "manual" if found.get("gated") else "no")
    return Seen(
        name=str(own) if same else name,
        sha=found["sha"],
        open=gate == "no" and not found.get("private"),
        gated=gate,
        about=_about(found),
        files={path: files[path] for path in sorted(files)},
    )


def allowed(files: Mapping[str, Entry], largest: int) -> dict[str, Entry]:
    """The files that this hub serves: without those that a commit would be refused for, by name or size."""
    return {path: entry for path, entry in files.items() if refusal(entry, largest) is None}


def refusal(entry: Entry, largest: int) -> str | None:
    """Why this hub does not serve a file, by its name or size; None: it does."""
    try:
        check_name(entry.path, entry.size)
    except Refused as error:
        return str(error)
    if entry.size > largest:
        return f"{entry.path} has {entry.size} bytes: the limit is {largest}"
    return None


def listed_refs(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Branches and tags that upstream sent, without what is not well-formed."""
    prefixes = {"branches": "refs/heads/", "tags": "refs/tags/"}
    listed = {kind: _refs(found.get(kind), prefix) for kind, prefix in prefixes.items()}
    return {**listed, "converts": [], "pullRequests": []}


def _refs(found: object, prefix: str) -> list[dict[str, str]]:
    refs = []
    for each in found[:MOST_REFS] if isinstance(found, list) else []:
        match each:
            case {"name": str(name), "targetCommit": str(sha)} if (
                OID.fullmatch(sha) and len(name) <= LONGEST_REF
            ):
                refs.append({"name": name, "ref": f"{prefix}{name}", "targetCommit": sha})
    return refs


def _listed(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed: list[Mapping[str, Any]] = found["siblings"]
    if not isinstance(listed, list):
        raise TypeError("siblings")
    if len(listed) > MOST_FILES:
        raise ValueError(f"more than {MOST_FILES} files")
    return listed


def _entry(listed: Mapping[str, Any]) -> Entry:
    path, oid, lfs = listed["rfilename"], listed.get("blobId") or "", listed.get("lfs")
    size = lfs["size"] if lfs else listed["size"]
    sha256 = lfs["sha256"] if lfs else ""
    valid = isinstance(path, str) and 0 < len(path) <= LONGEST_PATH and path.isprintable()
    if not valid or type(size) is not int or size < 0 or (lfs and not SHA256.fullmatch(sha256)):
        raise ValueError(path)
    if lfs and not OID.fullmatch(oid):
        oid = pointer_oid(sha256, size)
    if not OID.fullmatch(oid):
        raise ValueError(path)
    return Entry(path, oid, sha256, size, lfs=bool(lfs))


def _about(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What clients use, as upstream says it. Figures and results are left out: this hub did not measure them."""
    kept: dict[str, Any] = {}
    checks: dict[str, Callable[[Any], bool]] = {
        "lastModified": _is_text,
        "createdAt": _is_text,
        "pipeline_tag": _is_text,
        "library_name": _is_text,
        "tags": lambda tags: isinstance(tags, list) and len(tags) <= MOST_TAGS and all(map(_is_text, tags)),
        "cardData": lambda card: isinstance(card, dict),
        "config": lambda config: isinstance(config, dict),
    }
    for key, check in checks.items():
        if check(found.get(key)):
            kept[key] = found[key]
    try:
        fits = len(json.dumps(kept, ensure_ascii=False).encode()) <= LONGEST_ABOUT
    except UnicodeEncodeError:
        fits = False
    return kept if fits else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT
