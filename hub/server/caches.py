"""The cache of a worker: trees, lists of files, manifests, READMEs and other details of recently read repositories.

The description of ten thousand files has a megabyte and takes 50 ms to make, so it is made once for each commit.
"""

import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request

from kcard.hub import card_metadata
from kcard.hub.card_metadata import abridge_readme
from kcard.hub.checks import metadata
from kcard.hub.checks.metadata import LONGEST_DESCRIPTION, check_manifest, render_readme, split_front_matter
from kcard.hub.db.models import Repository, Version
from kcard.hub.errors import TooLarge
from kcard.hub.server.folders import Folders
from kcard.hub.server.responses import Json, describe_sibling
from kcard.hub.server.results import declared_results, drop_claims, make_model_index, verified_results
from kcard.hub.services import HubServices
from kcard.hub.values import Entry
from kcard.io import parse
from kcard.manifest import MANIFEST, Manifest

Value = TypeVar("Value")

MAX_CACHE_BYTES = 60 << 20  # of all values
# Bytes of an entry besides its value, of a file in a tree, and of a manifest without its files.
OVERHEAD, FILE_BYTES, MANIFEST_BYTES = 500, 600, 5000


class SizedCache:
    """Values by key, with a total size of at most `most` bytes. Thread-safe; values must not be changed."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def fetch(self, key: Hashable, make: Callable[[], Value], measure: Callable[[Value], int]) -> Value:
        """Return the value, making it if it is not in the cache; it evicts those that were not used for longest.

        A value that is larger than the cache is not kept.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                cached: Value = self._entries[key][0]
                return cached
        value = make()
        size = OVERHEAD + measure(value)
        with self._lock:
            if size <= self._most and key not in self._entries:
                self._entries[key] = (value, size)
                self._size += size
            while self._size > self._most:
                self._size -= self._entries.popitem(last=False)[1][1]
        return value


# Properties whose values are encoded as JSON.
EncodedProperties: TypeAlias = dict[str, bytes]

MAX_README_BYTES = 4 * (metadata.LARGEST + metadata.LONGEST)  # that may be shown
# A placeholder for the path of the repository's files, since several repositories may have the same text. It is random,
# so that no README can contain it.
FILES_PLACEHOLDER = f"/{secrets.token_hex(16)}"
MAX_CONFIG_BYTES = 1_000_000
CONFIG, ADAPTER = "config.json", "adapter_config.json"
MAX_NAMES, MAX_NAME_CHARACTERS = 50, 500
MAX_LIST_BYTES = 1 << 20  # of the list of files in a description; clients read a longer one from the tree


@dataclass(frozen=True)
class FileProperties:
    """What a commit's files say of a repository: encoded lists of files and of a config's fields, results."""

    siblings: bytes
    config: bytes
    results: list[Json]


class Caches:
    """What a worker has read of repositories, in one cache of `most` bytes. Thread-safe."""

    def __init__(self, hub: HubServices, most: int = MAX_CACHE_BYTES) -> None:
        self._hub, self._cache, self._rendering = hub, SizedCache(most), threading.Lock()

    def folders(self, repository: Repository, sha: str) -> Folders:
        """Return the files of an existing commit with their folders.

        Clients download a repository file by file, and each request needs the tree of the same commit. Reading a tree
        of ten thousand files takes 25 ms.
        """
        return self._cache.fetch(
            ("tree", repository.id, sha),
            lambda: Folders(self._hub.commits.tree(repository, sha)),
            lambda folders: FILE_BYTES * len(folders.files),
        )

    def tree(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        """Return the files of an existing commit by path; read-only."""
        return self.folders(repository, sha).files

    def manifest(self, tree: Mapping[str, Entry]) -> Manifest | None:
        """Return the manifest of a tree, without its files and with a long description cut.

        None if it is missing, invalid, or has longer texts than pages show.
        """
        if MANIFEST not in tree:
            return None

        def read() -> Manifest | None:
            manifest = card_metadata.read_manifest(tree, self._hub.blobs)
            if manifest is None:
                return None
            manifest = replace(manifest, files={}, description=manifest.description[:LONGEST_DESCRIPTION])
            try:
                check_manifest(manifest)
            except TooLarge:
                return None
            return manifest

        return self._cache.fetch(("manifest", tree[MANIFEST].sha256), read, lambda _: MANIFEST_BYTES)

    def readme(self, entry: Entry, files: str, manifest: Manifest | None = None) -> str:
        """Return a README.md as safe HTML: the text below the metadata, cut if it is long.

        `files` is the path of the repository's files; what the page shows of the manifest is omitted. Raises
        DamagedCard if the file is missing, HubError if the store is unavailable.
        """

        def render() -> str:
            with self._hub.blobs.open(entry.sha256) as stream:
                text = stream.read(MAX_README_BYTES).decode(errors="replace")
            text = split_front_matter(text)[1]
            if manifest is not None:
                text = abridge_readme(text, manifest)
            return render_readme(text, FILES_PLACEHOLDER)

        key = ("readme", entry.sha256, manifest and (manifest.name, manifest.description))
        with self._rendering:  # one at a time, and none twice
            document = self._cache.fetch(key, render, len)
        return document.replace(FILES_PLACEHOLDER, files)

    def at_revision(self, repository: Repository, sha: str) -> Repository:
        """Return the repository with the properties that it has at this commit, which may not be the head of main."""
        if sha == repository.head:
            return repository
        tree = self.tree(repository, sha)
        readme_size = tree[card_metadata.README].size if card_metadata.README in tree else 0
        properties = self._cache.fetch(
            ("metadata", repository.id, sha),
            lambda: card_metadata.read_metadata(tree, self._hub.blobs),
            lambda _: readme_size,
        )
        modified = self._hub.commits.get(repository, sha).date
        at_commit: Repository = repository.copy(head=sha, modified=modified, **vars(properties))
        return at_commit

    def file_properties(
        self, repository: Repository, summary: Version | None, *, blobs: bool, config: bool
    ) -> EncodedProperties:
        """Return the files at the repository's head, the metadata of README.md, and evaluation results.

        The files are null if their list is longer than MAX_LIST_BYTES: Hugging Face clients then request the tree.
        `config` adds parts of config.json.
        """
        files = self._cache.fetch(
            ("files", repository.id, repository.head, blobs),
            lambda: self._read_files(repository, blobs),
            lambda files: len(files.siblings) + len(files.config) + len(_encode(files.results)),
        )
        properties = {"siblings": files.siblings, **card_properties(repository, summary)}
        results = [*files.results, *verified_results(summary)]
        if results:
            properties["evalResults"] = _encode(results)
        if config and files.config != b"{}":
            properties["config"] = files.config
        return properties

    def _read_files(self, repository: Repository, blobs: bool) -> FileProperties:
        tree = self.tree(repository, repository.head) if repository.head else {}
        siblings = b"null"
        if sum(map(len, tree)) <= MAX_LIST_BYTES:  # the list has at least as many bytes
            encoded = _encode([describe_sibling(entry, blobs) for entry in tree.values()])
            if len(encoded) <= MAX_LIST_BYTES:
                siblings = encoded
        # The fields by which clients choose a class.
        config = _short_values(self._read_json(tree.get(CONFIG)), "architectures", "model_type")
        adapter = self._read_json(tree.get(ADAPTER))
        if adapter:
            config["peft"] = _short_values(adapter, "base_model_name_or_path", "task_type", "peft_type")
        return FileProperties(siblings, _encode(config), declared_results(self._hub.blobs, tree))

    def _read_json(self, entry: Entry | None) -> Mapping[str, Any]:
        """Read the JSON object in a file; empty if the file is missing, too large or invalid."""
        if entry is None or entry.size > MAX_CONFIG_BYTES:
            return {}
        with self._hub.blobs.open(entry.sha256) as stream:
            text = stream.read().decode(errors="replace")
        try:
            content = parse(text)
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


def card_properties(repository: Repository, summary: Version | None) -> EncodedProperties:
    """Return the properties from the metadata of README.md, the verified results, and the size."""
    card = dict(repository.card)
    index = make_model_index(card, repository.name, summary)
    if "model-index" in card:
        card["model-index"] = drop_claims(card["model-index"])
    properties = {"cardData": _encode(card), "usedStorage": _encode(repository.size)}
    if index:
        properties["model-index"] = _encode(index)
    return properties


def join_json(properties: Json, more: EncodedProperties) -> bytes:
    """Return one JSON object with these properties, at least one, and others that are already encoded."""
    parts = [_encode(properties)[:-1]]
    for key, value in more.items():
        parts.append(b"%s:%s" % (_encode(key), value))
    return b",".join(parts) + b"}"


def _short_values(config: Mapping[str, Any], *keys: str) -> Json:
    """Return the values of these keys, if they are a name or a short list of names."""
    return {key: config[key] for key in keys if key in config and _is_short(config[key])}


def _is_short(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_NAMES and all(isinstance(each, str) and _is_short(each) for each in value)
    return value is None or (isinstance(value, str) and len(value) <= MAX_NAME_CHARACTERS)


def _encode(value: Any) -> bytes:
    """Encode as starlette's JSONResponse does."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


async def get_caches(request: Request) -> Caches:
    caches: Caches = request.app.state.caches
    return caches


CachesDep: TypeAlias = Annotated[Caches, Depends(get_caches)]
