"""The cache of a worker: trees, lists of files, manifests, READMEs and other details of recently read repositories.

The description of ten thousand files has a megabyte and takes 50 ms to make, so it is made once for each commit.
"""

import hashlib
import json
import secrets
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request

from kcard.hub import card_metadata
from kcard.hub.card_metadata import abridge_readme
from kcard.hub.checks.metadata import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_YAML_CHARACTERS,
    check_manifest,
    split_front_matter,
)
from kcard.hub.checks.rendering import MAX_RENDERED_CHARACTERS, render_readme
from kcard.hub.db.models import Repository, Version
from kcard.hub.errors import TooLarge
from kcard.hub.server.responses import (
    Json,
    declared_model_index,
    declared_results,
    describe_sibling,
    make_model_index,
    verified_results,
)
from kcard.hub.services import HubServices
from kcard.hub.values import Entry
from kcard.io import parse
from kcard.manifest import MANIFEST, Manifest

Value = TypeVar("Value")


class SizedCache:
    """Values by key, with a total size of at most `most` bytes. Thread-safe; values must not be changed."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        """Return the value, or None if it is not in the cache."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Add a value, unless it is larger than the cache; evict the least recently used ones."""
        if size > self._most:
            return
        with self._lock:
            self._size += size - self._entries.pop(key, (value, 0))[1]
            self._entries[key] = (value, size)
            while self._size > self._most:
                self._size -= self._entries.popitem(last=False)[1][1]

    def fetch(self, key: Hashable, make: Callable[[], Value], measure: Callable[[Value], int] = len) -> Value:  # type: ignore[assignment]
        """Return the value, making it if it is not in the cache."""
        value: Value | None = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, OVERHEAD + measure(value))
        return value


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


# Properties whose values are encoded as JSON.
EncodedProperties: TypeAlias = dict[str, bytes]

MOST = 60 << 20  # bytes of all values
# Bytes of an entry besides its value, of a file in a tree, and of a manifest without its files.
OVERHEAD, OF_FILE, OF_MANIFEST = 500, 600, 5000
READ = 4 * (MAX_YAML_CHARACTERS + MAX_RENDERED_CHARACTERS)  # bytes of a README.md that may be shown
# A placeholder for the path of the repository's files, since several repositories may have the same text. It is random,
# so that no README can contain it.
FILES = f"/{secrets.token_hex(16)}"
LARGEST_CONFIG = 1_000_000
CONFIG, ADAPTER = "config.json", "adapter_config.json"
MOST_NAMES, LONGEST_NAME = 50, 500
LARGEST_LIST = 1 << 20  # bytes of the list of files in a description; clients read a longer one from the tree


def join_json(properties: Json, more: EncodedProperties) -> bytes:
    """Return one JSON object with these properties, at least one, and others that are already encoded."""
    return (
        b",".join([_encode(properties)[:-1], *(b"%s:%s" % (_encode(key), more[key]) for key in more)]) + b"}"
    )


class Caches:
    """What a worker has read of repositories, in one cache of `most` bytes. Thread-safe."""

    def __init__(self, hub: HubServices, most: int = MOST) -> None:
        self._hub, self._cache, self._rendering = hub, SizedCache(most), threading.Lock()

    def folders(self, repository: Repository, sha: str) -> Folders:
        """Return the files of an existing commit with their folders.

        Clients download a repository file by file, and each request needs the tree of the same commit. Reading a tree
        of ten thousand files takes 25 ms.
        """
        return self._cache.fetch(
            ("tree", repository.id, sha),
            lambda: Folders(self._hub.commits.tree(repository, sha)),
            lambda folders: OF_FILE * len(folders.files),
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

        def read() -> tuple[Manifest | None]:
            manifest = card_metadata.read_manifest(tree, self._hub.blobs)
            if manifest is None:
                return (None,)
            manifest = replace(
                manifest, files={}, description=manifest.description[:MAX_DESCRIPTION_CHARACTERS]
            )
            try:
                check_manifest(manifest)
            except TooLarge:
                return (None,)
            return (manifest,)

        return self._cache.fetch(("manifest", tree[MANIFEST].sha256), read, lambda _: OF_MANIFEST)[0]

    def readme(self, entry: Entry, files: str, manifest: Manifest | None = None) -> str:
        """Return a README.md as safe HTML: the text below the metadata, cut if it is long.

        `files` is the path of the repository's files; what the page shows of the manifest is omitted. Raises
        DamagedCard if the file is missing, HubError if the store is unavailable.
        """

        def render() -> str:
            with self._hub.blobs.open(entry.sha256) as stream:
                text = stream.read(READ).decode(errors="replace")
            text = split_front_matter(text)[1]
            return render_readme(text if manifest is None else abridge_readme(text, manifest), FILES)

        key = ("readme", entry.sha256, manifest and (manifest.name, manifest.description))
        document = self._cache.get(key)
        if document is None:
            with self._rendering:  # one at a time: another thread may have rendered it meanwhile
                document = self._cache.fetch(key, render)
        return document.replace(FILES, files)

    def at_revision(self, repository: Repository, sha: str) -> Repository:
        """Return the repository with the properties that it has at this commit, which may not be the head of main."""
        if sha == repository.head:
            return repository
        tree = self.tree(repository, sha)
        readme = tree[card_metadata.README].size if card_metadata.README in tree else 0
        metadata = self._cache.fetch(
            ("metadata", repository.id, sha),
            lambda: card_metadata.read_metadata(tree, self._hub.blobs),
            lambda _: readme,
        )
        modified = self._hub.commits.get(repository, sha).date
        at_commit: Repository = repository.copy(head=sha, modified=modified, **vars(metadata))
        return at_commit

    def file_properties(
        self, repository: Repository, summary: Version | None, *, blobs: bool, config: bool
    ) -> EncodedProperties:
        """Return the files at the repository's head, the metadata of README.md, and evaluation results.

        The files are null if their list is longer than LARGEST_LIST: Hugging Face clients then request the tree.
        `config` adds parts of config.json.
        """
        key = (repository.id, repository.head)

        def tree() -> Mapping[str, Entry]:
            return self.tree(repository, repository.head) if repository.head else {}

        def list_files() -> bytes:
            if sum(map(len, tree())) > LARGEST_LIST:  # at least as many bytes
                return b"null"
            encoded = _encode([describe_sibling(entry, blobs) for entry in tree().values()])
            return encoded if len(encoded) <= LARGEST_LIST else b"null"

        def read_config() -> bytes:
            """Return the fields of config.json by which clients choose a class."""
            fields = _short_values(self._read_json(tree().get(CONFIG)), "architectures", "model_type")
            if adapter := self._read_json(tree().get(ADAPTER)):
                fields["peft"] = _short_values(adapter, "base_model_name_or_path", "task_type", "peft_type")
            return _encode(fields)

        properties = {
            "siblings": self._cache.fetch(("files", *key, blobs), list_files),
            **card_properties(repository, summary),
        }
        declared = self._cache.fetch(
            ("results", *key),
            lambda: declared_results(self._hub.blobs, tree()),
            lambda results: len(_encode(results)),
        )
        if results := [*declared, *verified_results(summary)]:
            properties["evalResults"] = _encode(results)
        if config and (fields := self._cache.fetch(("config", *key), read_config)) != b"{}":
            properties["config"] = fields
        return properties

    def _read_json(self, entry: Entry | None) -> Mapping[str, Any]:
        """Read the JSON object in a file; empty if the file is missing, too large or invalid."""
        if entry is None or entry.size > LARGEST_CONFIG:
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


async def get_caches(request: Request) -> Caches:
    caches: Caches = request.app.state.caches
    return caches


CachesDep: TypeAlias = Annotated[Caches, Depends(get_caches)]
