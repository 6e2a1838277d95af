"""The properties of a repository that come from its files, as JSON, kept for the commits that were used last.

A description of ten thousand files has a megabyte, and making it takes 50 ms: it is made once for a commit.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.card_metadata import CardMetadata
from kcard.hub.repositories.values import Entry, Mark, Repository
from kcard.hub.server.reading.eval_results import (
    declared_model_index,
    declared_results,
    model_index,
    verified_results,
)
from kcard.hub.server.reading.recent_trees import FEW, RecentTrees
from kcard.hub.server.reading.repository_json import Json, sibling
from kcard.hub.server.reading.sized_cache import SizedCache
from kcard.hub.shared import SharedHub
from kcard.json_values import parse

__all__ = ["Details", "Encoded", "card_properties", "joined"]

# Properties with their values as JSON.
Encoded: TypeAlias = dict[str, bytes]

LARGEST_CONFIG = 1_000_000
CONFIG, ADAPTER = "config.json", "adapter_config.json"
MOST_NAMES, LONGEST_NAME = 50, 500
LARGEST_LIST = 1 << 20  # bytes of the list of files in a description; clients read a longer one from the tree
LARGEST = 16 << 20  # bytes of all lists of files that are kept
MOST_CONFIGS = 1 << 20  # bytes of all parts of config.json that are kept
MOST_RESULTS = 4 << 20  # bytes of all results of .eval_results that are kept
MOST_METADATA = 1 << 20  # bytes of README.md files whose metadata is kept
KEY = 500  # bytes that anything kept takes besides


def joined(properties: Json, more: Encoded) -> bytes:
    """The JSON object of the properties, of which there is at least one, and more that are JSON already."""
    return b",".join([_bytes(properties)[:-1], *(b"%s:%s" % (_bytes(key), more[key]) for key in more)]) + b"}"


class Details:
    """The properties of repositories that come from their files. Thread-safe."""

    def __init__(self, hub: SharedHub, trees: RecentTrees) -> None:
        self._hub, self._trees = hub, trees
        self._siblings: SizedCache[tuple[int, str, bool], bytes] = SizedCache(LARGEST)
        self._configs: SizedCache[tuple[int, str], bytes] = SizedCache(MOST_CONFIGS)
        self._results: SizedCache[tuple[int, str], list[Json]] = SizedCache(MOST_RESULTS)
        self._metadata: SizedCache[tuple[int, str], CardMetadata] = SizedCache(MOST_METADATA)

    def at_revision(self, repository: Repository, sha: str) -> Repository:
        """The repository with the properties of another commit than the head of main."""
        if sha == repository.head:
            return repository
        shown = self._shown(repository, sha)
        return dataclasses.replace(
            repository,
            head=sha,
            modified=self._hub.commits.get(repository, sha).date,
            card=shown.card,
            tags=shown.tags,
            pipeline_tag=shown.pipeline_tag,
            library=shown.library,
            size=shown.size,
        )

    def of(self, repository: Repository, mark: Mark | None, *, blobs: bool, config: bool) -> Encoded:
        """The files at the repository's head, the metadata of README.md, and evaluation results.

        The files are null if their list is longer than LARGEST_LIST: the Hugging Face clients then ask for the tree.
        `config` adds parts of config.json.
        """
        head = repository.head or ""
        kept, names = (repository.id, head, blobs), (repository.id, head)
        files, found = self._siblings.get(kept), self._configs.get(names) if config else b""
        results = self._results.get(names)
        if files is None or found is None or results is None:
            tree = self._trees.get(repository, head) if head else {}
            files = files or _listed(tree, blobs)
            found = found or (_bytes(self._config(tree)) if config else b"")
            if results is None:
                results = declared_results(self._hub.blobs, tree)
                self._results.put(names, results, KEY + len(_bytes(results)))
            if len(tree) >= FEW:
                self._siblings.put(kept, files, len(files))
            if config:
                self._configs.put(names, found, KEY + len(found))
        known = {"siblings": files, **card_properties(repository, mark)}
        if results := [*results, *verified_results(mark)]:
            known["evalResults"] = _bytes(results)
        return known | ({"config": found} if found not in (b"", b"{}") else {})

    def _shown(self, repository: Repository, sha: str) -> CardMetadata:
        key = (repository.id, sha)
        found = self._metadata.get(key)
        if found is None:
            tree = self._trees.get(repository, sha)
            found = card_metadata.read(tree, self._hub.blobs)
            readme = tree[card_metadata.README].size if card_metadata.README in tree else 0
            self._metadata.put(key, found, min(KEY + readme, MOST_METADATA // 2))
        return found

    def _config(self, tree: Mapping[str, Entry]) -> Json:
        """The fields by which clients choose a class."""
        found = _names(self._parsed(tree.get(CONFIG)), "architectures", "model_type")
        if adapter := self._parsed(tree.get(ADAPTER)):
            found["peft"] = _names(adapter, "base_model_name_or_path", "task_type", "peft_type")
        return found

    def _parsed(self, entry: Entry | None) -> Mapping[str, Any]:
        """The JSON object in a file; empty if the file is missing, too large or invalid."""
        if entry is None or entry.size > LARGEST_CONFIG:
            return {}
        with self._hub.blobs.open(entry.sha256) as stream:
            text = stream.read().decode(errors="replace")
        try:
            found = parse(text)
        except (json.JSONDecodeError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def card_properties(repository: Repository, mark: Mark | None) -> Encoded:
    """The properties from the metadata of README.md, the verified results, and the size."""
    card = dict(repository.card)
    index = model_index(card, repository.name, mark)
    if "model-index" in card:
        card["model-index"] = declared_model_index(card)
    known = {"cardData": _bytes(card), "usedStorage": _bytes(repository.size)}
    if index:
        known["model-index"] = _bytes(index)
    return known


def _listed(tree: Mapping[str, Entry], blobs: bool) -> bytes:
    if sum(map(len, tree)) <= LARGEST_LIST:  # at least as many bytes
        listed = _bytes([sibling(entry, blobs) for entry in tree.values()])
        if len(listed) <= LARGEST_LIST:
            return listed
    return b"null"


def _names(found: Mapping[str, Any], *keys: str) -> Json:
    """The values of these keys that are a name or a few names."""
    return {key: found[key] for key in keys if key in found and _is_short(found[key])}


def _is_short(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_NAMES and all(isinstance(each, str) and _is_short(each) for each in value)
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_NAME)


def _bytes(value: Any) -> bytes:
    """As starlette's JSONResponse."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
