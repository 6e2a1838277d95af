"""Caches of a worker: manifests, READMEs, trees, and details of recently read repositories.

The description of ten thousand files has a megabyte and takes 50 ms to make, so it is made once for each commit.
"""

import dataclasses
import hashlib
import json
import secrets
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from fastapi import Depends, Request

from kcard.hub import card_metadata
from kcard.hub.card_metadata import CardMetadata
from kcard.hub.checks.metadata import LARGEST as LONGEST_FRONT
from kcard.hub.checks.metadata import (
    LONGEST,
    LONGEST_DESCRIPTION,
    check_manifest,
    render_readme,
    split_front_matter,
)
from kcard.hub.errors import TooLarge
from kcard.hub.history import Commits
from kcard.hub.server.responses import (
    Json,
    declared_model_index,
    declared_results,
    describe_sibling,
    make_model_index,
    verified_results,
)
from kcard.hub.services import HubServices
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry, Repository, VersionSummary
from kcard.io import parse
from kcard.manifest import MANIFEST, Manifest

__all__ = [
    "FEW",
    "Caches",
    "CachesDep",
    "DetailCache",
    "EncodedProperties",
    "Folder",
    "Folders",
    "ManifestCache",
    "ReadmeCache",
    "SizedCache",
    "TreeCache",
    "TreeItem",
    "card_properties",
    "join_json",
]


# A least-recently-used cache, limited by the total size of its values.

CacheKey = TypeVar("CacheKey")
Value = TypeVar("Value")


class SizedCache(Generic[CacheKey, Value]):
    """Values by key, with a total size of at most `most`. Thread-safe; values must not be changed."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._entries: OrderedDict[CacheKey, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: CacheKey) -> Value | None:
        """Return the value, or None if it is not in the cache."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: CacheKey, value: Value, size: int) -> None:
        """Add a value, unless it is larger than the cache; evict the least recently used ones."""
        if size > self._most:
            return
        with self._lock:
            self._size += size - self._entries.pop(key, (value, 0))[1]
            self._entries[key] = (value, size)
            while self._size > self._most:
                self._size -= self._entries.popitem(last=False)[1][1]


# Manifests as pages show them: without their lists of files, and with a shortened description.

MOST_MANIFESTS = 1000


class ManifestCache:
    """Recently shown manifests, by their sha256. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._cache: SizedCache[str, tuple[Manifest | None]] = SizedCache(MOST_MANIFESTS)

    def of(self, tree: Mapping[str, Entry]) -> Manifest | None:
        """Return the manifest of a tree, with a long description cut; None if missing or invalid."""
        if MANIFEST not in tree:
            return None
        key = tree[MANIFEST].sha256
        cached = self._cache.get(key)
        if cached is None:
            manifest = card_metadata.read_manifest(tree, self._blobs)
            if manifest is not None:
                manifest = replace(manifest, files={}, description=manifest.description[:LONGEST_DESCRIPTION])
                try:
                    check_manifest(manifest)
                except TooLarge:
                    manifest = None
            cached = (manifest,)
            self._cache.put(key, cached, 1)
        return cached[0]


# READMEs as HTML, each rendered once, by their sha256.

MOST_READMES, READMES_KEY = 8 << 20, 500  # characters of HTML, and the overhead of each README
READ = 4 * (LONGEST_FRONT + LONGEST)  # bytes of a README.md that may be shown
# A placeholder for the path of the repository's files, since several repositories may have the same text. It is random,
# so that no README can contain it.
FILES = f"/{secrets.token_hex(16)}"


class ReadmeCache:
    """README.md files as safe HTML. Thread-safe."""

    def __init__(self, blobs: Blobs, most: int = MOST_READMES) -> None:
        self._blobs = blobs
        self._cache: SizedCache[str, str] = SizedCache(most)
        self._turn = threading.Lock()

    def html(self, entry: Entry, files: str) -> str:
        """Return the text below the metadata, cut if it is long; `files` is the path of the repository's files.

        Raises DamagedCard if the file is missing, HubError if the store is unavailable.
        """
        document = self._cache.get(entry.sha256)
        if document is None:
            with self._turn:  # another thread may have rendered it meanwhile
                document = self._cache.get(entry.sha256)
                if not document:
                    with self._blobs.open(entry.sha256) as stream:
                        text = stream.read(READ).decode(errors="replace")
                    document = render_readme(split_front_matter(text)[1], FILES)
                    self._cache.put(entry.sha256, document, READMES_KEY + len(document))
        return document.replace(FILES, files)


# The folders of a commit, derived from its paths, with the ids of git's trees: equal folders have equal ids.

FILE_MODE, FOLDER_MODE = b"100644", b"40000"


@dataclass(frozen=True)
class Folder:
    """A folder of a commit; `oid` is the sha1 of git's tree."""

    path: str
    oid: str


TreeItem: TypeAlias = Entry | Folder


@dataclass
class _Node:
    files: dict[str, str] = field(default_factory=dict)
    folders: "dict[str, _Node]" = field(default_factory=dict)


class Folders:
    """The files of a commit by path, and its folders, which are derived on first use."""

    def __init__(self, files: Mapping[str, Entry]) -> None:
        self.files = files

    def get(self, path: str) -> TreeItem | None:
        """Return the file or folder at a path; the path of the root is empty."""
        return self.files.get(path) or self._folders.get(path)

    def inside(self, path: str, recursive: bool) -> list[TreeItem] | None:
        """Return the files and folders in a folder, sorted by path; `recursive`: at any depth. None: no such folder."""
        if path not in self._folders:
            return None
        start = f"{path}/" if path else ""
        first = bisect_left(self._paths, start)
        items: list[TreeItem] = []
        for inner in islice(self._paths, first, None):
            if not inner.startswith(start):
                break
            if inner and (recursive or "/" not in inner[len(start) :]):
                items.append(self.files.get(inner) or self._folders[inner])
        return items

    @cached_property
    def _folders(self) -> dict[str, Folder]:
        root = _Node()
        for path, entry in self.files.items():
            *parents, name = path.split("/")
            node = root
            for parent in parents:
                node = node.folders.setdefault(parent, _Node())
            node.files[name] = entry.oid
        return {folder.path: folder for folder in _name_folders(root, "")}

    @cached_property
    def _paths(self) -> list[str]:
        return sorted([*self.files, *self._folders])


def _name_folders(node: _Node, path: str) -> Iterator[Folder]:
    """Yield the folders below a node, then the node itself."""
    # git sorts a folder as if its name ended with a slash
    rows = [(name.encode(), FILE_MODE, name, oid) for name, oid in node.files.items()]
    for name, inner in node.folders.items():
        *below, folder = _name_folders(inner, f"{path}/{name}" if path else name)
        yield from below
        yield folder
        rows.append((name.encode() + b"/", FOLDER_MODE, name, folder.oid))
    body = b"".join(
        b"%s %s\0%s" % (mode, name.encode(), bytes.fromhex(oid)) for _, mode, name, oid in sorted(rows)
    )
    yield Folder(path, hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest())


# A cache of commit trees.
#
# Clients download a repository file by file, and each request needs the tree of the same commit. Reading a tree of ten
# thousand files takes 25 ms.

# Files in all cached trees, about 25 MB of memory. Reading a tree of fewer than FEW files is as fast as the cache.
MOST_TREES, FEW = 40_000, 50
TreeKey: TypeAlias = tuple[int, str]


class TreeCache:
    """Recently used trees, and their folders. Thread-safe."""

    def __init__(self, commits: Commits, most: int = MOST_TREES) -> None:
        self._commits = commits
        self._trees: SizedCache[TreeKey, Folders] = SizedCache(most)

    def get(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        """Return the files of an existing commit by path; read-only."""
        return self.folders(repository, sha).files

    def folders(self, repository: Repository, sha: str) -> Folders:
        """Return the files of an existing commit with their folders."""
        key = (repository.id, sha)
        tree = self._trees.get(key)
        if tree is None:
            tree = Folders(self._commits.tree(repository, sha))
            if len(tree.files) >= FEW:
                self._trees.put(key, tree, len(tree.files))
        return tree


# Properties whose values are encoded as JSON.
EncodedProperties: TypeAlias = dict[str, bytes]

LARGEST_CONFIG = 1_000_000
CONFIG, ADAPTER = "config.json", "adapter_config.json"
MOST_NAMES, LONGEST_NAME = 50, 500
LARGEST_LIST = 1 << 20  # bytes of the list of files in a description; clients read a longer one from the tree
# Sizes of the caches, in bytes: lists of files, parts of config.json, results of .eval_results, and README.md files
# whose metadata is cached.
MOST_SIBLINGS, MOST_CONFIGS, MOST_RESULTS, MOST_METADATA = 16 << 20, 1 << 20, 4 << 20, 1 << 20
DETAILS_KEY = 500  # overhead of each entry, in bytes


def join_json(properties: Json, more: EncodedProperties) -> bytes:
    """Return one JSON object with these properties, at least one, and others that are already encoded."""
    return (
        b",".join([_encode(properties)[:-1], *(b"%s:%s" % (_encode(key), more[key]) for key in more)]) + b"}"
    )


class DetailCache:
    """Properties of repositories that are read from their files. Thread-safe."""

    def __init__(self, hub: HubServices, trees: TreeCache) -> None:
        self._hub, self._trees = hub, trees
        self._siblings: SizedCache[tuple[int, str, bool], bytes] = SizedCache(MOST_SIBLINGS)
        self._configs: SizedCache[tuple[int, str], bytes] = SizedCache(MOST_CONFIGS)
        self._results: SizedCache[tuple[int, str], list[Json]] = SizedCache(MOST_RESULTS)
        self._metadata: SizedCache[tuple[int, str], CardMetadata] = SizedCache(MOST_METADATA)

    def at_revision(self, repository: Repository, sha: str) -> Repository:
        """Return the repository with the properties that it has at this commit, which may not be the head of main."""
        if sha == repository.head:
            return repository
        key = (repository.id, sha)
        metadata = self._metadata.get(key)
        if metadata is None:
            tree = self._trees.get(repository, sha)
            metadata = card_metadata.read_metadata(tree, self._hub.blobs)
            readme = tree[card_metadata.README].size if card_metadata.README in tree else 0
            self._metadata.put(key, metadata, min(DETAILS_KEY + readme, MOST_METADATA // 2))
        return dataclasses.replace(
            repository,
            head=sha,
            modified=self._hub.commits.get(repository, sha).date,
            card=metadata.card,
            tags=metadata.tags,
            pipeline_tag=metadata.pipeline_tag,
            library=metadata.library,
            size=metadata.size,
        )

    def of(
        self, repository: Repository, summary: VersionSummary | None, *, blobs: bool, config: bool
    ) -> EncodedProperties:
        """Return the files at the repository's head, the metadata of README.md, and evaluation results.

        The files are null if their list is longer than LARGEST_LIST: Hugging Face clients then request the tree.
        `config` adds parts of config.json.
        """
        head = repository.head or ""
        siblings_key, key = (repository.id, head, blobs), (repository.id, head)
        files, config_json = self._siblings.get(siblings_key), self._configs.get(key) if config else b""
        results = self._results.get(key)
        if files is None or config_json is None or results is None:
            tree = self._trees.get(repository, head) if head else {}
            # The list of files.
            if not files:
                files = b"null"
                if sum(map(len, tree)) <= LARGEST_LIST:  # at least as many bytes
                    encoded = _encode([describe_sibling(entry, blobs) for entry in tree.values()])
                    files = encoded if len(encoded) <= LARGEST_LIST else files
            if not config_json and config:
                # The fields of config.json by which clients choose a class.
                fields = _short_values(self._read_json(tree.get(CONFIG)), "architectures", "model_type")
                if adapter := self._read_json(tree.get(ADAPTER)):
                    fields["peft"] = _short_values(
                        adapter, "base_model_name_or_path", "task_type", "peft_type"
                    )
                config_json = _encode(fields)
            config_json = config_json or b""
            # Declared evaluation results.
            if results is None:
                results = declared_results(self._hub.blobs, tree)
                self._results.put(key, results, DETAILS_KEY + len(_encode(results)))
            if len(tree) >= FEW:
                self._siblings.put(siblings_key, files, len(files))
            if config:
                self._configs.put(key, config_json, DETAILS_KEY + len(config_json))
        properties = {"siblings": files, **card_properties(repository, summary)}
        if results := [*results, *verified_results(summary)]:
            properties["evalResults"] = _encode(results)
        return properties | ({"config": config_json} if config_json not in (b"", b"{}") else {})

    def _read_json(self, entry: Entry | None) -> Mapping[str, Any]:
        """Read the JSON object in a file; empty if the file is missing, too large or invalid."""
        if entry is None or entry.size > LARGEST_CONFIG:
            return {}
        with self._hub.blobs.open(entry.sha256) as stream:
            text = stream.read().decode(errors="replace")
        try:
            content = parse(text)
        except (json.JSONDecodeError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def card_properties(repository: Repository, summary: VersionSummary | None) -> EncodedProperties:
    """Return the properties from the metadata of README.md, the verified results, and the size."""
    card = dict(repository.card)
    index = make_model_index(card, repository.name, summary)
    if "model-index" in card:
        card["model-index"] = declared_model_index(card)
    properties = {"cardData": _encode(card), "usedStorage": _encode(repository.size)}
    if index:
        properties["model-index"] = _encode(index)
    return properties


def _short_values(config: Mapping[str, Any], *keys: str) -> Json:
    """Return the values of these keys, if they are a name or a short list of names."""
    return {key: config[key] for key in keys if key in config and _is_short(config[key])}


def _is_short(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_NAMES and all(isinstance(each, str) and _is_short(each) for each in value)
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_NAME)


def _encode(value: Any) -> bytes:
    """Encode as starlette's JSONResponse does."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# All caches of a worker.


class Caches:
    """The caches of a worker, which take 60 MB at most."""

    def __init__(self, hub: HubServices) -> None:
        self.trees = TreeCache(hub.commits)
        self.details = DetailCache(hub, self.trees)
        self.manifests = ManifestCache(hub.blobs)
        self.readmes = ReadmeCache(hub.blobs)


async def get_caches(request: Request) -> Caches:
    caches: Caches = request.app.state.caches
    return caches


CachesDep: TypeAlias = Annotated[Caches, Depends(get_caches)]
